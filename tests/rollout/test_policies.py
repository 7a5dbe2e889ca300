"""The limits on what starts, and that together they never stand still."""

from hypothesis import given
from hypothesis import strategies as st

from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.policies import (
    Counts,
    KeepFull,
    NotBeyondTheEnd,
    NotStale,
    ReadyAhead,
    WholeBatches,
    allowed,
    policies,
)


def counts(open: int = 0, waiting: int = 0, claimed: int = 0, busy: int = 0, newest: int = 0) -> Counts:
    return Counts(open=open, waiting=waiting, claimed=claimed, busy=busy, newest=newest)


def test_groups_start_while_there_are_fewer_sessions_than_places() -> None:
    full = KeepFull(sessions=24, group_size=8)
    assert [full.more(counts(busy=n)) for n in (0, 8, 23, 24, 30)] == [3, 2, 1, 0, 0]


def test_nothing_starts_while_enough_groups_wait_except_in_place_of_dropped_ones() -> None:
    ahead = ReadyAhead(groups=3, batch=5)
    assert ahead.more(counts(waiting=2, open=9)) > 9
    assert ahead.more(counts(waiting=3, open=2)) <= 0
    assert ahead.more(counts(waiting=3, open=1)) == 1


def test_what_would_be_stale_when_its_turn_comes_does_not_start() -> None:
    """With batches of 2 and staleness 1 the fourth group under way is trained one version later, and still
    fresh enough; the fifth is not.
    """
    fresh = NotStale(staleness=1, batch=2)
    assert [fresh.more(counts(open=n)) for n in (0, 3, 4)] == [4, 1, 0]
    assert fresh.more(counts(claimed=2, waiting=1)) == 1


@given(st.integers(0, 4), st.integers(1, 6), st.integers(0, 40), st.integers(0, 40))
def test_the_bound_on_staleness_is_exact(staleness: int, batch: int, before: int, done: int) -> None:
    """The group behind `before` others starts exactly if it is trained within the bound, were all whole."""
    starts = NotStale(staleness, batch).more(counts(open=before)) > 0
    versions_until_its_step = before // batch
    assert starts == (versions_until_its_step <= staleness)


def test_no_group_starts_that_no_version_will_take() -> None:
    end = NotBeyondTheEnd(until=5, batch=2)
    assert [end.more(counts(newest=4, waiting=n)) for n in (0, 1, 2)] == [2, 1, 0]
    assert end.more(counts(newest=5)) == 0


def test_a_synchronous_run_samples_one_batch_and_waits_for_its_version() -> None:
    whole = WholeBatches(batch=3)
    assert whole.more(counts()) == 3
    assert whole.more(counts(open=2, waiting=1)) == 0
    assert whole.more(counts(open=1, waiting=1)) == 1, "one was dropped"
    assert whole.more(counts(claimed=3)) == 0


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(0, 4), st.sampled_from(["asynchronous", "synchronous"])
)
def test_sampling_never_stands_still_before_a_batch_is_whole(
    ahead: int, at_once: int, staleness: int, mode: str
) -> None:
    """For the largest batch that is not refused, whichever groups end in an offer and which are dropped."""
    batch = ahead + at_once - 1
    config = PracticeConfig(mode=mode, group_size=2, groups_at_once=at_once, ready_ahead=ahead)  # type: ignore[arg-type]
    config.refuse_deadlock(batch)
    rules = policies(config, batch=batch, staleness=staleness, until=9)
    for waiting in range(batch):
        assert allowed(rules, counts(waiting=waiting)) > 0, f"{waiting} of {batch} wait and nothing starts"
