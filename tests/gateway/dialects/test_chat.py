import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.dialects.chat import parse_chat
from ostinato.gateway.dialects.messages import parse_messages
from ostinato.gateway.dialects.request import NO_RESULT, ChatRequest
from ostinato.gateway.dialects.responses import parse_responses
from ostinato.gateway.errors import ApiError
from ostinato.types import Sampling

HI = {"role": "user", "content": "hi"}
GOOD = {"model": "ostinato", "messages": [HI]}
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "seed",
        "n",
        "stop",
        "x",
    ]
)


@pytest.mark.parametrize(
    ("parse", "one", "other"),
    [
        (parse_chat, {"function": {"name": "read"}}, {"function": {"name": "read", "description": "x"}}),
        (parse_messages, {"name": "read"}, {"name": "read", "input_schema": {"type": "object"}}),
        (parse_responses, {"type": "custom", "name": "read"}, {"type": "function", "name": "read"}),
        (parse_responses, {"type": "local_shell"}, {"type": "function", "name": "local_shell"}),
    ],
)
def test_two_tools_of_one_name_are_refused(parse, one, other) -> None:
    """A call could mean either of them, and only one would be found again."""
    said = {"input": "hi"} if parse is parse_responses else {"messages": [HI], "max_tokens": 9}
    body = {"model": "ostinato", **said}
    assert len(parse(body | {"tools": [one]}).tools) == 1
    with pytest.raises(ApiError, match=r"two tools are named '(read|local_shell)': give each") as refused:
        parse(body | {"tools": [one, other]})
    assert refused.value.status == 400


def test_a_whole_request_is_read() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    body = GOOD | {"tools": tools, "stream": True, "stream_options": {"include_usage": True}, "seed": 7}
    assert parse_chat(
        body
        | {
            "max_completion_tokens": 9,
            "temperature": 0,
            "n": 1,
            "stop": "END",
            "top_p": 1,
            "reasoning_effort": "low",
        }
    ) == ChatRequest(
        model="ostinato",
        messages=(HI,),
        tools=tuple(tools),
        stream=True,
        include_usage=True,
        max_tokens=9,
        sampling=Sampling(temperature=0.0, seed=7),
        seeded=True,
        stop=("END",),
    )


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"model": 3}, 400, "model must be a string"),
        ({"messages": []}, 400, "at least one message"),
        ({"messages": [{"role": "robot", "content": ""}]}, 400, r"messages\[0\] must be an object with role"),
        ({"messages": [{"role": "user"}]}, 400, r"messages\[0\].content must be text"),
        (
            {"messages": [HI | {"content": [{"type": "image_url"}]}]},
            400,
            "this model reads only text",
        ),
        ({"messages": [HI | {"content": [{"type": "text"}]}]}, 400, "a text part needs text"),
        ({"messages": [HI | {"tool_calls": [CALL]}]}, 400, "on an assistant message"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
            400,
            "function.name",
        ),
        ({"tools": [{"type": "function"}]}, 400, r"tools\[0\] must be a function tool with a name"),
        ({"n": 2}, 400, "n is only supported as 1"),
        ({"logit_bias": {"1": 2}}, 400, "logit_bias is only supported as {}"),
        ({"web_search_options": {}}, 400, "web_search_options is not supported"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"max_tokens": 2**31}, 400, "at most 2147483647"),
        ({"stop": 0}, 400, "stop must be text or a list of texts"),
        ({"stop": [""]}, 400, "stop must be text or a list of texts"),
        ({"stop": ["x"] * 17}, 400, "stop may hold at most 16 texts"),
        ({"top_p": 1.9}, 400, "top_p is a share above 0 and at most 1"),
        ({"top_k": -2}, 400, "top_k is a number of tokens"),
        ({"min_p": "x"}, 400, "min_p must be int or float"),
        ({"presence_penalty": 3}, 400, "presence_penalty is a penalty between"),
        ({"tool_choice": "required"}, 400, "tool_choice is only supported as 'auto' or 'none'"),
        ({"response_format": {"type": "xml"}}, 400, "response_format must have the type"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format needs a schema"),
        ({"structured_outputs": {"regex": "a", "grammar": "b"}}, 400, "must have one of json, regex"),
        ({"structured_outputs": {"regex": ""}}, 400, "regex must be text of 1 to"),
        ({"max_tokens": True}, 400, "max_tokens must be int"),
        ({"temperature": 3}, 400, "between 0 and 2"),
        ({"temperature": float("nan")}, 400, "between 0 and 2"),
        ({"seed": -1}, 400, "seed must lie between"),
        ({"stream": "yes"}, 400, "stream must be bool"),
    ],
)
def test_the_wrong_field_is_named(change: dict[str, object], status: int, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        parse_chat(GOOD | change)
    assert caught.value.status == status
    assert caught.value.body()["error"]["type"] == "invalid_request_error"


@given(json_values | st.dictionaries(fields, json_values).map(lambda change: GOOD | change))
def test_any_json_is_read_or_refused(body: object) -> None:
    try:
        parse_chat(json.loads(json.dumps(body)))
    except ApiError as error:
        assert 400 <= error.status < 500  # noqa: PT017


def test_results_are_in_the_order_of_their_calls() -> None:
    calls = [{**CALL, "id": id_} for id_ in ("a", "b", "c")]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": id_, "content": id_} for id_ in ("c", "a", "b")]
    read = parse_chat(GOOD | {"messages": [HI, said, *results, HI]}).messages
    assert [message["content"] for message in read[2:]] == ["a", "b", "c", "hi"]
    some = parse_chat(GOOD | {"messages": [HI, said, results[0], HI, results[2]]}).messages
    assert [message["content"] for message in some[2:]] == [NO_RESULT, "b", "c", "hi"]
    none = parse_chat(GOOD | {"messages": [HI, said, HI]}).messages
    assert [message["content"] for message in none[2:]] == ["hi"]


@pytest.mark.parametrize("ids", [("x", "a"), ("a", "a")])
def test_a_result_that_would_be_read_as_another_calls_is_refused(ids: tuple[str, ...]) -> None:
    said = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": each} for each in "ab"]}
    results = [{"role": "tool", "tool_call_id": id_, "content": id_} for id_ in ids]
    with pytest.raises(ApiError, match=f"a result has the id '{ids[0]}'"):
        parse_chat(GOOD | {"messages": [HI, said, *results]})


def test_calls_of_one_id_have_their_results_in_turn() -> None:
    said = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "a"}] * 2}
    results = [{"role": "tool", "tool_call_id": "a", "content": text} for text in "12"]
    read = parse_chat(GOOD | {"messages": [HI, said, *results]}).messages
    assert [message["content"] for message in read[2:]] == ["1", "2"]


def test_a_turn_that_a_client_split_is_one_turn() -> None:
    text, calls = {"role": "assistant", "content": "I look"}, {"role": "assistant", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "1"}
    read = parse_chat(GOOD | {"messages": [HI, text, calls, result]}).messages
    assert [each["role"] for each in read] == ["user", "assistant", "tool"]
    assert (read[1]["content"], read[1]["tool_calls"][0]["id"]) == ("I look", CALL["id"])
    both = parse_chat(GOOD | {"messages": [HI, text, text]}).messages
    assert len(both) == 3


def test_parts_of_a_text_stay_apart() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    read = parse_chat(GOOD | {"messages": [{"role": "user", "content": parts}]}).messages
    assert read[0]["content"] == "one\n\ntwo"
    read = parse_chat(GOOD | {"messages": [HI, {"role": "assistant", "content": parts}, HI]}).messages
    assert read[1]["content"] == "onetwo"


@pytest.mark.parametrize("field", ["function_call", "refusal", "audio"])
def test_what_an_assistant_said_in_another_form_is_refused(field: str) -> None:
    said = {"role": "assistant", "content": None, field: {"name": "x"}}
    with pytest.raises(ApiError, match=rf"messages\[1\].{field} is not supported"):
        parse_chat(GOOD | {"messages": [HI, said]})
