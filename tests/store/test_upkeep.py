"""What the record consists of, and the tokens of groups that ended, which may go and nothing else."""

import pytest
from tests.store.builders import group, session, turn, version

from ostinato.store import Ledger, Phase, Store
from ostinato.store.purge import purge
from ostinato.store.upkeep import DAY_S, compact, contents, spare

NOW = 100 * DAY_S
NAMES = ("trained", "stale", "claimed", "offered", "young")


@pytest.fixture
def worked(store: Store) -> Ledger:
    """One group of an old session in each of four phases, and a young one that was trained."""
    store.record(
        [turn(0, name) for name in NAMES],
        sessions=[session(name, started_at=NOW - (2 if name == "young" else 40) * DAY_S) for name in NAMES],
    )
    ledger = Ledger(store)
    for name in ("trained", "young"):
        ledger.offer(group(name, session_id=name))
    ledger.claim(4, 2, 0)
    ledger.commit(version(4, "trained", "young"))
    ledger.offer(group("stale", version=1, session_id="stale"))
    ledger.claim(5, 1, 2)
    ledger.offer(group("claimed", session_id="claimed"))
    ledger.claim(5, 1, 2)
    ledger.offer(group("offered", session_id="offered"))
    return ledger


def test_contents_are_counted_by_table_and_age(store: Store, worked: Ledger) -> None:
    found = contents(store, NOW)
    assert (found.rows["turns"], found.rows["groups"], found.rows["versions"]) == (5, 5, 1)
    assert [(age.days, age.turns) for age in found.ages] == [(1, 0), (7, 1), (30, 0), (90, 4), (None, 0)]
    assert found.ages[3].bytes == 4 * found.ages[1].bytes > 0
    assert found.bytes["turns"] > 0


def test_only_tokens_of_old_groups_that_ended_may_go(store: Store, worked: Ledger) -> None:
    would = spare(store, NOW - 30 * DAY_S)
    assert (would.groups, would.samples) == (2, 2) and would.bytes > 0
    assert spare(store, NOW).groups == 3 and spare(store, 0.0).groups == 0
    assert compact(store, NOW - 30 * DAY_S) == would
    assert spare(store, NOW - 30 * DAY_S).groups == 0


def test_what_the_ledger_needs_is_there_after_a_compaction(store: Store, worked: Ledger) -> None:
    turns = store.turns("trained")
    compact(store, NOW)
    assert worked.release() == 1
    left = [group(name, session_id=name) for name in ("claimed", "offered")]
    assert worked.claim(5, 9, 0) == left
    assert (worked.trained_twice(), store.turns("trained")) == (0, turns)
    assert worked.tally(Phase.TRAINED)


def test_a_purge_after_a_compaction_removes_the_rest(store: Store, worked: Ledger) -> None:
    compact(store, NOW)
    assert purge(store, session="trained", by="ada").counts["samples"] == 1
    assert purge(store, session="trained", by="ada").counts["samples"] == 0
