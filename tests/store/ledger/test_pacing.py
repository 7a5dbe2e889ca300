"""Training waits for groups in flight that it would make too old, and never for ever."""

import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.builders import group, session, turn
from tests.store.builders import version as version_of

from ostinato.rollout.policies import Counts, NotStale
from ostinato.store import Ledger, Store
from ostinato.store.ledger.pacing import in_time, versions_in_flight
from ostinato.store.ledger.slot_rows import Slot, SlotState
from ostinato.store.ledger.slots import Slots, again


@given(st.integers(0, 4), st.integers(1, 5), st.integers(0, 2**32))
def test_whatever_the_order_in_which_groups_end_none_is_too_old_and_a_step_always_comes(
    staleness: int, batch: int, seed: int
) -> None:
    chance, start = Random(seed), NotStale(staleness, batch)
    newest, in_flight, offered, claimed = 0, list[int](), list[int](), list[int]()
    steps = 0
    while steps < 12:
        now = Counts(open=len(in_flight), waiting=len(offered), claimed=len(claimed), busy=0, newest=newest)
        may = [
            *(["start"] if start.more(now) > 0 else []),
            *(["end"] if in_flight else []),
            *(["publish"] if claimed else []),
        ]
        ready = len(offered) >= batch and not claimed
        if ready and in_time(offered, in_flight, newest=newest, staleness=staleness, batch=batch):
            may.append("claim")
        assert may, "everything stands still"
        match chance.choice(may):
            case "start":
                in_flight.append(newest)
            case "end":
                offered.append(in_flight.pop(chance.randrange(len(in_flight))))
            case "claim":
                offered.sort()
                claimed, offered = offered[:batch], offered[batch:]
            case "publish":
                claimed, newest, steps = [], newest + 1, steps + 1
        assert all(each >= newest - staleness for each in (*in_flight, *offered)), "one came too late"


def test_what_is_too_old_already_is_not_waited_for() -> None:
    assert in_time([5, 5], [1], newest=5, staleness=2, batch=2)
    assert not in_time([5, 5], [3], newest=5, staleness=2, batch=2)


@pytest.fixture
def slots(store: Store) -> Slots:
    return Slots(store)


def commit(ledger: Ledger, number: int) -> None:
    ledger.commit(replace(version_of(number), created_at=time.time()))


def begin(slots: Slots, prompt: str, sessions: Sequence[str]) -> list[Slot]:
    planned = slots.plan(prompt, sessions)
    return slots.move(planned, [replace(each, state=SlotState.RUNNING) for each in planned])


def in_flight(store: Store) -> list[int]:
    with store.database.read() as connection:
        return sorted(versions_in_flight(connection))


def sampled(store: Store, id: str, *versions: int) -> None:
    for index, number in enumerate(versions):
        told = turn(index, id)
        completion = replace(told.completion, versions=(number,) * len(told.completion.ids))
        store.record([replace(told, completion=completion)], sessions=[session(id)])


def test_the_age_of_a_group_in_flight_is_that_of_its_oldest_token_that_may_count(
    slots: Slots, store: Store, ledger: Ledger
) -> None:
    commit(ledger, 0)
    slots.plan("planned", ["x"])
    assert in_flight(store) == []
    first = begin(slots, "p", ["a", "b"])
    commit(ledger, 1)
    begin(slots, "q", ["c"])
    assert in_flight(store) == [0, 1], "before a turn is there, the version at the start counts"
    sampled(store, "c", 0, 1)
    assert in_flight(store) == [0, 0], "the engine had not swapped yet"
    commit(ledger, 2)
    slots.move(first, [again(each, f"{each.session_id}2", "the sandbox failed") for each in first])
    assert in_flight(store) == [0], "what was void is in no group"


def test_a_batch_waits_for_the_group_that_it_would_leave_behind(
    slots: Slots, store: Store, ledger: Ledger
) -> None:
    commit(ledger, 0)
    slow = begin(slots, "prompt of slow", ["s"])
    commit(ledger, 1)
    for name in ("a", "b"):
        sampled(store, name, 1)
        done = begin(slots, f"prompt of {name}", [name])
        for state in (SlotState.FINISHED, SlotState.SCORED):
            done = slots.move(done, [replace(each, state=state) for each in done])
        ledger.offer(group(name, session_id=name, version=1))
    assert not ledger.may_train(1, 1, 2) and ledger.may_train(1, 2, 2) and not ledger.may_train(1, 2, 3)
    sampled(store, "s", 0)
    for state in (SlotState.FINISHED, SlotState.SCORED):
        slow = slots.move(slow, [replace(each, state=state) for each in slow])
    ledger.offer(group("slow", session_id="s", version=0))
    assert ledger.may_train(1, 1, 2)
    assert [each.id for each in ledger.claim(2, 2, 0)] == ["slow", "a"], "the oldest tokens go first"
