"""The latest verdict on each edit, whatever the order in which signals arrived."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import signal, turn

from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.verdicts import LiveVerdict, verdicts
from ostinato.types import Ending, Reward, Signal, SignalKind

KEPT, EDITED, REVERTED = SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED
KINDS = {KEPT: 1.0, EDITED: 0.5, REVERTED: -0.5}
stories = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(list(KINDS)), st.integers(0, 9)), min_size=1, max_size=8
)


def live(*signals: Signal) -> Reward:
    return LIVE.score("s", [turn()], signals)


def outcome(*signals: Signal) -> float:
    """The sum of the parts that read verdicts: the mean worth of an edit."""
    return sum(part.value for part in live(*signals).parts if part.name in list(LiveVerdict))


def signals_of(story: list[tuple[str, SignalKind, int]]) -> list[Signal]:
    return [signal(kind, at=float(at), edit=edit, turn=1) for edit, kind, at in story]


def distinct(story: list[tuple[str, SignalKind, int]]) -> list[tuple[str, SignalKind, int]]:
    return [(edit, kind, at * 10 + n) for n, (edit, kind, at) in enumerate(story)]


@given(stories)
def test_the_outcome_is_the_mean_of_each_edits_latest_signal(
    story: list[tuple[str, SignalKind, int]],
) -> None:
    last: dict[str, tuple[int, float]] = {}
    for edit, kind, at in distinct(story):
        last[edit] = max(last.get(edit, (-1, 0.0)), (at, KINDS[kind]))
    expected = sum(value for _, value in last.values()) / len(last)
    assert outcome(*signals_of(distinct(story))) == pytest.approx(expected)


@given(stories, st.randoms(use_true_random=False))
def test_the_order_in_which_signals_arrive_does_not_matter(
    story: list[tuple[str, SignalKind, int]], random: Random
) -> None:
    """Equal times too: the record and its copy must give the same bytes."""
    signals = signals_of(story)
    shuffled = random.sample(signals, len(signals))
    assert live(*shuffled) == live(*signals)


def test_the_latest_verdict_counts_and_is_the_evidence() -> None:
    kept, reverted = signal(KEPT, at=1.0), signal(REVERTED, at=2.0)
    assert outcome(reverted, kept) == outcome(reverted) == -0.5
    parts = {part.name: part for part in live(reverted, kept).parts}
    assert parts["reverted"].evidence == (reverted.id,) and parts["kept"].evidence == ()


def test_a_reverted_edit_is_not_made_good_by_a_kept_one() -> None:
    reverted, kept = signal(REVERTED, at=1.0, edit="a"), signal(KEPT, at=2.0, edit="b")
    assert outcome(reverted, kept) == 0.25
    assert outcome(kept) == 1.0


def test_a_signal_about_a_turn_is_about_each_of_its_edits() -> None:
    accepted = signal(KEPT, at=1.0, turn=3)
    first, second = (signal(REVERTED, at=2.0, edit=edit, turn=3) for edit in "ab")
    assert outcome(accepted) == 1.0
    assert outcome(accepted, first, second) == -0.5
    assert outcome(accepted, signal(REVERTED, at=2.0, edit="c", turn=4)) == 0.25


def test_a_signal_about_the_whole_session_weighs_as_one_edit() -> None:
    edits = [signal(KEPT, edit=edit) for edit in "abc"]
    assert outcome(*edits, signal(SignalKind.ABANDONED)) == pytest.approx((3 - 0.5) / 4)


def test_a_session_that_ended_abandoned_is_a_verdict() -> None:
    assert outcome(signal(SignalKind.ENDING, Ending.ABANDONED)) == -0.5
    assert verdicts([signal(SignalKind.ENDING, Ending.FINISHED)]) == []


def test_a_signal_of_zero_records_that_it_did_not_happen() -> None:
    assert verdicts([signal(REVERTED, 0.0), signal(SignalKind.ABANDONED, 0.0)]) == []


def test_a_wrong_answer_is_a_verdict() -> None:
    assert outcome(signal(SignalKind.NO_EDIT_WANTED)) == 1.0
    assert outcome(signal(SignalKind.NO_EDIT_WANTED, 0.0)) == -0.5
