"""Whatever happens in whatever order: the books are right, and everybody is served in the end."""

import random
from collections import Counter
from itertools import pairwise

from fuzz.pod_streams import among_small
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.fleet.scheduler.aside import AFTER_S
from ostinato.fleet.scheduler.breaker import LONGEST_S, THRESHOLD, Breaker
from ostinato.fleet.scheduler.node import BUSY, Overcommit
from ostinato.fleet.scheduler.pod import NOTHING, Placed, Pressure, Reason, Request, Size
from ostinato.fleet.scheduler.pool import Pool
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.simulate import FleetPlan, PodPlan, World
from ostinato.fleet.scheduler.truth import Use

NODE = Size(4000, 4096, 4096)
SIZES = st.builds(Size, st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3000))
SHARES = st.floats(0, 1)
STREAM_S = 300.0
COMES_BACK_S = 10.0
"""How long a client may be away after its node has been set aside, and the node's report after that."""
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
    """Plays events and keeps its own account of them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scheduler = Scheduler(
            clock=lambda: self.now,
            chance=random.Random(0),
            overcommit=Overcommit(cpu=2.0),
            pools={"t": Pool(size=Size(500, 500, 500), ready=3)},
        )
        self.over: set[str] = set()
        self.busy: dict[str, bool] = {}

    def place(self, pod: int, size: Size, template: str, parent: int | None) -> None:
        wish = Request(
            id=f"p{pod}",
            template=template,
            size=size,
            deadline_s=20.0,
            parent=None if parent is None else f"p{parent}",
        )
        known, aside = self.places().get(wish.id), dict(self.scheduler.cluster.aside)
        answer = self.scheduler.place(wish)
        if not isinstance(answer, Placed):
            assert answer.retry_after_s is None or 0 < answer.retry_after_s <= LONGEST_S
            assert known is None
            return
        assert wish.id not in self.over
        assert answer.node == (known or answer.node)
        warm = answer.source.startswith("warm-")
        assert known or warm or not self.busy.get(answer.node)
        assert known or warm or aside.get(answer.node, wish.id) == wish.id

    def started(self, pod: int) -> None:
        self.scheduler.started(f"p{pod}", 0.2)

    def failed(self, pod: int) -> None:
        self.scheduler.failed(f"p{pod}")

    def ended(self, pod: int) -> None:
        self.scheduler.ended(f"p{pod}")
        self.over.add(f"p{pod}")

    def join(self, node: int) -> None:
        if f"n{node}" not in self.scheduler.cluster.nodes:
            self.busy[f"n{node}"] = False
        self.scheduler.join(f"n{node}", NODE)

    def lose(self, node: int) -> None:
        here = set(self.at(f"n{node}"))
        told = {lost.pod for lost in self.scheduler.lose(f"n{node}", "gone")}
        assert told == here
        self.over |= here

    def silence(self, node: int) -> None:
        """All others report, this one does not."""
        self.now += 11
        for each in self.scheduler.cluster:
            if each.name != f"n{node}":
                each.measure(Pressure(cpu=0, memory=0, disk=0))
                self.busy[each.name] = False
        self._told()
        assert f"n{node}" not in self.scheduler.cluster.nodes

    def measure(self, node: int, pressure: Pressure) -> None:
        if f"n{node}" in self.scheduler.cluster.nodes:
            self.scheduler.measure(f"n{node}", pressure)
            self.busy[f"n{node}"] = pressure.memory >= BUSY.memory or pressure.disk >= BUSY.disk

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._told()

    def _told(self) -> None:
        for action in self.scheduler.tick():
            if type(action).__name__ != "Start":
                self.over.add(action.pod)

    def places(self) -> dict[str, str]:
        return {pod: node.name for node in self.scheduler.cluster for pod in node.pods}

    def at(self, name: str) -> list[str]:
        node = self.scheduler.cluster.nodes.get(name)
        return list(node.pods) if node is not None else []

    def check(self) -> None:
        every = Counter(pod for node in self.scheduler.cluster for pod in node.pods)
        assert not [pod for pod, times in every.items() if times > 1], "two reservations of one pod"
        assert not self.over & every.keys(), "a reservation of a pod that ended"
        free = NOTHING
        for node in self.scheduler.cluster:
            total = NOTHING
            for pod in node.pods.values():
                total += pod.request.size
            assert node.reserved == total and total.within(node.room)
            free += node.room - total
        assert free == self.scheduler.cluster.free
        if self.scheduler.cluster.nodes:
            ready = {pod for pod in every if pod.startswith("warm-")}
            assert len(ready) <= 3


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_the_books_are_right_whatever_happens(events: list[tuple[object, ...]]) -> None:
    books = Books()
    books.join(0)
    for name, *arguments in events:
        getattr(books, str(name))(*arguments)
        books.check()


@given(st.lists(SIZES, min_size=1, max_size=4), SIZES)
def test_what_fits_nowhere_is_refused_at_once(rooms: list[Size], size: Size) -> None:
    scheduler = Scheduler(clock=lambda: 0.0, chance=random.Random(0), overcommit=Overcommit(cpu=1.0))
    for number, room in enumerate(rooms):
        scheduler.join(f"n{number}", room)
    answer = scheduler.place(Request(id="p", template="t", size=size, deadline_s=1.0))
    nowhere = not any(size.within(room) for room in rooms)
    assert (getattr(answer, "reason", None) is Reason.TOO_LARGE) == nowhere
    assert not nowhere or getattr(answer, "retry_after_s", 0.0) is None


PLANS = st.builds(
    PodPlan,
    at=st.floats(0, 20),
    template=st.sampled_from(["t", "u", "broken"]),
    use=st.builds(Use, size=SIZES, duty=st.floats(0, 0.9), fill=st.floats(0.1, 1.0)),
    life_s=st.floats(1, 60),
    fork_of=st.none() | st.integers(0, 5),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(PLANS, min_size=6, max_size=40), st.integers(1, 4), st.integers(0, 99), st.booleans())
def test_everybody_is_served_or_told_why_not(
    pods: list[PodPlan], nodes: int, seed: int, deaths: bool
) -> None:
    plan = FleetPlan(
        nodes=nodes,
        capacity=NODE,
        pods=tuple(_broken_fail(pod) for pod in pods),
        pools={"t": Pool(size=Size(3000, 3000, 3000), ready=2), "broken": Pool(size=Size(1, 1, 1), ready=1)},
        overcommit=Overcommit(cpu=1.0),
        deaths=((10.0, 0),) if deaths else (),
        seed=seed,
        most_s=7200.0,
    )
    tally = World(plan).run()
    assert tally.finished + tally.hopeless == len(pods)
    assert tally.hopeless == sum(pod.template == "broken" for pod in pods)


@settings(max_examples=12, deadline=None)
@given(
    nodes=st.integers(1, 12),
    load=st.floats(0.6, 1.0),
    life_s=st.floats(2, 8),
    large=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_large_pod_is_placed_while_small_ones_keep_coming(
    nodes: int, load: float, life_s: float, large: int, seed: int
) -> None:
    """Not later than small ones are, but for what runs on its node to end: once for each that is as large."""
    large_at = [20.0 + number for number in range(large)]
    plan = among_small(nodes=nodes, load=load, life_s=life_s, large_at=large_at, seed=seed, most_s=STREAM_S)
    small = len(plan.pods) - large
    waited = World(plan).run().waited_s
    slowest = max(wait for index, wait in waited.items() if index < small)
    for index in range(small, len(plan.pods)):
        assert waited[index] < slowest + large * (AFTER_S + 1.5 * life_s + COMES_BACK_S)


def _broken_fail(pod: PodPlan) -> PodPlan:
    return PodPlan(
        at=pod.at,
        template=pod.template,
        use=pod.use,
        life_s=pod.life_s,
        fails=pod.template == "broken",
        fork_of=pod.fork_of,
    )


@given(st.lists(st.sampled_from(["fails", "succeeds", "wait", "tries"]), max_size=80), st.integers(0, 9))
def test_the_breaker_opens_and_closes(events: list[str], seed: int) -> None:
    now = 0.0
    breaker = Breaker(lambda: now, random.Random(seed))
    row = 0
    for event in events:
        if event == "wait":
            now += breaker.wait_s()
            continue
        getattr(breaker, event)()
        row = {"fails": row + 1, "succeeds": 0}.get(event, row)
        assert breaker.closed == (row < THRESHOLD)
        assert 0 <= breaker.wait_s() <= LONGEST_S
    breaker.succeeds()
    assert breaker.closed and breaker.wait_s() == 0


def test_the_breaker_waits_longer_each_time_up_to_a_bound() -> None:
    now = 0.0
    breaker = Breaker(lambda: now, random.Random(0))
    waits = []
    for _ in range(30):
        breaker.tries()
        breaker.fails()
        if not breaker.closed:
            waits.append(breaker.wait_s())
            now += breaker.wait_s()
    assert waits[0] <= 1 and 150 <= waits[-1] <= LONGEST_S
    assert all(later > 0.9 * sooner for sooner, later in pairwise(waits[:6]))
