"""The scheduler in any order of events: the reservations stay consistent, and every client is served in the
end.

Covers fleet/scheduler/circuit_breaker.py.
"""

import random
from collections import Counter
from itertools import pairwise

from fuzz.fleet_simulator import FleetPlan, FleetSimulator, SandboxPlan, large_among_small
from fuzz.fleet_use import SandboxUse
from hypothesis import given
from hypothesis import strategies as st

from ostinato.fleet.scheduler.circuit_breaker import LONGEST_S, THRESHOLD, CircuitBreaker
from ostinato.fleet.scheduler.dedicated_nodes import AFTER_S
from ostinato.fleet.scheduler.node import BUSY, Overcommit
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.types import NOTHING, Placement, PlacementRequest, Pressure, RefusalReason, Size
from ostinato.fleet.scheduler.warm_pool import WarmPool

NODE = Size(4000, 4096, 4096)
SIZES = st.builds(Size, st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3000))
SHARES = st.floats(0, 1)
STREAM_S = 300.0
COMES_BACK_S = 10.0
"""How long it may take until the client asks again after a node was dedicated, and until the node reports."""
EVENTS = st.one_of(
    st.tuples(
        st.just("place"),
        st.integers(0, 30),
        SIZES,
        st.sampled_from("tuv"),
        st.none() | st.integers(0, 30),
    ),
    st.tuples(st.sampled_from(["started", "failed", "ended"]), st.integers(0, 30)),
    st.tuples(st.sampled_from(["join", "lose", "silence"]), st.integers(0, 3)),
    st.tuples(
        st.just("measure"), st.integers(0, 3), st.builds(Pressure, cpu=SHARES, memory=SHARES, disk=SHARES)
    ),
    st.tuples(st.just("tick"), st.floats(0.01, 30)),
)


class Books:
    """A player of events that keeps its own account of the reservations."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scheduler = Scheduler(
            clock=lambda: self.now,
            chance=random.Random(0),
            overcommit=Overcommit(cpu=2.0),
            pools={"t": WarmPool(size=Size(500, 500, 500), ready=3)},
        )
        self.over: set[str] = set()
        self.busy: dict[str, bool] = {}

    def place(self, sandbox: int, size: Size, template: str, parent: int | None) -> None:
        request = PlacementRequest(
            id=f"p{sandbox}",
            template=template,
            size=size,
            deadline_s=20.0,
            parent=None if parent is None else f"p{parent}",
        )
        known, aside = self.places().get(request.id), dict(self.scheduler.cluster.dedicated)
        answer = self.scheduler.place(request)
        if not isinstance(answer, Placement):
            assert answer.retry_after_s is None or 0 < answer.retry_after_s <= LONGEST_S
            assert known is None
            return
        assert request.id not in self.over
        assert answer.node == (known or answer.node)
        warm = answer.source.startswith("warm-")
        assert known or warm or not self.busy.get(answer.node)
        assert known or warm or aside.get(answer.node, request.id) == request.id

    def started(self, sandbox: int) -> None:
        self.scheduler.started(f"p{sandbox}", 0.2)

    def failed(self, sandbox: int) -> None:
        self.scheduler.failed(f"p{sandbox}")

    def ended(self, sandbox: int) -> None:
        self.scheduler.ended(f"p{sandbox}")
        self.over.add(f"p{sandbox}")

    def join(self, node: int) -> None:
        if f"n{node}" not in self.scheduler.cluster.nodes:
            self.busy[f"n{node}"] = False
        self.scheduler.join(f"n{node}", NODE)

    def lose(self, node: int) -> None:
        here = set(self.at(f"n{node}"))
        lost_ids = {lost.sandbox for lost in self.scheduler.lose(f"n{node}", "gone")}
        assert lost_ids == here
        self.over |= here

    def silence(self, node: int) -> None:
        """Let all nodes but this one report."""
        self.now += 11
        for each in self.scheduler.cluster:
            if each.name != f"n{node}":
                each.measure(Pressure(cpu=0, memory=0, disk=0))
                self.busy[each.name] = False
        self._tick()
        assert f"n{node}" not in self.scheduler.cluster.nodes

    def measure(self, node: int, pressure: Pressure) -> None:
        if f"n{node}" in self.scheduler.cluster.nodes:
            self.scheduler.measure(f"n{node}", pressure)
            self.busy[f"n{node}"] = pressure.memory >= BUSY.memory or pressure.disk >= BUSY.disk

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._tick()

    def _tick(self) -> None:
        for action in self.scheduler.tick():
            if type(action).__name__ != "StartWarm":
                self.over.add(action.sandbox)

    def places(self) -> dict[str, str]:
        return {sandbox: node.name for node in self.scheduler.cluster for sandbox in node.reservations}

    def at(self, name: str) -> list[str]:
        node = self.scheduler.cluster.nodes.get(name)
        return list(node.reservations) if node is not None else []

    def check(self) -> None:
        every = Counter(sandbox for node in self.scheduler.cluster for sandbox in node.reservations)
        assert not [sandbox for sandbox, times in every.items() if times > 1], (
            "two reservations of one sandbox"
        )
        assert not self.over & every.keys(), "a reservation of a sandbox that ended"
        free = NOTHING
        for node in self.scheduler.cluster:
            total = NOTHING
            for sandbox in node.reservations.values():
                total += sandbox.request.size
            assert node.reserved == total and total.within(node.room)
            free += node.room - total
        assert free == self.scheduler.cluster.free
        if self.scheduler.cluster.nodes:
            ready = {sandbox for sandbox in every if sandbox.startswith("warm-")}
            assert len(ready) <= 3


@given(st.lists(EVENTS, max_size=60))
def test_the_books_are_right_in_any_order_of_events(events: list[tuple[object, ...]]) -> None:
    books = Books()
    books.join(0)
    for name, *arguments in events:
        getattr(books, str(name))(*arguments)
        books.check()


@given(st.lists(SIZES, min_size=1, max_size=4), SIZES)
def test_a_sandbox_that_fits_on_no_node_is_refused_at_once(rooms: list[Size], size: Size) -> None:
    scheduler = Scheduler(clock=lambda: 0.0, chance=random.Random(0), overcommit=Overcommit(cpu=1.0))
    for number, room in enumerate(rooms):
        scheduler.join(f"n{number}", room)
    answer = scheduler.place(PlacementRequest(id="p", template="t", size=size, deadline_s=1.0))
    nowhere = not any(size.within(room) for room in rooms)
    assert (getattr(answer, "reason", None) is RefusalReason.TOO_LARGE) == nowhere
    assert not nowhere or getattr(answer, "retry_after_s", 0.0) is None


PLANS = st.builds(
    SandboxPlan,
    at=st.floats(0, 20),
    template=st.sampled_from(["t", "u", "broken"]),
    use=st.builds(SandboxUse, size=SIZES, duty=st.floats(0, 0.9), fill=st.floats(0.1, 1.0)),
    life_s=st.floats(1, 60),
    fork_of=st.none() | st.integers(0, 5),
)


@given(st.lists(PLANS, min_size=6, max_size=40), st.integers(1, 4), st.integers(0, 99), st.booleans())
def test_every_client_is_served_or_told_why_not(
    sandboxes: list[SandboxPlan], nodes: int, seed: int, deaths: bool
) -> None:
    plan = FleetPlan(
        nodes=nodes,
        capacity=NODE,
        sandboxes=tuple(_broken_fail(sandbox) for sandbox in sandboxes),
        pools={
            "t": WarmPool(size=Size(3000, 3000, 3000), ready=2),
            "broken": WarmPool(size=Size(1, 1, 1), ready=1),
        },
        overcommit=Overcommit(cpu=1.0),
        deaths=((10.0, 0),) if deaths else (),
        seed=seed,
        most_s=7200.0,
    )
    tally = FleetSimulator(plan).run()
    assert tally.finished + tally.hopeless == len(sandboxes)
    assert tally.hopeless == sum(sandbox.template == "broken" for sandbox in sandboxes)


@given(
    nodes=st.integers(1, 12),
    load=st.floats(0.6, 1.0),
    life_s=st.floats(2, 8),
    large=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_large_sandbox_is_placed_while_small_ones_keep_coming(
    nodes: int, load: float, life_s: float, large: int, seed: int
) -> None:
    """Each large one waits no longer than small ones do and until a node is empty."""
    large_at = [20.0 + number for number in range(large)]
    plan = large_among_small(
        nodes=nodes, load=load, life_s=life_s, large_at=large_at, seed=seed, most_s=STREAM_S
    )
    small = len(plan.sandboxes) - large
    waited = FleetSimulator(plan).run().waited_s
    slowest = max(wait for index, wait in waited.items() if index < small)
    for index in range(small, len(plan.sandboxes)):
        assert waited[index] < slowest + large * (AFTER_S + 1.5 * life_s + COMES_BACK_S)


def _broken_fail(sandbox: SandboxPlan) -> SandboxPlan:
    return SandboxPlan(
        at=sandbox.at,
        template=sandbox.template,
        use=sandbox.use,
        life_s=sandbox.life_s,
        fails=sandbox.template == "broken",
        fork_of=sandbox.fork_of,
    )


@given(st.lists(st.sampled_from(["failure", "success", "wait", "try"]), max_size=80), st.integers(0, 9))
def test_the_breaker_opens_and_closes(events: list[str], seed: int) -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, random.Random(seed))
    row = 0
    for event in events:
        if event == "wait":
            now += breaker.wait_s()
            continue
        getattr(breaker, f"record_{event}")()
        row = {"failure": row + 1, "success": 0}.get(event, row)
        assert breaker.closed == (row < THRESHOLD)
        assert 0 <= breaker.wait_s() <= LONGEST_S
    breaker.record_success()
    assert breaker.closed and breaker.wait_s() == 0


def test_the_breaker_waits_longer_each_time_up_to_a_bound() -> None:
    now = 0.0
    breaker = CircuitBreaker(lambda: now, random.Random(0))
    waits = []
    for _ in range(30):
        breaker.record_try()
        breaker.record_failure()
        if not breaker.closed:
            waits.append(breaker.wait_s())
            now += breaker.wait_s()
    assert waits[0] <= 1 and 150 <= waits[-1] <= LONGEST_S
    assert all(later > 0.9 * sooner for sooner, later in pairwise(waits[:6]))
