"""Follow-ups are found between the turns of a session, and become signals once for each judge."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.follow_ups.judge import BaselineJudge
from ostinato.rewards.follow_ups.read import follow_ups, judge_follow_ups, words_of
from ostinato.store import Store
from ostinato.types import SignalKind, Turn, TurnKind

TOKENIZER = Tokenizer.train(["<|im_start|>user\nstill red<|im_end|>\n" * 3], 300)


class Away:
    """A judge that is down."""

    name = "away"

    async def probability(self, text: str) -> float | None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def said(index: int, *words: str, at: float = 100.0) -> Turn:
    """A turn whose prompt is these words of user and assistant in turn."""
    roles = ("user", "assistant")
    text = "".join(f"<|im_start|>{roles[n % 2]}\n{each}<|im_end|>\n" for n, each in enumerate(words))
    ids = TOKENIZER.encode(text + "<|im_start|>assistant\n")
    return replace(turn(index, "s"), prompt_ids=tuple(ids), started_at=at, segment=index)


def test_the_words_after_a_turn_are_about_it() -> None:
    turns = [said(0, "fix it"), said(1, "fix it", "done", "you broke CI", at=200.0)]
    (found,) = follow_ups(turns, TOKENIZER)
    assert (found.turn, found.said_at, found.text) == (0, 200.0, "you broke CI")


def test_the_request_itself_and_titles_are_no_follow_ups() -> None:
    title = replace(said(1, "fix it", "done", "title?"), kind=TurnKind.SIDE)
    assert follow_ups([said(0, "fix it"), title], TOKENIZER) == []
    assert follow_ups([said(0, "a"), said(1, "b")], TOKENIZER) == []


def test_the_words_of_a_session_are_those_of_its_prompts() -> None:
    context = "<environment_context>a shell</environment_context>"
    title = replace(said(1, "title?"), kind=TurnKind.SIDE)
    turns = [said(0, context + "fix it\nplease"), title, said(2, "fix it", "done", "thanks")]
    assert words_of(turns, TOKENIZER) == ["fix it\nplease", "thanks"]


def test_messages_of_the_system_below_the_words_are_passed_over() -> None:
    text = "<|im_start|>user\nfix it<|im_end|>\n<|im_start|>system\nskills<|im_end|>\n<|im_start|>assistant\n"
    prompted = replace(said(0, "x"), prompt_ids=tuple(TOKENIZER.encode(text)))
    assert words_of([prompted], TOKENIZER) == ["fix it"]


def test_what_a_client_adds_is_not_what_a_person_said() -> None:
    reminder = "<system-reminder>use the tool, it still fails</system-reminder>"
    turns = [said(0, "fix it"), said(1, "fix it", "done", reminder), said(2, "a", "b", reminder + "thanks")]
    assert [each.text for each in follow_ups(turns, TOKENIZER)] == ["thanks"]


async def test_each_follow_up_becomes_one_signal_of_its_judge(store: Store) -> None:
    store.record([said(0, "fix it"), said(1, "fix it", "done", "you broke CI", at=200.0)], (), [session("s")])
    for read in (1, 0):
        done = await judge_follow_ups(store, TOKENIZER, BaselineJudge(), store.sessions())
        assert (done.read, done.unanswered) == (read, 0)
    (signal,) = store.signals("s")
    assert (signal.id, signal.kind, signal.turn) == ("follow-up/s/0/baseline", SignalKind.FOLLOW_UP, 0)
    assert float(signal.value) > 0.5 and signal.observed_at == 200.0


async def test_a_judge_that_is_down_leaves_nothing_and_is_asked_again(store: Store) -> None:
    store.record([said(0, "fix it"), said(1, "fix it", "done", "you broke CI")], (), [session("s")])
    done = await judge_follow_ups(store, TOKENIZER, Away(), store.sessions())
    assert (done.read, done.unanswered, store.signals("s")) == (0, 1, [])
    assert (await judge_follow_ups(store, TOKENIZER, BaselineJudge(), store.sessions())).read == 1
