import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.gateway.chat import ChatRequest
from ostinato.gateway.conversation import Conversation, answer_of
from ostinato.model.renderer import Renderer
from ostinato.types import Completion, FinishReason, Session, Source, Turn

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CALL = '<tool_call>\n{"name":"read",  "arguments":{"path": "é"}}\n</tool_call>'
said = text | st.sampled_from(
    [CALL, "look\n" + CALL, CALL + "\n" + CALL, "<tool_call>\n{oops", "<|im_start|>"]
)
news = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": text})
heard = st.lists(news, min_size=1, max_size=2)


def conversation() -> Conversation:
    session = Session(
        id="s1", source=Source.LIVE, user="ada", arm="", task_id=None, harness="", started_at=0.0
    )
    held = Conversation(session)
    held.load(None, [])
    return held


def request(*messages: dict[str, object]) -> ChatRequest:
    return ChatRequest(model="ostinato", messages=messages)


def sample(
    held: Conversation, chat: ChatRequest, renderer: Renderer, words: str, *, stop: bool = True
) -> dict[str, object]:
    """One turn in which the model says `words`; the message the client gets."""
    prompt, segment = held.prompt(chat, renderer)
    ids = (*renderer.tokenizer.encode_untrusted(words), *renderer.stop_ids[: int(stop)])
    n = len(ids)
    finish = FinishReason.STOP if stop else FinishReason.LENGTH
    completion = Completion(ids=ids, logprobs=(-0.5,) * n, versions=(1,) * n, finish=finish)
    turn = Turn(
        session_id="s1",
        index=held.turns,
        segment=segment,
        arm="main",
        prompt_ids=prompt,
        completion=completion,
        started_at=0.0,
        latency_s=0.0,
    )
    answer = answer_of(renderer.parse(ids), turn.index)
    held.add(turn, chat, answer)
    return answer


def as_a_client_would(message: dict[str, object]) -> dict[str, object]:
    """Another key order, content parts, arguments printed anew, additional fields."""
    again = {"refusal": None, **dict(reversed(message.items()))}
    if isinstance(message["content"], str) and message["content"]:
        again["content"] = [{"type": "text", "text": message["content"]}]
    calls = []
    for call in message.get("tool_calls", []):
        arguments = json.dumps(json.loads(call["function"]["arguments"]))
        calls.append(call | {"function": call["function"] | {"arguments": arguments}})
    return again | ({"tool_calls": calls} if calls else {})


@settings(max_examples=60)
@given(st.lists(st.tuples(said, st.booleans(), heard), min_size=1, max_size=4), st.booleans())
def test_ids_only_grow_and_survive_a_restart(renderer: Renderer, story: list, restarts: bool) -> None:
    held = conversation()
    messages: list[dict[str, object]] = [{"role": "user", "content": "go"}]
    turns: list[Turn] = []
    for words, stop, news in story:
        answer = sample(held, request(*messages), renderer, words, stop=stop)
        assert held.last is not None
        turns.append(held.last)
        messages += [as_a_client_would(answer), *news]
        if restarts:
            held = conversation()
            held.load(held.session, turns)
            held.recall(turns, request(*messages), renderer)
    prompt, segment = held.prompt(request(*messages), renderer)
    assert segment == 0
    for before, after in pairwise(turns):
        assert after.prompt_ids[: len(before.prompt_ids) + len(before.completion.ids)] == (
            before.prompt_ids + before.completion.ids
        )
    assert prompt[: len(turns[-1].prompt_ids)] == turns[-1].prompt_ids


def test_a_changed_history_starts_a_new_segment(renderer: Renderer) -> None:
    held = conversation()
    go = {"role": "user", "content": "go"}
    answer = sample(held, request(go), renderer, "done")
    changed = request({"role": "user", "content": "stop"}, answer, go)
    assert held.prompt(changed, renderer) == (tuple(renderer.render(changed.messages)), 1)
    sample(held, changed, renderer, "stopped")
    same = request(*changed.messages, {"role": "assistant", "content": "stopped"}, go)
    prompt, segment = held.prompt(same, renderer)
    assert segment == 1
    assert held.last is not None
    assert prompt[: len(held.last.prompt_ids)] == held.last.prompt_ids


@pytest.mark.parametrize("change", ["answer", "news", "first", "shorter"])
def test_a_restart_recalls_nothing_of_another_history(renderer: Renderer, change: str) -> None:
    held = conversation()
    messages = [{"role": "user", "content": "go"}]
    turns = []
    for words in ("one", "two"):
        answer = sample(held, request(*messages), renderer, words)
        turns.append(held.last)
        messages += [answer, {"role": "user", "content": "on"}]
    at = {"first": 0, "answer": 1, "news": 2, "shorter": 0}[change]
    messages[at] = messages[at] | {"content": "other"}
    told = messages[:3] if change == "shorter" else messages
    again = conversation()
    again.load(held.session, [turn for turn in turns if turn is not None])
    again.recall([turn for turn in turns if turn is not None], request(*told), renderer)
    assert again.prompt(request(*told), renderer) == (tuple(renderer.render(told)), 1)


def test_other_tools_start_a_new_segment(renderer: Renderer) -> None:
    held = conversation()
    go = {"role": "user", "content": "go"}
    answer = sample(held, request(go), renderer, "done")
    tool = {"type": "function", "function": {"name": "read"}}
    chat = ChatRequest(model="ostinato", messages=(go, answer, go), tools=(tool,))
    assert held.prompt(chat, renderer)[1] == 1
