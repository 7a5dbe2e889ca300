"""The three dialects agree: one conversation, written in each, is one prompt and one chain of digests.

Covers gateway/dialects/base.py and gateway/dialects/request.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.dialects.base import Answer, Dialect
from ostinato.gateway.dialects.chat import Chat, parse_chat
from ostinato.gateway.dialects.messages import Messages, parse_messages
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.dialects.responses import Responses, parse_responses
from ostinato.gateway.errors import ApiError
from ostinato.gateway.tokens.reply_parser import answer_of, parse_reply, prefix_digests
from ostinato.gateway.tokens.text_stream import TextStream
from ostinato.model.families import Renderer
from ostinato.types import Completion, FinishReason, Turn

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
names = st.sampled_from(["read", "edit"])
values = st.dictionaries(st.sampled_from(["path", "n"]), words | st.integers(), max_size=2)
calls = st.lists(st.tuples(names, values), max_size=3)
rounds = st.lists(st.tuples(words | st.just(""), calls, words), max_size=3)
DIALECTS: dict[str, Dialect] = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def as_chat(system: str, told: list) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "go"},
    ]
    for said, called, heard in told:
        made = [
            {"id": f"c{i}", "function": {"name": name, "arguments": json.dumps(value)}}
            for i, (name, value) in enumerate(called)
        ]
        messages.append(
            {"role": "assistant", "content": said or None} | ({"tool_calls": made} if made else {})
        )
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": heard} for call in made]
        messages.append({"role": "user", "content": heard})
    return {"model": "ostinato", "messages": messages}


def as_messages(system: str, told: list) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for said, called, heard in told:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": said}] if said else []
        blocks += [
            {"type": "tool_use", "id": f"c{i}", "name": name, "input": value}
            for i, (name, value) in enumerate(called)
        ]
        results: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": f"c{i}", "content": [{"type": "text", "text": heard}]}
            for i in range(len(called))
        ]
        messages.append({"role": "assistant", "content": blocks})
        messages.append({"role": "user", "content": [*results, {"type": "text", "text": heard}]})
    return {
        "model": "ostinato",
        "max_tokens": 9,
        "system": [{"type": "text", "text": system}],
        "messages": messages,
    }


def as_responses(system: str, told: list) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for said, called, heard in told:
        text = [{"type": "output_text", "text": said}]
        items.append({"type": "message", "role": "assistant", "content": text if said else []})
        for i, (name, value) in enumerate(called):
            arguments = json.dumps(value, sort_keys=True)
            items.append({"type": "function_call", "call_id": f"c{i}", "name": name, "arguments": arguments})
        items += [
            {"type": "function_call_output", "call_id": f"c{i}", "output": heard} for i in range(len(called))
        ]
        items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": heard}]})
    return {"model": "ostinato", "instructions": system, "input": items}


@given(words, rounds)
def test_one_conversation_is_one_chain_of_digests_in_every_dialect(system: str, told: list) -> None:
    requests = [
        parse_chat(as_chat(system, told)),
        parse_messages(as_messages(system, told)),
        parse_responses(as_responses(system, told)),
    ]
    assert len({tuple(prefix_digests(request)) for request in requests}) == 1


def answered(renderer: Renderer, text: str, finish: FinishReason, stops: tuple[str, ...]) -> Answer:
    ids = (*renderer.tokenizer.encode_untrusted(text), *renderer.stop_ids[: int(finish is FinishReason.STOP)])
    n = len(ids)
    completion = Completion(ids=ids, logprobs=(-0.5,) * n, versions=(1,) * n, finish=finish)
    turn = Turn(
        session_id="s1",
        index=0,
        segment=0,
        arm="main",
        prompt_ids=(1, 2),
        completion=completion,
        started_at=0.0,
        latency_s=0.0,
    )
    return answer_of(turn, parse_reply(renderer, completion, stops))


def written(said: str, called: list[tuple[str, dict[str, Any]]]) -> str:
    """Return the text of a completion."""
    parts = [f"<tool_call>\n{json.dumps({'name': n, 'arguments': v})}\n</tool_call>" for n, v in called]
    return "\n".join([*([said] if said else []), *parts])


READ_BACK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "chat": lambda body: parse_chat({"model": "o", "messages": [body["choices"][0]["message"]]}).messages,
    "messages": lambda body: parse_messages(
        {
            "model": "o",
            "max_tokens": 1,
            "messages": [{"role": "assistant", "content": body["content"]}, {"role": "user", "content": "x"}],
        }
    ).messages[:1],
    "responses": lambda body: parse_responses({"model": "o", "input": body["output"]}).messages,
}


@given(words | st.just(""), calls, st.sampled_from(sorted(DIALECTS)))
def test_an_answer_is_parsed_back_as_the_same_message(
    renderer: Renderer, said: str, called: list, name: str
) -> None:
    answer = answered(renderer, written(said, called), FinishReason.STOP, ())
    chat = ChatRequest(model="ostinato", messages=({"role": "user", "content": "go"},))
    again = READ_BACK[name](json.loads(DIALECTS[name].whole(chat, answer)))
    before, after = (
        prefix_digests(ChatRequest(model="o", messages=m)) for m in ((answer.message,), tuple(again))
    )
    assert before == after


def folded(name: str, stream: bytes) -> tuple[str, list[tuple[str, str]], object]:
    """Return the text, the calls and the finish reason from the events of a stream."""
    events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    text, found, finish = "", [], None
    for event in events:
        kind = event.get("type")
        if name == "chat":
            (choice,) = event["choices"]
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                found += [["", ""]] * (call["index"] == len(found))
                old = found[call["index"]]
                new = call["function"]
                found[call["index"]] = [old[0] + new.get("name", ""), old[1] + new["arguments"]]
            finish = choice["finish_reason"] or finish
        elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            found.append([event["content_block"]["name"], ""])
        elif kind == "content_block_delta":
            text += event["delta"].get("text", "")
            if "partial_json" in event["delta"]:
                found[-1][1] += event["delta"]["partial_json"]
        elif kind == "message_delta":
            finish = event["delta"]["stop_reason"]
        elif kind == "response.output_text.delta":
            text += event["delta"]
        elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            found.append([event["item"]["name"], ""])
        elif kind == "response.function_call_arguments.delta":
            found[-1][1] += event["delta"]
        elif kind in {"response.completed", "response.incomplete"}:
            finish = event["response"]["status"]
    return text, [(call[0], call[1]) for call in found], finish


ENDS = {
    "chat": lambda body: body["choices"][0]["finish_reason"],
    "messages": lambda body: body["stop_reason"],
    "responses": lambda body: body["status"],
}


@given(
    st.builds(written, words | st.just(""), calls)
    | st.sampled_from(["", "<tool_call>\n{oops", "a<tool_ca", "x STOP y"]),
    st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    st.sampled_from([(), ("STOP",), ("P y", "\n")]),
    st.sampled_from(sorted(DIALECTS)),
)
def test_a_stream_holds_the_same_as_the_whole_reply(
    renderer: Renderer, text: str, finish: FinishReason, stops: tuple[str, ...], name: str
) -> None:
    if any(stop in text for stop in stops):
        finish = FinishReason.STOP_SEQUENCE
    answer, dialect = answered(renderer, text, finish, stops), DIALECTS[name]
    chat = ChatRequest(model="ostinato", messages=({"role": "user", "content": "go"},), stop=stops)
    events, growing = dialect.events(chat, answer.turn.id, 0.0, 2), TextStream(renderer, stops)
    stream = events.first()
    for id_ in answer.turn.completion.ids:
        if piece := growing.add((id_,)):
            stream += events.text(piece)
    stream += events.last(answer, growing.sent)
    made = [(call["function"]["name"], call["function"]["arguments"]) for call in answer.calls]
    body = json.loads(dialect.whole(chat, answer))
    assert folded(name, stream) == (answer.message["content"] or "", made, ENDS[name](body))


def places(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every path into a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


def changed(value: Any, at: tuple[Any, ...], new: object) -> Any:
    """Return `value` with another value at a path."""
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy


WHOLE = {
    "chat": as_chat("s", [("a", [("read", {})], "b")]),
    "messages": as_messages("s", [("a", [("read", {})], "b")])
    | {
        "tools": [{"name": "read", "input_schema": {}}],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["x"],
    },
    "responses": as_responses("s", [("a", [("read", {})], "b")])
    | {
        "tools": [{"type": "function", "name": "read", "parameters": {}}, {"type": "local_shell"}],
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
    },
}


@pytest.mark.parametrize("name", WHOLE)
@given(st.data())
def test_a_body_with_anything_anywhere_is_read_or_refused(name: str, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from(places(WHOLE[name])))
    body = changed(WHOLE[name], at, data.draw(json_values))
    try:
        DIALECTS[name].parse(json.loads(json.dumps(body)))
    except ApiError as error:
        assert 400 <= error.status < 500  # noqa: PT017


FIELDS = {
    "messages": [
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "max_tokens",
        "metadata",
        "stop_sequences",
    ],
    "responses": ["model", "input", "instructions", "tools", "tool_choice", "text", "include", "x"],
}


@pytest.mark.parametrize("name", FIELDS)
@given(st.data())
def test_any_json_is_read_or_refused(name: str, data: st.DataObject) -> None:
    good = {"messages": as_messages("s", []), "responses": as_responses("s", [])}[name]
    change = data.draw(st.dictionaries(st.sampled_from(FIELDS[name]), json_values))
    body = data.draw(st.sampled_from([good | change, change, list(change)]))
    try:
        DIALECTS[name].parse(json.loads(json.dumps(body)))
    except ApiError as error:
        assert 400 <= error.status < 500  # noqa: PT017


def test_messages_that_hold_nothing_are_refused() -> None:
    empty = {"model": "ostinato", "max_tokens": 8, "messages": [{"role": "user", "content": []}]}
    with pytest.raises(ApiError, match="hold nothing"):
        parse_messages(empty)
