"""Leases of samplers: what a silent one held is taken over, and it cannot go on with it when it wakes."""

from dataclasses import replace

import pytest
from tests.databases import BOTH, ON_A_FILE
from tests.store import builders

from ostinato.store import Ledger, Phase, Store
from ostinato.store.ledger.leases import LeaseLostError, Leases, end_silent
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.types import Group

LONG, OVER = 1000.0, -1.0
APART_S = [-600.0, 600.0]
WRONG_CLOCK = """
import sys, time
right = time.time
time.time = lambda: right() + float(sys.argv[2])
from ostinato.store import Store
from ostinato.store.ledger.leases import Leases, end_silent
from ostinato.store.ledger.slots import Slots
store = Store.open(sys.argv[1])
leases = Leases(store, sys.argv[3], seconds=float(sys.argv[4]))
leases.enter()
print(bool(Slots(store, leases.owner).plan(sys.argv[5], ["a" + sys.argv[5], "b" + sys.argv[5]])))
leases.renew()
print(leases.take_over(), end_silent(store))
"""
ON_A_SERVER = pytest.mark.parametrize("backend", [BOTH[1]], indirect=True)


def group_of(prompt: str) -> Group:
    return replace(builders.group("g"), prompt=prompt)


def entered(store: Store, name: str, seconds: float = LONG) -> Leases:
    leases = Leases(store, name, seconds=seconds)
    leases.enter()
    return leases


def test_a_living_sampler_keeps_what_it_planned(store: Store) -> None:
    one, other = entered(store, "sampler-0"), entered(store, "sampler-1")
    assert Slots(store, one.owner).plan("p", ["a", "b"])
    assert one.held() == {"p"} and other.take_over() == []
    assert Slots(store, other.owner).plan("p", ["c", "d"]) == []


def test_what_a_silent_sampler_held_is_taken_over_and_it_cannot_go_on(store: Store) -> None:
    one, other = entered(store, "sampler-0", OVER), entered(store, "sampler-1")
    slots = Slots(store, one.owner)
    planned = slots.plan("p", ["a", "b"])
    assert other.take_over() == ["p"] and other.held() == {"p"} and one.held() == set()
    running = [replace(slot, state=SlotState.RUNNING) for slot in planned]
    with pytest.raises(LeaseLostError, match=f"'p' is held by {other.owner}, not {one.owner}"):
        slots.move(planned, running)
    with pytest.raises(LeaseLostError):
        Ledger(store, one.owner).drop("p", "no reason")
    with pytest.raises(LeaseLostError):
        Ledger(store, one.owner).offer(group_of("p"))
    assert Ledger(store).unended() == 1
    assert Slots(store, other.owner).move(planned, running) == running


def test_a_successor_ends_the_lease_of_its_predecessor_alone(store: Store) -> None:
    first, other = entered(store, "sampler-1"), entered(store, "sampler-10")
    Slots(store, first.owner).plan("p", ["a"])
    Slots(store, other.owner).plan("q", ["b"])
    second = entered(store, "sampler-1")
    assert second.take_over() == ["p"] and other.held() == {"q"}
    with pytest.raises(LeaseLostError, match="another sampler-1 works"):
        first.renew()
    other.renew()


def test_a_lease_that_is_renewed_in_time_is_not_over(store: Store) -> None:
    silent = entered(store, "sampler-0", OVER)
    assert end_silent(store) == ["sampler-0"] and end_silent(store) == []
    with pytest.raises(LeaseLostError):
        silent.renew()
    entered(store, "sampler-0").renew()
    assert end_silent(store) == []


def test_one_that_leaves_gives_back_what_it_holds(store: Store) -> None:
    one, other = entered(store, "sampler-0"), entered(store, "sampler-1")
    Slots(store, one.owner).plan("p", ["a"])
    one.leave()
    assert other.take_over() == ["p"]


def test_a_group_and_a_dropped_prompt_are_held_by_nobody(store: Store) -> None:
    one = entered(store, "sampler-0")
    slots, ledger = Slots(store, one.owner), Ledger(store, one.owner)
    slots.plan("p", ["a"])
    slots.plan("q", ["b"])
    ledger.drop("q", "every session was void")
    assert ledger.offer(group_of("p")) and ledger.offer(group_of("p"))
    assert one.held() == set() and one.take_over() == []
    assert slots.phases()[Phase.OFFERED] == 1


def with_wrong_clock(place: str, apart_s: float, name: str, seconds: float, prompt: str) -> list[str]:
    """Let a sampler on a host with a wrong clock plan a prompt; return what it took over and found silent."""
    with builders.start_python(WRONG_CLOCK, place, apart_s, name, seconds, prompt) as process:
        said, _ = process.communicate()
    assert process.returncode == 0
    planned, *rest = said.splitlines()
    assert planned == "True"
    return rest


@ON_A_SERVER
@pytest.mark.parametrize("apart_s", APART_S)
def test_clocks_of_hosts_that_are_ten_minutes_apart_end_no_lease(
    store: Store, place: str, apart_s: float
) -> None:
    """Leases are by the clock of the database alone, whoever takes one and whoever looks."""
    right = entered(store, "sampler-0", 60.0)
    Slots(store, right.owner).plan("p", ["a", "b"])
    assert with_wrong_clock(place, apart_s, "sampler-1", 60.0, "q") == ["[] []"]
    assert end_silent(store) == [] and right.take_over() == [] and right.held() == {"p"}
    right.renew()


@ON_A_SERVER
@pytest.mark.parametrize("apart_s", APART_S)
def test_a_wrong_clock_does_not_keep_a_lease_that_is_over(store: Store, place: str, apart_s: float) -> None:
    silent = entered(store, "sampler-0", OVER)
    Slots(store, silent.owner).plan("p", ["a", "b"])
    assert with_wrong_clock(place, apart_s, "sampler-1", OVER, "q") == [
        "['p', 'q'] ['sampler-0', 'sampler-1']"
    ]


@ON_A_FILE
@pytest.mark.parametrize("apart_s", APART_S)
def test_a_clock_that_is_set_while_samplers_work_on_a_file_does_nothing_twice(
    store: Store, place: str, apart_s: float
) -> None:
    """A file is on one machine, which has one clock. Set forward, it ends leases of samplers that live."""
    living = entered(store, "sampler-0", 60.0)
    slots = Slots(store, living.owner)
    planned = slots.plan("p", ["a", "b"])
    taken, silent = ("['p']", "['sampler-0']") if apart_s > 0 else ("[]", "[]")
    assert with_wrong_clock(place, apart_s, "sampler-1", 60.0, "q") == [f"{taken} {silent}"]
    running = [replace(slot, state=SlotState.RUNNING) for slot in planned]
    if apart_s < 0:
        assert slots.move(planned, running) == running
        return
    with pytest.raises(LeaseLostError):
        slots.move(planned, running)
    with pytest.raises(LeaseLostError, match="the lease of sampler-0/"):
        living.renew()
