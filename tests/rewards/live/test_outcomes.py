"""The outcomes of a session: what each says, when it is read, and what contradicting facts are worth."""

import pytest
from tests.rewards.builders import ENDED, signal, turn

from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.outcomes import LiveOutcome, read_outcomes
from ostinato.types import Signal, SignalKind

DAY = 86_400.0
KEPT, REVERTED, LEFT = SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED, SignalKind.EDIT_SURVIVAL
SURVIVED = {"survived": LiveOutcome(after_s=8 * DAY)}


def value(*signals: Signal, name: str = "survived", next_at: float | None = None) -> float | None:
    outcome = {name: LiveOutcome(after_s=8 * DAY)}
    return read_outcomes(outcome, [turn()], signals, as_of=ENDED + 9 * DAY, next_at=next_at)[name]


def about(kind: SignalKind, days: float, amount: float = 1.0, edit: str = "e") -> Signal:
    return signal(kind, amount, at=ENDED + days * DAY, edit=edit, turn=0)


def test_an_outcome_is_read_at_its_own_age_and_by_no_reward() -> None:
    heard = [about(KEPT, 0.01), about(REVERTED, 30 / 24), about(LEFT, 3.0, 0.0)]
    ages = {
        days: read_outcomes(LIVE.outcomes, [turn()], heard, as_of=ENDED + days * DAY) for days in (1, 2, 8)
    }
    assert ages[1] == {} and set(ages[2]) == {"survived_1d"} and set(ages[8]) == set(LIVE.outcomes)
    assert ages[8]["survived_7d"] == 0.0
    assert not LIVE.parts.keys() & LIVE.outcomes.keys()
    early = LIVE.settled("s", [turn()], heard, as_of=ENDED + 8 * DAY)
    assert early == LIVE.settled("s", [turn()], heard[:1], as_of=ENDED + 8 * DAY)


@pytest.mark.parametrize(
    ("heard", "worth"),
    [
        ([about(KEPT, 0.1)], 1.0),
        ([about(KEPT, 0.1), about(LEFT, 3.0, 0.25)], 0.25),
        ([about(LEFT, 0.01, 1.0), about(REVERTED, 2.0)], 0.0),
        ([about(REVERTED, 2.0), about(KEPT, 3.0)], 1.0),  # undone, and done again
        ([about(REVERTED, 2.0), about(LEFT, 3.0, 1.0)], 0.0),  # an editor and git contradict each other
        ([about(KEPT, 2.0), about(LEFT, 1.0, 0.0)], 0.0),
        ([about(KEPT, 0.1), about(REVERTED, 1.0, edit="f")], 0.5),
        ([about(KEPT, 0.1), about(REVERTED, 8.5)], 1.0),  # after the outcome was read
    ],
)
def test_what_survived_is_the_worse_of_what_contradicts(heard: list[Signal], worth: float) -> None:
    for order in (heard, heard[::-1]):
        assert value(*order) == worth


def test_of_silence_nothing_is_known() -> None:
    assert value() is None
    assert value(name="merged") is None
    assert read_outcomes(SURVIVED, [], [], as_of=1e12) == {}


def test_merged_work_that_is_taken_back_and_hidden_suites_and_who_comes_back() -> None:
    merged = about(SignalKind.EDIT_COMMITTED, 0.2)
    assert value(merged, name="merged") == 1.0
    assert value(merged, about(REVERTED, 5.0), name="merged") == 0.0
    suite = [about(SignalKind.HIDDEN_TESTS, days, passed) for days, passed in ((1.0, 1.0), (2.0, 0.0))]
    assert value(*suite, name="hidden_tests") == 0.0
    came = [value(name="returned", next_at=at) for at in (None, ENDED + DAY, ENDED + 8.1 * DAY)]
    assert came == [0.0, 1.0, 0.0]
