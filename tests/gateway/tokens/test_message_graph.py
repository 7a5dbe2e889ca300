import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.tokens.message_graph import MOST_SEGMENTS, HeldConversation
from ostinato.gateway.tokens.reply_parser import answer_of, parse_reply, prefix_digests
from ostinato.model.families import Renderer
from ostinato.types import Completion, FinishReason, Session, Source, Turn

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CALL = '<tool_call>\n{"name":"read",  "arguments":{"path": "é"}}\n</tool_call>'
said = text | st.sampled_from(
    [CALL, "look\n" + CALL, CALL + "\n" + CALL, "<tool_call>\n{oops", "<|im_start|>"]
)
news = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool"]), "content": text})
heard = st.lists(news, min_size=1, max_size=2)
GO = {"role": "user", "content": "go"}


class Story:
    """A conversation and all its recorded turns."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.turns: list[Turn] = []
        self.restart()

    def restart(self) -> None:
        session = Session(
            id="s1", source=Source.LIVE, user="ada", arm="", task_id=None, harness="", started_at=0.0
        )
        self.held = HeldConversation(session)
        self.held.load(None, self.turns)

    def ask(self, chat: ChatRequest, words: str = "done", *, stop: bool = True) -> dict[str, object]:
        """Run a turn in which the model samples `words`; return the message that the client gets."""
        held, digests = self.held, prefix_digests(chat)
        if held.is_partial(chat, digests):
            held.recall(self.turns, chat, digests, self.renderer)
        position = asyncio.run(held.find_position(chat, digests, self.renderer))
        ids = (*self.renderer.tokenizer.encode_untrusted(words), *self.renderer.stop_ids[: int(stop)])
        n = len(ids)
        finish = FinishReason.STOP if stop else FinishReason.LENGTH
        turn = Turn(
            session_id="s1",
            index=held.plan(),
            segment=held.segment_of(position),
            arm="main",
            prompt_ids=position.prompt_ids,
            completion=Completion(ids=ids, logprobs=(-0.5,) * n, versions=(1,) * n, finish=finish),
            started_at=0.0,
            latency_s=0.0,
            untrainable=position.untrainable,
        )
        answer = answer_of(turn, parse_reply(self.renderer, turn.completion, ())).message
        held.add(turn, position, digests[-1], answer)
        held.committed(turn.index)
        self.turns.append(turn)
        return answer

    @property
    def segments(self) -> list[int]:
        return [turn.segment for turn in self.turns]

    @property
    def exact(self) -> list[bool]:
        return [turn.untrainable is None for turn in self.turns]

    def grew(self, before: int, after: int) -> bool:
        """Return whether one turn's prompt begins with another's ids."""
        kept = self.turns[before].prompt_ids + self.turns[before].completion.ids
        return self.turns[after].prompt_ids[: len(kept)] == kept


@pytest.fixture
def story(renderer: Renderer) -> Story:
    return Story(renderer)


def request(*messages: dict[str, object]) -> ChatRequest:
    return ChatRequest(model="ostinato", messages=messages)


def user(words: str) -> dict[str, object]:
    return {"role": "user", "content": words}


def as_a_client_would(message: dict[str, object]) -> dict[str, object]:
    """Write a message differently: other key order, content parts, no ids, other formatting, less white
    space."""
    again = {"refusal": None, **dict(reversed(message.items()))}
    if isinstance(message["content"], str) and message["content"].strip():
        again["content"] = [{"type": "text", "text": message["content"].strip()}]
    calls = []
    for call in message.get("tool_calls", []):
        arguments = json.dumps(json.loads(call["function"]["arguments"]), sort_keys=True)
        calls.append({"function": call["function"] | {"arguments": arguments}})
    return again | ({"tool_calls": calls} if calls else {})


@given(st.lists(st.tuples(said, st.booleans(), heard), min_size=1, max_size=4), st.booleans())
def test_ids_only_grow_and_survive_a_restart(renderer: Renderer, told: list, restarts: bool) -> None:
    story = Story(renderer)
    messages: list[dict[str, object]] = [GO]
    for words, stop, more in told:
        messages += [as_a_client_would(story.ask(request(*messages), words, stop=stop)), *more]
        if restarts:
            story.restart()
    story.ask(request(*messages))
    assert set(story.segments) == {0}
    assert all(story.exact)
    assert all(story.grew(i, i + 1) for i in range(len(story.turns) - 1))


def test_going_back_forks_with_the_same_ids(story: Story) -> None:
    first = story.ask(request(GO), "one")
    story.ask(request(GO, first, user("a")), "two")
    forked = story.ask(request(GO, first, user("b")), "three")
    story.ask(request(GO, first, user("b"), forked, user("c")), "four")
    assert story.segments == [0, 0, 1, 1]
    assert all(story.exact)
    assert story.grew(0, 2)
    assert story.grew(2, 3)


def test_the_end_and_a_fork_go_on_in_turns(story: Story) -> None:
    first = story.ask(request(GO), "one")
    left = [GO, first, user("a")]
    right = [GO, first, user("b")]
    for i in range(3):
        left += [story.ask(request(*left), f"left {i}"), user(str(i))]
        right += [story.ask(request(*right), f"right {i}"), user(str(i))]
    assert story.segments == [0, 0, 1, 0, 1, 0, 1]


def test_two_at_once_never_share_a_segment(story: Story) -> None:
    first = story.ask(request(GO), "one")
    chat = request(GO, first, user("a"))
    digests = prefix_digests(chat)
    places = [asyncio.run(story.held.find_position(chat, digests, story.renderer)) for _ in range(2)]
    assert [position.how for position in places] == ["extended", "forked"]
    indices = [story.held.plan() for _ in places]
    for position, index in zip(places, indices, strict=True):
        story.held.leave(position, index)
    assert asyncio.run(story.held.find_position(chat, digests, story.renderer)).how == "extended"


def test_a_turn_that_did_not_happen_gives_its_index_back(story: Story) -> None:
    position = asyncio.run(story.held.find_position(request(GO), prefix_digests(request(GO)), story.renderer))
    story.held.leave(position, story.held.plan())
    assert story.held.turns == 0
    story.ask(request(GO))
    assert [turn.index for turn in story.turns] == [0]


def test_another_beginning_is_another_segment_and_exact(story: Story) -> None:
    """A compaction, a sub-agent or a title holds no answers, so it is exact."""
    story.ask(request(GO), "one")
    story.ask(request(user("summary of what was done")), "two")
    story.ask(request(user("give it a title")), "three")
    assert story.segments == [0, 1, 2]
    assert all(story.exact)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_answer_never_given_is_recorded_but_not_trained(story: Story, restarts: bool) -> None:
    first = story.ask(request(GO), "one")
    if restarts:
        story.restart()
    edited = first | {"content": "something else"}
    answer = story.ask(request(GO, edited, user("a")), "two")
    story.ask(request(GO, edited, user("a"), answer, user("b")), "three")
    story.ask(request(GO, first, user("a")), "four")
    assert story.exact == [True, False, False, True]
    assert story.segments[1] == story.segments[2] != story.segments[0]
    assert story.segments[3] == 0
    assert story.grew(1, 2)


def test_an_inexact_tail_keeps_the_exact_beginning(story: Story) -> None:
    first = story.ask(request(GO), "one")
    foreign = {"role": "assistant", "content": "not mine"}
    story.ask(request(GO, first, user("a"), foreign, user("b")), "two")
    assert story.exact == [True, False]
    assert story.segments == [0, 1]
    assert story.grew(0, 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_answers_in_the_first_request_keep_it_exact(story: Story, restarts: bool) -> None:
    """Answers in the first request are examples, or a conversation that began elsewhere."""
    shown = [GO, {"role": "assistant", "content": "an example"}, user("now you")]
    answer = story.ask(request(*shown), "one")
    if restarts:
        story.restart()
    story.ask(request(*shown, answer, user("on")), "two")
    assert story.segments == [0, 0]
    assert all(story.exact)


def test_own_answers_among_changed_messages_stay_exact(story: Story) -> None:
    """Clients such as aider rewrite the messages before and between the answers."""
    first = story.ask(request(user("old file"), GO), "one two three")
    story.ask(request(user("new file"), GO, first, user("on")), "two")
    assert story.segments == [0, 1]
    assert all(story.exact)


@pytest.mark.parametrize("change", ["news", "first"])
def test_a_restart_recalls_nothing_of_another_history(story: Story, change: str) -> None:
    messages = [GO]
    for words in ("one", "two"):
        messages += [story.ask(request(*messages), words), user("on")]
    at = {"first": 0, "news": 2}[change]
    messages[at] = user("other")
    story.restart()
    story.ask(request(*messages))
    assert story.segments == [0, 0, 1]
    assert story.grew(0, 2) == (change == "news")


def test_both_branches_are_found_again_after_a_restart(story: Story) -> None:
    first = story.ask(request(GO), "one")
    left, right = [GO, first, user("a")], [GO, first, user("b")]
    left += [story.ask(request(*left), "left"), user("on")]
    right += [story.ask(request(*right), "right"), user("on")]
    story.restart()
    story.ask(request(*left))
    story.ask(request(*right))
    assert story.segments == [0, 0, 1, 0, 1]
    assert story.grew(1, 3) and story.grew(2, 4)


def test_a_segment_that_is_no_longer_held_is_read_again(story: Story) -> None:
    first = story.ask(request(GO), "one")
    for i in range(MOST_SEGMENTS + 2):
        story.ask(request(user(f"beginning {i}")))
    assert story.held.size <= sum(len(t.prompt_ids) + len(t.completion.ids) for t in story.turns[-17:])
    story.ask(request(GO, first, user("on")))
    assert story.turns[-1].segment == 0
    assert story.grew(0, -1)


def test_other_tools_start_a_new_segment(story: Story) -> None:
    answer = story.ask(request(GO))
    tool = {"type": "function", "function": {"name": "read"}}
    story.ask(ChatRequest(model="ostinato", messages=(GO, answer, GO), tools=(tool,)))
    assert story.segments == [0, 1]
    assert all(story.exact)


@given(st.data())
def test_every_segment_only_grows_whatever_clients_do(renderer: Renderer, data: st.DataObject) -> None:
    """Clients go back, change words, restart the gateway: each segment's turns extend each other."""
    story = Story(renderer)
    histories: list[list[dict[str, object]]] = [[GO]]
    for _ in range(data.draw(st.integers(1, 8))):
        history = list(data.draw(st.sampled_from(histories)))
        if len(history) > 1 and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(history) - 1))
            history[at] = history[at] | {"content": data.draw(text)}
        answer = story.ask(request(*history), data.draw(said), stop=data.draw(st.booleans()))
        histories.append([*history, as_a_client_would(answer), data.draw(news)])
        if data.draw(st.booleans()):
            story.restart()
    for segment in set(story.segments):
        turns = [turn for turn in story.turns if turn.segment == segment]
        assert len({turn.untrainable for turn in turns}) == 1
        for before, after in pairwise(turns):
            kept = before.prompt_ids + before.completion.ids
            assert after.prompt_ids[: len(kept)] == kept
