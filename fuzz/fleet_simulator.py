"""The simulator of a fleet: nodes, sandboxes and clients as events, while the real scheduler decides.

The simulator knows what every sandbox uses at every moment. The scheduler learns only the reports of the
nodes, as often as real nodes would report. Clients ask again when the scheduler tells them to.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fuzz.fleet_use import STEP_S, SandboxUse, SimulatedUse
from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.types import (
    Action,
    Kill,
    Lost,
    Placement,
    PlacementRequest,
    Refusal,
    ReportedSandbox,
    Size,
    StartKind,
    StartWarm,
)
from ostinato.fleet.scheduler.warm_pool import WarmPool

REPORT_S, LIST_S = 2.0, 30.0
"""How often a node reports its pressure, and all sandboxes that run on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """The request and the behaviour of one sandbox, which the scheduler does not know.

    >>> SandboxPlan(at=0.0, template="a", use=SandboxUse(size=Size(500, 512, 64)), life_s=30.0).fails
    False
    """

    at: float
    """The time of the first request."""
    template: str
    use: SandboxUse
    life_s: float
    start_cpu_s: float = 0.2
    fails: bool = False
    fork_of: int | None = None
    """The plan that it is forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A whole simulation; `benchmarks/scheduler.py` has one of 100,000 sandboxes."""

    nodes: int
    capacity: Size
    sandboxes: tuple[SandboxPlan, ...]
    pools: dict[str, WarmPool]
    overcommit: Overcommit
    deaths: tuple[tuple[float, int], ...] = ()
    """Times at which a node is killed; it comes back empty after `back_s`."""
    back_s: float = 60.0
    seed: int = 0
    fetch_cpu_s: float = 0.3
    """Additional CPU seconds of a start that must fetch the template first."""
    most_s: float = 3600.0


def large_among_small(
    *, nodes: int, load: float, life_s: float, large_at: Sequence[float], seed: int, most_s: float
) -> FleetPlan:
    """Return a plan of small sandboxes without end, and after them in the plan some as large as a node.

    `load` is the share of the fleet that the small ones would fill, `large_at` the times of the large ones.
    """
    whole = Size(4000, 4096, 4096)
    chance, at, sandboxes = random.Random(seed), 0.0, []
    small = SandboxUse(size=Size(1000, 1024, 1024))
    while at < most_s:
        at += chance.expovariate(load * 4 * nodes / life_s)
        life = life_s * chance.uniform(0.5, 1.5)
        sandboxes.append(SandboxPlan(at=at, template="t", use=small, life_s=life))
    large = SandboxUse(size=whole)
    sandboxes += [SandboxPlan(at=then, template="t", use=large, life_s=life_s) for then in large_at]
    return FleetPlan(
        nodes=nodes,
        capacity=whole,
        sandboxes=tuple(sandboxes),
        pools={},
        overcommit=Overcommit(cpu=1.0),
        seed=seed,
        most_s=most_s,
    )


@dataclass(slots=True)
class Tally:
    """The counts and measurements of a simulation."""

    placed: int = 0
    warm: int = 0
    forks: int = 0
    forks_at_home: int = 0
    refusals: int = 0
    lost: int = 0
    finished: int = 0
    hopeless: int = 0
    """Pods whose template never starts."""
    returns: list[int] = field(default_factory=list)
    """For each sandbox that was refused and then placed, how often its client asked again."""
    waited_s: dict[int, float] = field(default_factory=dict)
    """Seconds from the first request until the sandbox ran, by the index of its plan."""
    over_pressure: set[int] = field(default_factory=set)
    peak_sizes: list[Size] = field(default_factory=list)
    peak_used: int = 0
    warm_starts: int = 0


class FleetSimulator:
    """One simulation of a plan. `scheduler` may be a subclass that measures or decides otherwise."""

    def __init__(self, plan: FleetPlan, scheduler: type[Scheduler] = Scheduler) -> None:
        self.plan = plan
        self.now = 0.0
        self.tally = Tally()
        self.scheduler = scheduler(
            clock=lambda: self.now,
            chance=random.Random(plan.seed),
            overcommit=plan.overcommit,
            pools=plan.pools,
        )
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._rng = np.random.default_rng(plan.seed)
        self._chance = random.Random(plan.seed + 1)
        self._alive = [True] * plan.nodes
        self._running: list[dict[str, _Live]] = [{} for _ in range(plan.nodes)]
        self._returns: dict[int, int] = {}
        self._open = len(plan.sandboxes)
        self._use = SimulatedUse(plan.nodes, plan.capacity, self._rng)
        self._ids: dict[int, str] = {}

    def run(self) -> Tally:
        """Run until every sandbox has finished, or the plan's time is over."""
        for number in range(self.plan.nodes):
            self.scheduler.join(_name(number), self.plan.capacity)
            self.after(self._chance.random() * REPORT_S, partial(self._report, number))
            self.after(self._chance.random() * LIST_S, partial(self._list, number))
        for index, sandbox in enumerate(self.plan.sandboxes):
            self._schedule(sandbox.at, partial(self._ask, index, 0))
        for at, number in self.plan.deaths:
            self._schedule(at, partial(self._die, number))
        self.after(STEP_S, self._step)
        while self._open and self.now < self.plan.most_s:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.tally

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._schedule(self.now + seconds, event)

    def _schedule(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))

    # --- clients --------------------------------------------------------------------------------------------

    def _ask(self, index: int, attempt: int) -> None:
        """Request a sandbox; `attempt` counts how often it was lost and requested anew."""
        sandbox = self.plan.sandboxes[index]
        name = f"sandbox-{index}-{attempt}"
        request = PlacementRequest(
            id=name,
            template=sandbox.template,
            size=sandbox.use.size,
            deadline_s=sandbox.life_s * 2 + 60,
            parent=self._parent(sandbox),
            labels={"run": str(index % 10)},
        )
        answer = self.scheduler.place(request)
        if isinstance(answer, Refusal):
            self._wait(index, attempt, answer)
        else:
            self._start(index, attempt, answer)

    def _parent(self, sandbox: SandboxPlan) -> str | None:
        """Return the parent if it is alive; a client that lost it starts from the template."""
        name = None if sandbox.fork_of is None else self._ids.get(sandbox.fork_of)
        return name if name is not None and name in self._use.where else None

    def _wait(self, index: int, attempt: int, answer: Refusal) -> None:
        self.tally.refusals += 1
        if answer.retry_after_s is None or (self.plan.sandboxes[index].fails and answer.retry_after_s > 20):
            self.tally.hopeless += 1  # after such a long wait the client gives up
            self._open -= 1
            return
        self._returns[index] = self._returns.get(index, 0) + 1
        late = self._chance.random() * 0.05
        self.after(answer.retry_after_s + late, lambda: self._ask(index, attempt))

    def _start(self, index: int, attempt: int, placed: Placement) -> None:
        sandbox, number = self.plan.sandboxes[index], _number(placed.node)
        if not self._alive[number]:
            self.scheduler.failed(placed.sandbox)
            self.after(0.1, lambda: self._ask(index, attempt))
            return
        if placed.kind is StartKind.WARM:
            self._running[number].pop(placed.source)
            self._use.remove(placed.source)
            self._begin(index, attempt, placed, 0.0)
            return
        held = sandbox.template in self.scheduler.cluster.nodes[placed.node].templates
        cpu_s = sandbox.start_cpu_s * self._chance.lognormvariate(0, 0.3) + (
            0 if held else self.plan.fetch_cpu_s
        )
        self._use.start(placed.sandbox, number)
        self.after(cpu_s, lambda: self._begin(index, attempt, placed, cpu_s))

    def _begin(self, index: int, attempt: int, placed: Placement, cpu_s: float) -> None:
        sandbox, number = self.plan.sandboxes[index], _number(placed.node)
        if not self._use.end_start(placed.sandbox, number) and placed.kind is not StartKind.WARM:
            return  # its node died meanwhile
        if sandbox.fails:
            self._use.remove(placed.sandbox)
            self.scheduler.failed(placed.sandbox)
            self.after(0.05, lambda: self._ask(index, attempt))
            return
        request = self.scheduler.cluster.nodes[placed.node].reservations[placed.sandbox].request
        self._running[number][placed.sandbox] = _Live(request, self.now, index, attempt)
        self._use.add(placed.sandbox, number, sandbox.use, self.now)
        self.scheduler.started(placed.sandbox, cpu_s)
        self._ids[index] = placed.sandbox
        self._count_placed(index, placed)
        self.after(sandbox.life_s, lambda: self._finish(index, placed))

    def _count_placed(self, index: int, placed: Placement) -> None:
        self.tally.placed += 1
        self.tally.warm += placed.kind is StartKind.WARM
        self.tally.forks += placed.kind in (StartKind.FORK, StartKind.MOVE)
        self.tally.forks_at_home += placed.kind is StartKind.FORK
        self.tally.waited_s.setdefault(index, self.now - self.plan.sandboxes[index].at)
        if index in self._returns:
            self.tally.returns.append(self._returns.pop(index))

    def _finish(self, index: int, placed: Placement) -> None:
        if self._running[_number(placed.node)].pop(placed.sandbox, None) is None:
            return  # lost meanwhile
        self._use.remove(placed.sandbox)
        self.scheduler.ended(placed.sandbox)
        self.tally.finished += 1
        self._open -= 1

    # --- nodes ----------------------------------------------------------------------------------------------

    def _report(self, number: int) -> None:
        self.after(REPORT_S, lambda: self._report(number))
        if self._alive[number] and _name(number) in self.scheduler.cluster.nodes:
            self.scheduler.measure(_name(number), self._use.pressure(number))

    def _list(self, number: int) -> None:
        self.after(LIST_S, lambda: self._list(number))
        if self._alive[number] and _name(number) in self.scheduler.cluster.nodes:
            running = [
                ReportedSandbox(request=live.request, age_s=self.now - live.since)
                for live in self._running[number].values()
            ]
            self._do(self.scheduler.reconcile(_name(number), running))

    def _die(self, number: int) -> None:
        self._alive[number] = False
        self._use.clear(number)
        self.after(self.plan.back_s, lambda: self._return(number))

    def _return(self, number: int) -> None:
        self._alive[number] = True
        self._do(self.scheduler.join(_name(number), self.plan.capacity))

    # --- time -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.after(STEP_S, self._step)
        self._use.step(self.now)
        self._do(self.scheduler.tick())
        self._sample()

    def _sample(self) -> None:
        use, tally = self._use, self.tally
        tally.over_pressure |= use.over()
        sizes = [
            sandbox.request.size for node in self.scheduler.cluster for sandbox in node.reservations.values()
        ]
        used = sum(bool(node.reservations) for node in self.scheduler.cluster)
        if len(sizes) > len(tally.peak_sizes):
            tally.peak_sizes, tally.peak_used = sizes, used

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartWarm():
                    self._start_warm(action)
                case Kill():
                    self._running[_number(action.node)].pop(action.sandbox, None)
                    self._use.remove(action.sandbox)
                case Lost():
                    self._ask_anew(action)

    def _start_warm(self, action: StartWarm) -> None:
        self.tally.warm_starts += 1
        number = _number(action.node)
        if not self._alive[number]:
            self.scheduler.failed(action.sandbox)
            return
        cpu_s = 0.2 * self._chance.lognormvariate(0, 0.3)
        self._use.start(action.sandbox, number)
        self.after(cpu_s, lambda: self._warm_ready(action, cpu_s))

    def _warm_ready(self, action: StartWarm, cpu_s: float) -> None:
        number = _number(action.node)
        if not self._use.end_start(action.sandbox, number):
            return
        if action.template.startswith("broken"):
            self._use.remove(action.sandbox)
            self.scheduler.failed(action.sandbox)
            return
        node = self.scheduler.cluster.nodes[action.node]
        request = node.reservations[action.sandbox].request
        self._running[number][action.sandbox] = _Live(request, self.now, -1, 0)
        idle = SandboxUse(size=request.size, duty=0.0, fill=0.2)
        self._use.add(action.sandbox, number, idle, self.now)
        self.scheduler.started(action.sandbox, cpu_s)

    def _ask_anew(self, lost: Lost) -> None:
        live = self._running[_number(lost.node)].pop(lost.sandbox, None)
        self._use.remove(lost.sandbox)
        self.tally.lost += 1
        if live is not None and live.index >= 0:
            self._ask(live.index, live.attempt + 1)
        elif lost.sandbox.startswith("sandbox-"):  # it was still starting
            _, index, attempt = lost.sandbox.split("-")
            self._ask(int(index), int(attempt) + 1)


@dataclass(frozen=True, slots=True)
class _Live:
    request: PlacementRequest
    since: float
    index: int
    attempt: int


def _name(number: int) -> str:
    return f"node-{number}"


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))
