"""The clock, and what is shared on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato_lab.planner.events import (
    Host,
    Milestone,
    Pause,
    Places,
    Process,
    Spend,
    Station,
    Take,
    World,
    every,
)

AMOUNTS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8)


def ends(world: World, processes: list[Process]) -> list[float]:
    """Run processes and return when each of them ended."""
    times = [0.0] * len(processes)

    def noted(i: int, process: Process) -> Process:
        yield from process
        times[i] = world.now

    every(world, [noted(i, process) for i, process in enumerate(processes)])
    world.run()
    return times


def does(*wanted: Pause | Spend | Take | Milestone) -> Process:
    yield from wanted


def test_two_pieces_share_a_processor_evenly() -> None:
    world = World()
    cpu = Station(world, "cpu", 1.0)
    # Both at a half until 2; then the longer one alone, with 2 of its 3 seconds left.
    assert ends(world, [does(Spend(cpu, 1.0)), does(Spend(cpu, 3.0))]) == pytest.approx([2.0, 4.0])
    assert cpu.done == pytest.approx(4.0)


def test_a_piece_is_never_faster_than_one_thread() -> None:
    world = World()
    cpu = Station(world, "cpu", 8.0)
    assert ends(world, [does(Spend(cpu, 3.0)), does(Pause(1.0), Spend(cpu, 2.0))]) == pytest.approx(
        [3.0, 3.0]
    )


def test_a_host_gives_the_small_demand_first() -> None:
    world = World()
    host = Host(2.0)
    one, many = Station(world, "engine", 1.0, host), Station(world, "sandboxes", 2.0, host)
    # Three threads want two cores: the engine's one thread has a core, the two others a half each.
    assert ends(
        world, [does(Spend(one, 1.0)), does(Spend(many, 1.0)), does(Spend(many, 1.0))]
    ) == pytest.approx([1.0, 1.5, 1.5])


def test_members_count_as_so_many_pieces() -> None:
    world = World()
    link = Station(world, "link", 1.0)
    assert ends(world, [does(Spend(link, 2.0, members=3.0)), does(Spend(link, 1.0))]) == pytest.approx(
        [7.0, 4.0]
    )
    assert link.done == pytest.approx(7.0)


def test_places_are_given_in_order_and_counted() -> None:
    world = World()
    places = Places(world, 1)

    def one(seconds: float) -> Process:
        yield Take(places)
        yield Pause(seconds)
        places.give()

    assert ends(world, [one(2.0), one(1.0)]) == pytest.approx([2.0, 3.0])
    assert (places.used_s, places.most) == (pytest.approx(3.0), 1)


def test_an_event_lets_all_go_on_and_those_who_come_later() -> None:
    world, event = World(), Milestone()

    def happens() -> Process:
        yield Pause(2.0)
        world.happen(event)

    assert ends(world, [does(event), does(Pause(5.0), event), happens()]) == pytest.approx([2.0, 5.0, 2.0])


def test_a_run_stops_at_its_time() -> None:
    world = World()
    cpu = Station(world, "cpu", 1.0)
    world.start(does(Spend(cpu, 10.0)))
    world.run(until=4.0)
    assert (world.now, cpu.done) == (4.0, pytest.approx(4.0))


@given(AMOUNTS, st.floats(0.5, 4.0))
def test_work_is_conserved_and_no_time_is_lost(amounts: list[float], capacity: float) -> None:
    world = World()
    cpu = Station(world, "cpu", capacity)
    last = max(ends(world, [does(Spend(cpu, amount)) for amount in amounts]))
    assert cpu.done == pytest.approx(sum(amounts), rel=1e-6)
    assert last >= max(sum(amounts) / capacity, *amounts) * (1 - 1e-9)


@given(AMOUNTS, st.floats(0.5, 4.0), st.floats(1.0, 3.0))
def test_more_capacity_is_never_slower(amounts: list[float], capacity: float, factor: float) -> None:
    def last(capacity: float) -> float:
        world = World()
        cpu = Station(world, "cpu", capacity)
        return max(ends(world, [does(Spend(cpu, amount)) for amount in amounts]))

    assert last(capacity * factor) <= last(capacity) * (1 + 1e-9)
