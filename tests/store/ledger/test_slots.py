"""The rows of slots: legal transitions, ends that follow the prompt, counts, and what a purge leaves.

Covers store/ledger/slot_rows.py, store/ledger/leftovers.py and store/ledger/account.py.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import select, update
from tests.store.builders import group, session, turn, version

from ostinato.store import Ledger, LedgerError, Phase, Store
from ostinato.store.ledger.account import state_root
from ostinato.store.ledger.slot_rows import INTERRUPTED, Slot, SlotState
from ostinato.store.ledger.slots import KindEffort, Slots, again
from ostinato.store.purge import purge
from ostinato.store.sql import schema
from ostinato.types import Ending, Source, State


@pytest.fixture
def slots(store: Store) -> Slots:
    return Slots(store)


def scored(slots: Slots, prompt: str, sessions: Sequence[str]) -> list[Slot]:
    """Plan a prompt and take all of its slots to SCORED."""
    now = slots.plan(prompt, sessions)
    now = slots.move(now, [replace(each, state=SlotState.RUNNING) for each in now])
    kept = [replace(each, state=SlotState.FINISHED, kept=b"changes", turns=2, thinking=5) for each in now]
    now = slots.move(now, kept)
    return slots.move(now, [replace(each, state=SlotState.SCORED, kept=b"names") for each in now])


def states(store: Store, prompt: str) -> list[tuple[str, str | None]]:
    column = schema.slots.c
    query = select(column.state, column.reason).where(column.prompt == prompt).order_by(column.order)
    with store.database.read() as connection:
        return [(row[0], row[1]) for row in connection.execute(query)]


def test_a_prompt_is_planned_once(slots: Slots, ledger: Ledger) -> None:
    assert [slot.number for slot in slots.plan("p", ["a", "b"])] == [0, 1]
    assert slots.plan("p", ["c", "d"]) == []
    assert not ledger.reserve("p")
    ledger.reserve("q")
    assert slots.plan("q", ["e"]) == [] and list(slots.open()) == ["p"]


def test_slots_are_read_as_they_were_written(slots: Slots, store: Store) -> None:
    planned = slots.plan("p", ["a", "b"])
    running = slots.move(planned, [replace(each, state=SlotState.RUNNING) for each in planned])
    (cut,) = slots.move(running[:1], [again(running[0], "a2", INTERRUPTED)])
    done = replace(running[1], state=SlotState.FINISHED, kept=b"x", turns=3, thinking=7)
    slots.move(running[1:], [done])
    assert Slots(store).open() == {"p": [cut, done]}
    assert (cut.attempt, cut.failures, cut.session_id) == (1, 0, "a2")
    (tried,) = slots.move([done], [again(done, "b2", "the verifier failed")])
    assert Slots(store).open()["p"][1] == tried and (tried.failures, tried.kept) == (1, None)
    assert slots.reasons() == {INTERRUPTED: 1, "the verifier failed": 1} and slots.tried_again() == 2


def test_a_transition_that_there_is_not_is_refused(slots: Slots) -> None:
    (planned,) = slots.plan("p", ["a"])
    with pytest.raises(LedgerError, match="slot 0 of prompt 'p' cannot go from planned to scored"):
        slots.move([planned], [replace(planned, state=SlotState.SCORED)])
    slots.move([planned], [replace(planned, state=SlotState.RUNNING)])
    with pytest.raises(LedgerError, match="not planned in attempt 0: read its rows"):
        slots.move([planned], [replace(planned, state=SlotState.RUNNING)])


def test_the_ends_of_slots_follow_their_prompt(slots: Slots, store: Store, ledger: Ledger) -> None:
    first, _ = scored(slots, "prompt of a", ["s1", "s2"])
    assert first.kept == b"names"
    ledger.offer(group("a", turns=()))
    assert slots.open() == {}
    ledger.claim(1, 1, -1)
    ledger.release()
    ledger.claim(1, 1, -1)
    ledger.commit(version(1, "a"))
    ledger.commit(version(1, "a"))
    assert [state for state, _ in states(store, "prompt of a")[-4:]] == ["grouped"] * 2 + ["trained"] * 2
    assert slots.efforts() == {"": KindEffort(sessions=2, turns=2.0, thinking=5.0)}


def test_what_is_kept_of_a_session_is_removed_once_it_is_verified(slots: Slots, store: Store) -> None:
    scored(slots, "p", ["s1"])
    with store.database.read() as connection:
        kept = list(connection.scalars(select(schema.slots.c.kept).order_by(schema.slots.c.order)))
    assert kept == [None, None, None, b"names"]


def test_a_dropped_prompt_drops_its_slots_with_the_reason(slots: Slots, store: Store, ledger: Ledger) -> None:
    slots.plan("p", ["a"])
    ledger.drop("p", "every session was void")
    assert states(store, "p")[-1] == ("dropped", "every session was void")


def test_stale_slots_that_the_weights_contain_become_trained(
    slots: Slots, store: Store, ledger: Ledger
) -> None:
    scored(slots, "prompt of a", ["s1"])
    ledger.offer(group("a", turns=()))
    assert ledger.close_out() == 1
    assert states(store, "prompt of a")[-1] == ("dropped", "stale")
    ledger.commit(version(1, "a"))
    assert states(store, "prompt of a")[-1] == ("trained", None)


def test_a_restart_leaves_slots_to_the_reconciler(slots: Slots, store: Store, ledger: Ledger) -> None:
    slots.plan("p", ["a", "b"])
    ledger.reserve("without slots")
    for id in ("a", "b-1", "other"):
        store.record([turn(0, id)], sessions=[session(id, source=Source.PRACTICE)])
    assert ledger.void_interrupted() == 1
    assert slots.phases()[Phase.RESERVED] == slots.phases()[Phase.DROPPED] == 1


def test_practice_that_is_over_leaves_no_turn_without_a_state(
    slots: Slots, store: Store, ledger: Ledger
) -> None:
    slots.plan("p", ["ended", "cut", "failed"])
    for id, ending in (("ended", Ending.FINISHED), ("cut", None), ("failed", Ending.INFRASTRUCTURE)):
        store.record([turn(0, id)], sessions=[session(id, source=Source.PRACTICE, ending=ending)])
    ledger.close_out()
    states_of = ledger.states()
    assert (states_of[State.STALE], states_of[State.VOID], ledger.unaccounted()) == (1, 2, 0)


def test_a_purge_removes_what_is_kept(slots: Slots, store: Store) -> None:
    planned = slots.plan("p", ["a", "b"])
    running = slots.move(planned, [replace(each, state=SlotState.RUNNING) for each in planned])
    slots.move(running, [replace(each, state=SlotState.FINISHED, kept=b"secret") for each in running])
    store.record([turn(0, "a-1")], sessions=[session("a-1", source=Source.PRACTICE)])
    purge(store, session="a-1", by="root")
    first, second = slots.open()["p"]
    assert (first.kept, second.kept) == (None, b"secret")


def test_the_root_tells_weights_phases_versions_and_rewards_apart(slots: Slots, store: Store) -> None:
    ledger = Ledger(store)
    roots = [state_root(store, "w"), state_root(store, "other")]
    slots.plan("prompt of a", ["s1"])
    roots.append(state_root(store, "w"))
    ledger.offer(group("a", turns=()))
    roots.append(state_root(store, "w"))
    ledger.commit(version(1, "a"))
    roots.append(state_root(store, "w"))
    with store.database.write() as connection:
        connection.execute(update(schema.groups).values(rewards=b"\x01" * 8))
    roots.append(state_root(store, "w"))
    assert len(set(roots)) == len(roots)
    scored(slots, "live only", [])  # a prompt without places changes the root, sessions and times do not
    store.record([turn(0, "s9")], sessions=[session("s9", source=Source.PRACTICE)])
    root = state_root(store, "w")
    ledger.account_sessions(["s9"], State.VOID)
    assert state_root(store, "w") == root
