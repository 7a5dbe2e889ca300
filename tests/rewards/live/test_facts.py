"""Each named fact is read from the signals that it is about, and from nothing else."""

import math

import pytest
from tests.rewards.builders import ENDED, signal, turn

from ostinato.rewards.live.facts import READERS, Fact, Price, SessionFacts
from ostinato.rewards.signals import SignalValueError
from ostinato.types import Signal, SignalKind, Turn

DAY = 86_400.0


def read(name: str, *signals: Signal, turns: list[Turn] | None = None, at: float = 0.0) -> Fact | None:
    return READERS[name].read(SessionFacts(turns or [turn()], signals), at, Price())


def value(name: str, *signals: Signal, at: float = 0.0) -> float | None:
    fact = read(name, *signals, at=at)
    return None if fact is None else fact.value


def left(share: float, age: float, edit: str = "a") -> Signal:
    return signal(SignalKind.EDIT_SURVIVAL, share, at=ENDED + age, edit=edit, turn=0)


def test_the_share_at_an_age_is_the_first_measurement_from_then_on() -> None:
    seen = [left(1.0, 5.0), left(0.8, 900.0), left(0.5, 3600.0), left(0.2, DAY)]
    assert [value("share_kept", *seen, at=at) for at in (0.0, 900.0, 901.0, DAY, 2 * DAY)] == [
        1.0,
        0.8,
        0.5,
        0.2,
        None,
    ]


def test_edits_weigh_the_same_in_the_share_that_is_left() -> None:
    fact = read("share_kept", left(1.0, 900.0, "a"), left(0.5, 900.0, "b"), at=900.0)
    assert fact is not None and fact.value == 0.75 and len(fact.evidence) == 2


def test_the_age_of_an_edit_counts_from_its_own_turn() -> None:
    """The third turn ended later, so a measurement of the first turn's edit is older."""
    first, last = turn(0), turn(1)
    object.__setattr__(last, "started_at", 10_000.0)
    facts = SessionFacts([first, last], [])
    assert facts.age(left(1.0, 900.0)) == 900.0
    unnamed = signal(SignalKind.EDIT_SURVIVAL, 1.0, at=10_001.0 + 900.0, edit="b")
    assert facts.age(unnamed) == 900.0


def test_the_last_commit_of_an_edit_counts() -> None:
    first = signal(SignalKind.EDIT_COMMITTED, 1.0, at=1.0, edit="a")
    amended = signal(SignalKind.EDIT_COMMITTED, 0.5, at=2.0, edit="a")
    assert value("committed", first, amended) == 0.5


def test_thumbs_and_tests_count_in_both_directions() -> None:
    up, down = signal(SignalKind.RATING, 1.0, turn=1), signal(SignalKind.RATING, 0.0, turn=2)
    assert (value("rating", up), value("rating", down), value("rating", up, down)) == (1.0, -1.0, 0.0)
    red, green = signal(SignalKind.TESTS_RUN, 0.0, at=1.0), signal(SignalKind.TESTS_RUN, 1.0, at=2.0)
    assert (value("tests", red), value("tests", red, green)) == (-1.0, 1.0)


def test_a_thumb_that_was_changed_counts_as_it_is_now() -> None:
    up, down = signal(SignalKind.RATING, 1.0, at=1.0, turn=1), signal(SignalKind.RATING, 0.0, at=2.0, turn=1)
    assert value("rating", up, down) == -1.0


def test_the_share_of_denied_requests() -> None:
    asked = [signal(SignalKind.TOOL_DECISION, granted) for granted in (1.0, 0.0, 1.0, 1.0)]
    fact = read("denied", *asked)
    assert fact is not None and (fact.value, fact.evidence) == (0.25, (asked[1].id,))


def test_the_clearest_follow_up_counts_and_a_calm_one_is_no_evidence() -> None:
    calm, angry = signal(SignalKind.FOLLOW_UP, 0.1), signal(SignalKind.FOLLOW_UP, 0.9)
    assert read("follow_up", calm, angry) == Fact(value=0.9, evidence=(angry.id,))
    assert read("follow_up", calm) == Fact(value=0.1)


def test_the_second_complaint_is_about_the_same_work() -> None:
    complaints = [signal(SignalKind.COMPLAINT), signal(SignalKind.COMPLAINT)]
    assert value("complaint", *complaints) == 1.0
    assert value("complaint", signal(SignalKind.COMPLAINT, 0.0)) == 0.0


def test_a_share_outside_of_its_range_counts_as_the_nearest() -> None:
    assert value("committed", signal(SignalKind.EDIT_COMMITTED, 7.0)) == 1.0
    assert value("follow_up", signal(SignalKind.FOLLOW_UP, math.inf)) == 1.0


@pytest.mark.parametrize("name", sorted(set(READERS) - {"broken", "effort", "latency"}))
def test_nothing_is_known_of_a_session_that_nobody_spoke_of(name: str) -> None:
    assert read(name) is None


def test_what_the_agent_did_is_always_known() -> None:
    broken = [turn(0, "bad JSON"), turn(1)]
    fact = read("broken", turns=broken)
    assert fact == Fact(value=1.0, evidence=("s/0",))
    assert value("latency") == pytest.approx(math.log(2))
    effort = read("effort", turns=broken)
    assert effort is not None and effort.value > 0


def test_a_value_that_is_not_a_number_is_named() -> None:
    with pytest.raises(SignalValueError, match="'often'"):
        read("complaint", signal(SignalKind.COMPLAINT, "often"))


def test_a_change_is_kept_as_a_whole_or_not_however_many_edits_it_is_cut_into() -> None:
    kept = [signal(SignalKind.EDIT_KEPT, edit=str(edit), turn=0) for edit in range(7)]
    undone = signal(SignalKind.EDIT_REVERTED, edit="wrong", turn=0)
    assert value("kept", *kept, undone) == 0.875, "the shares pay for harmless edits beside a wrong one"
    assert (value("all_kept", *kept, undone), value("any_reverted", *kept, undone)) == (0.0, 1.0)
    assert (value("all_kept", *kept), value("any_reverted", *kept)) == (1.0, 0.0)
    assert value("all_kept") is None and value("any_reverted") is None
