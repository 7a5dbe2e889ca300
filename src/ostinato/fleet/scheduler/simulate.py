"""A fleet that does not exist: machines, pods and clients as events, decided by the real scheduler.

Truth and knowledge are apart. The world knows what every pod uses at every moment; the scheduler learns only
what a node would tell it, as often as a node would. Clients come back when they are told to.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.pod import (
    Action,
    How,
    Kill,
    Lost,
    Placed,
    Refused,
    Request,
    Running,
    Size,
    Start,
)
from ostinato.fleet.scheduler.pool import Pool
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.truth import STEP_S, Truth, Use

REPORT_S, LIST_S = 2.0, 30.0
"""How often a node tells its pressure, and all that runs on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """What one pod will want and do, told to nobody.

    >>> PodPlan(at=0.0, template="a", use=Use(size=Size(500, 512, 64)), life_s=30.0).fails
    False
    """

    at: float
    """When it is first asked for."""
    template: str
    use: Use
    life_s: float
    start_cpu_s: float = 0.2
    fails: bool = False
    fork_of: int | None = None
    """The plan that it is forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A whole simulation; see `benchmarks/scheduler.py` for one of 100,000 pods."""

    nodes: int
    capacity: Size
    pods: tuple[PodPlan, ...]
    pools: dict[str, Pool]
    overcommit: Overcommit
    deaths: tuple[tuple[float, int], ...] = ()
    """Times at which a node is killed; it comes back empty after `back_s`."""
    back_s: float = 60.0
    seed: int = 0
    fetch_cpu_s: float = 0.3
    """More CPU for a start where the template must be fetched first."""
    most_s: float = 3600.0


@dataclass(slots=True)
class Tally:
    """What came of it."""

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
    """Of each pod that was refused and then placed, how often it came back."""
    waited_s: dict[int, float] = field(default_factory=dict)
    """Of each plan, how long it was from the first question until it ran, by its index."""
    over_pressure: set[int] = field(default_factory=set)
    cpu_peak: float = 0.0
    memory_peak: float = 0.0
    samples: list[tuple[int, int]] = field(default_factory=list)
    """Live pods and nodes in use, every step."""
    peak_sizes: list[Size] = field(default_factory=list)
    peak_used: int = 0
    warm_starts: int = 0
    ended_s: float = 0.0


class World:
    """One simulation."""

    def __init__(self, plan: FleetPlan, kind: type[Scheduler] = Scheduler) -> None:
        self.plan = plan
        self.now = 0.0
        self.tally = Tally()
        self.scheduler = kind(
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
        self._open = len(plan.pods)
        self._truth = Truth(plan.nodes, plan.capacity, self._rng)
        self._ids: dict[int, str] = {}

    def run(self) -> Tally:
        """Until every pod has finished, or the plan's time is over."""
        for number in range(self.plan.nodes):
            self.scheduler.join(_name(number), self.plan.capacity)
            self.after(self._chance.random() * REPORT_S, partial(self._report, number))
            self.after(self._chance.random() * LIST_S, partial(self._list, number))
        for index, pod in enumerate(self.plan.pods):
            self._at(pod.at, partial(self._ask, index, 0))
        for at, number in self.plan.deaths:
            self._at(at, partial(self._die, number))
        self.after(STEP_S, self._step)
        while self._open and self.now < self.plan.most_s:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.tally.ended_s = self.now
        return self.tally

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._at(self.now + seconds, event)

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))

    # --- clients --------------------------------------------------------------------------------------------

    def _ask(self, index: int, life: int) -> None:
        """A client asks; `life` counts how often its pod was lost and asked for anew."""
        pod = self.plan.pods[index]
        name = f"pod-{index}-{life}"
        request = Request(
            id=name,
            template=pod.template,
            size=pod.use.size,
            deadline_s=pod.life_s * 2 + 60,
            parent=self._parent(pod),
            labels={"run": str(index % 10)},
        )
        answer = self.scheduler.place(request)
        if isinstance(answer, Refused):
            self._told_to_wait(index, life, answer)
        else:
            self._told_a_place(index, life, answer)

    def _parent(self, pod: PodPlan) -> str | None:
        """The parent, if it lives; a client that lost it starts from the template."""
        name = None if pod.fork_of is None else self._ids.get(pod.fork_of)
        return name if name is not None and name in self._truth.where else None

    def _told_to_wait(self, index: int, life: int, answer: Refused) -> None:
        self.tally.refusals += 1
        if answer.retry_after_s is None or (self.plan.pods[index].fails and answer.retry_after_s > 20):
            self.tally.hopeless += 1  # a client that is told for the fifth time gives up
            self._open -= 1
            return
        self._returns[index] = self._returns.get(index, 0) + 1
        late = self._chance.random() * 0.05
        self.after(answer.retry_after_s + late, lambda: self._ask(index, life))

    def _told_a_place(self, index: int, life: int, placed: Placed) -> None:
        pod, number = self.plan.pods[index], _number(placed.node)
        if not self._alive[number]:
            self.scheduler.failed(placed.pod)
            self.after(0.1, lambda: self._ask(index, life))
            return
        if placed.how is How.WARM:
            self._running[number].pop(placed.source)
            self._truth.remove(placed.source)
            self._begin(index, life, placed, 0.0)
            return
        held = pod.template in self.scheduler.cluster.nodes[placed.node].templates
        cpu_s = pod.start_cpu_s * self._chance.lognormvariate(0, 0.3) + (0 if held else self.plan.fetch_cpu_s)
        self._truth.start(placed.pod, number)
        self.after(cpu_s, lambda: self._begin(index, life, placed, cpu_s))

    def _begin(self, index: int, life: int, placed: Placed, cpu_s: float) -> None:
        pod, number = self.plan.pods[index], _number(placed.node)
        if not self._truth.starts(placed.pod, number) and placed.how is not How.WARM:
            return  # its node died meanwhile
        if pod.fails:
            self._truth.remove(placed.pod)
            self.scheduler.failed(placed.pod)
            self.after(0.05, lambda: self._ask(index, life))
            return
        request = self.scheduler.cluster.nodes[placed.node].pods[placed.pod].request
        self._running[number][placed.pod] = _Live(request, self.now, index, life)
        self._truth.add(placed.pod, number, pod.use, self.now)
        self.scheduler.started(placed.pod, cpu_s)
        self._ids[index] = placed.pod
        self._count_placed(index, placed)
        self.after(pod.life_s, lambda: self._finish(index, placed))

    def _count_placed(self, index: int, placed: Placed) -> None:
        self.tally.placed += 1
        self.tally.warm += placed.how is How.WARM
        self.tally.forks += placed.how in (How.FORK, How.MOVE)
        self.tally.forks_at_home += placed.how is How.FORK
        self.tally.waited_s.setdefault(index, self.now - self.plan.pods[index].at)
        if index in self._returns:
            self.tally.returns.append(self._returns.pop(index))

    def _finish(self, index: int, placed: Placed) -> None:
        if self._running[_number(placed.node)].pop(placed.pod, None) is None:
            return  # lost meanwhile
        self._truth.remove(placed.pod)
        self.scheduler.ended(placed.pod)
        self.tally.finished += 1
        self._open -= 1

    # --- nodes ----------------------------------------------------------------------------------------------

    def _report(self, number: int) -> None:
        self.after(REPORT_S, lambda: self._report(number))
        if self._alive[number] and _name(number) in self.scheduler.cluster.nodes:
            self.scheduler.measure(_name(number), self._truth.pressure(number))

    def _list(self, number: int) -> None:
        self.after(LIST_S, lambda: self._list(number))
        if self._alive[number] and _name(number) in self.scheduler.cluster.nodes:
            running = [
                Running(request=live.request, age_s=self.now - live.since)
                for live in self._running[number].values()
            ]
            self._do(self.scheduler.hear(_name(number), running))

    def _die(self, number: int) -> None:
        self._alive[number] = False
        self._truth.clear(number)
        self.after(self.plan.back_s, lambda: self._return(number))

    def _return(self, number: int) -> None:
        self._alive[number] = True
        self._do(self.scheduler.join(_name(number), self.plan.capacity))

    # --- time -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.after(STEP_S, self._step)
        self._truth.step(self.now)
        self._do(self.scheduler.tick())
        self._sample()

    def _sample(self) -> None:
        truth, tally = self._truth, self.tally
        tally.over_pressure |= truth.over()
        tally.cpu_peak = max(tally.cpu_peak, truth.worst_cpu())
        tally.memory_peak = max(tally.memory_peak, truth.worst_memory())
        sizes = [pod.request.size for node in self.scheduler.cluster for pod in node.pods.values()]
        used = sum(bool(node.pods) for node in self.scheduler.cluster)
        tally.samples.append((len(sizes), used))
        if len(sizes) > len(tally.peak_sizes):
            tally.peak_sizes, tally.peak_used = sizes, used

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start():
                    self._start_warm(action)
                case Kill():
                    self._running[_number(action.node)].pop(action.pod, None)
                    self._truth.remove(action.pod)
                case Lost():
                    self._told_lost(action)

    def _start_warm(self, action: Start) -> None:
        self.tally.warm_starts += 1
        number = _number(action.node)
        if not self._alive[number]:
            self.scheduler.failed(action.pod)
            return
        fails = self._warm_fails(action.template)
        cpu_s = 0.2 * self._chance.lognormvariate(0, 0.3)
        self._truth.start(action.pod, number)
        self.after(cpu_s, lambda: self._warm_ready(action, cpu_s, fails=fails))

    def _warm_fails(self, template: str) -> bool:
        return template.startswith("broken")

    def _warm_ready(self, action: Start, cpu_s: float, *, fails: bool) -> None:
        number = _number(action.node)
        if not self._truth.starts(action.pod, number):
            return
        if fails:
            self._truth.remove(action.pod)
            self.scheduler.failed(action.pod)
            return
        node = self.scheduler.cluster.nodes[action.node]
        request = node.pods[action.pod].request
        self._running[number][action.pod] = _Live(request, self.now, -1, 0)
        idle = Use(size=request.size, duty=0.0, fill=0.2)
        self._truth.add(action.pod, number, idle, self.now)
        self.scheduler.started(action.pod, cpu_s)

    def _told_lost(self, lost: Lost) -> None:
        live = self._running[_number(lost.node)].pop(lost.pod, None)
        self._truth.remove(lost.pod)
        self.tally.lost += 1
        if live is not None and live.index >= 0:
            self._ask(live.index, live.life + 1)
        elif lost.pod.startswith("pod-"):  # it was still starting
            _, index, life = lost.pod.split("-")
            self._ask(int(index), int(life) + 1)


@dataclass(frozen=True, slots=True)
class _Live:
    request: Request
    since: float
    index: int
    life: int


def _name(number: int) -> str:
    return f"node-{number}"


def _number(name: str) -> int:
    return int(name.removeprefix("node-"))
