"""The cycle of a cluster, event by event: people, practice, steps, publication, swaps, gate and release.

Sessions go in cohorts that act alike, since a week has millions; a turn is cut into reading, sampling and
tools, `ROUND` turns at a time. Traffic is even over the day, and no machine fails.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ostinato_lab.planner.cluster import DAY_S, ClusterPlan
from ostinato_lab.planner.events import Milestone, Pause, Places, Process, Spend, Station, Take, World, every

COHORTS, ROUND, LIVE_EVERY_S = 16, 5.0, 300.0
ANCHOR_EVERY, EARLIER_S = 25, 5 * 3600.0
AHEAD = 2
"""Batches of practice under way beside the step; a session is then at most so many versions behind."""
PHASES = ("practice", "live steps", "gate")
TRIAL_PHASES = ("shadow", "canary", "split")
"""The phases of a trial, which goes on beside the next cycles; the newest candidate is tried next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An event from one time to another, in seconds.

    >>> Span(cycle=0, name="gate", start=10.0, end=25.0).seconds
    15.0
    """

    cycle: int
    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The outcome of a simulation."""

    spans: tuple[Span, ...]
    """Phases, whole cycles (named `cycle`) and whole trials (`trial`), in the order in which they ended."""
    sent: float
    """Bytes that the trainers put into the bucket."""
    received: dict[str, float]
    """Bytes over the link of each region."""
    versions: int
    published_s: tuple[float, ...]
    """For each version, the seconds from the step's end until the last region had swapped."""
    idle: dict[str, float]
    """The idle share of trainers, engines that read and that sample, and places for sandboxes."""
    most_pods: float
    now: float
    events: int

    def cycle_s(self) -> float:
        """Return the mean length of a cycle."""
        whole = [span.seconds for span in self.spans if span.name == "cycle"]
        return sum(whole) / len(whole)

    def phase_s(self) -> dict[str, float]:
        """Return the mean seconds of each phase of a cycle, which add up to it."""
        return {name: self._mean_s(name) for name in PHASES}

    def trial_s(self) -> dict[str, float]:
        """Return the mean seconds of each phase of a trial."""
        return {name: self._mean_s(name) for name in TRIAL_PHASES}

    def _mean_s(self, name: str) -> float:
        spans = [span.seconds for span in self.spans if span.name == name]
        return sum(spans) / len(spans)


def simulate(plan: ClusterPlan, *, cycles: int = 1, every_s: float = 0.0) -> Simulated:
    """Simulate so many cycles, which begin `every_s` seconds apart at least. Raises PlanError."""
    plan.check()
    cluster = SimulatedCluster(plan)
    over = Milestone()
    cluster.world.start(cluster.people(over))
    cluster.world.start(cluster.cycles(cycles, every_s, over))
    cluster.world.run()
    return cluster.result()


@dataclass(slots=True)
class SimulatedCluster:
    """The stations of a cluster, and what happens on them."""

    plan: ClusterPlan
    world: World = field(default_factory=World)

    trainer: Station = field(init=False)
    reading: Station = field(init=False)
    sampling: Station = field(init=False)
    bucket: Station = field(init=False)
    links: dict[str, Station] = field(init=False)
    pods: Places = field(init=False)
    spans: list[Span] = field(default_factory=list)
    received: dict[str, float] = field(init=False)
    published: list[float] = field(default_factory=list)
    sent: float = 0.0
    version: int = 0
    ended_s: float = 0.0
    waiting: int | None = None
    """The newest cycle whose candidate has not met people."""
    trial: Milestone | None = None
    """The end of the trial under way; None while there is none."""

    def __post_init__(self) -> None:
        plan, world = self.plan, self.world
        reading = plan.engines * plan.reading_share()
        self.trainer = Station(world, "trainers", 1.0)
        self.reading = Station(world, "reading", reading)
        places = (plan.engines - reading) * plan.costs["cluster.token_s"] / plan.sample_s()
        self.sampling = Station(world, "sampling", places)  # in seconds of one sequence
        self.bucket = Station(world, "bucket", 1.0)
        self.links = {region.name: Station(world, region.name, 1.0) for region in plan.regions}
        self.pods = Places(world, plan.sandboxes)
        self.received = {region.name: 0.0 for region in plan.regions}

    # --- people ---------------------------------------------------------------------------------------------

    def people(self, over: Milestone) -> Process:
        """Live sessions begin, evenly over the day, until `over` has happened."""
        each = self.plan.traffic / DAY_S * LIVE_EVERY_S
        while not over.happened:
            self.world.start(self._session(each, self.plan.costs["cluster.live_turns"], tools=False))
            yield Pause(LIVE_EVERY_S)

    def _session(self, members: float, turns: float, *, tools: bool = True) -> Process:
        """Sessions that act alike: rounds of reading, sampling and tools."""
        costs, left = self.plan.costs, turns
        read, _ = self.plan.turn_s()
        while left > 1e-9:
            now = min(ROUND, left)
            yield Spend(self.reading, now * read, members)
            yield Spend(
                self.sampling, now * costs["cluster.sampled_tokens"] * costs["cluster.token_s"], members
            )
            yield Pause(now * costs["cluster.tool_s"] if tools else 0.0)
            left -= now

    # --- sandboxes ------------------------------------------------------------------------------------------

    def _cohort(self, members: float) -> Process:
        """Sessions in sandboxes: placed, started, run and verified."""
        costs = self.plan.costs
        while members > 1e-9:
            now = min(members, self.pods.size)
            yield Take(self.pods, now)
            yield Pause(now * costs["cluster.pod_place_s"] + costs["cluster.pod_start_s"])
            yield from self._session(now, costs["cluster.turns"])
            yield Pause(costs["cluster.verify_s"])
            self.pods.give(now)
            members -= now

    def sessions(self, count: float) -> Milestone:
        """Begin sessions in sandboxes, in cohorts; return the milestone that all have ended."""
        return every(self.world, [self._cohort(count / COHORTS) for _ in range(COHORTS)])

    # --- weights --------------------------------------------------------------------------------------------

    def step(self, tokens: float) -> Process:
        """One optimizer's step on so many tokens."""
        yield Spend(self.trainer, tokens / self.plan.train_tokens_per_s())
        yield Spend(self.trainer, self.plan.costs["cluster.step_fixed_s"])

    def publish(self) -> Process:
        """A delta goes to the bucket, then to every region, where engines swap; no step waits for it."""
        began, size, costs = self.world.now, self.plan.delta(), self.plan.costs
        self.version += 1
        yield Pause(self.plan.encode_s())
        yield Spend(self.bucket, size / costs["cluster.bucket_bytes"])
        self.sent += size
        yield every(self.world, [self._receive(name, size) for name in self.links])
        self.published.append(self.world.now - began)
        if self.version % ANCHOR_EVERY == 0:
            whole = 2 * self.plan.model.weights
            yield Spend(self.bucket, whole / costs["cluster.bucket_bytes"])
            self.sent += whole

    def _receive(self, name: str, size: float) -> Process:
        rate = next(region.bytes_per_s for region in self.plan.regions if region.name == name)
        yield Pause(self.plan.costs["cluster.round_trips_s"])
        yield Spend(self.links[name], size / rate)
        self.received[name] += size
        yield Pause(self.plan.decode_s() + self.plan.pause_s())

    # --- the cycle ------------------------------------------------------------------------------------------

    def cycles(self, count: int, every_s: float, over: Milestone) -> Process:
        """Cycles one after another; people worked for `EARLIER_S` before the first collection."""
        yield Pause(self.plan.costs["cluster.maturity_s"])
        since = -EARLIER_S
        for number in range(count):
            began = self.world.now
            matured = began - self.plan.costs["cluster.maturity_s"]
            with self._span(number, "cycle"):
                yield from self.cycle(number, matured - since)
                since = matured
            self.waiting = number
            if self.trial is None:
                self.trial = every(self.world, [self.trials()])
            yield Pause(max(0.0, every_s - (self.world.now - began)))
        if self.trial is not None:
            yield self.trial
        self.ended_s = self.world.now
        self._account()
        self.world.happen(over)

    def cycle(self, number: int, lived_s: float) -> Process:
        """One cycle on the live sessions of `lived_s` seconds, to the gate's decision."""
        costs, rate = self.plan.costs, self.plan.traffic / DAY_S
        with self._span(number, "practice"):
            yield from self.practice()
        with self._span(number, "live steps"):
            tokens = (
                lived_s
                * rate
                * costs["cluster.live_share"]
                * self.plan.tokens_of(costs["cluster.live_turns"])
            )
            for _ in range(round(costs["cluster.live_steps"])):
                yield from self.step(tokens / costs["cluster.live_steps"])
            yield every(self.world, [self.publish()])
        with self._span(number, "gate"):
            yield self.sessions(costs["cluster.gate_sessions"])

    def trials(self) -> Process:
        """Trials one after another, until no candidate waits."""
        while (number := self.waiting) is not None:
            self.waiting = None
            with self._span(number, "trial"):
                yield from self.meet(number)
        self.trial = None

    def meet(self, number: int) -> Process:
        """One trial, beside the next cycles."""
        costs, rate = self.plan.costs, self.plan.traffic / DAY_S
        with self._span(number, "shadow"):
            shadow = self._session(costs["cluster.shadow_sessions"], costs["cluster.live_turns"], tools=False)
            yield every(self.world, [shadow])
        with self._span(number, "canary"):
            yield Pause(costs["cluster.canary_sessions"] / (rate * costs["cluster.canary_share"]))
            yield Pause(costs["cluster.maturity_s"])
        with self._span(number, "split"):
            yield Pause(costs["cluster.split_sessions"] / rate + costs["cluster.maturity_s"])

    def practice(self) -> Process:
        """Steps on practice, while the next `AHEAD` batches are sampled."""
        costs = self.plan.costs
        batch, steps = costs["cluster.step_sessions"], round(costs["cluster.steps"])
        ready = deque(self.sessions(batch) for _ in range(min(AHEAD, steps)))
        for step in range(steps):
            yield ready.popleft()
            if step + AHEAD < steps:
                ready.append(self.sessions(batch))
            yield from self.step(batch * self.plan.tokens_of(costs["cluster.turns"]))
            self.world.start(self.publish())

    @contextmanager
    def _span(self, cycle: int, name: str) -> Iterator[None]:
        start = self.world.now
        yield
        self.spans.append(Span(cycle=cycle, name=name, start=start, end=self.world.now))

    # --- what came of it ------------------------------------------------------------------------------------

    _idle: dict[str, float] = field(default_factory=dict)

    def _account(self) -> None:
        """Note what was idle until now."""
        self.pods.change(0.0)
        stations = (self.trainer, self.reading, self.sampling)
        self._idle = {s.name: 1 - s.done / (s.capacity * self.ended_s) for s in stations}
        self._idle["sandboxes"] = 1 - self.pods.used_s / (self.pods.size * self.ended_s)

    def result(self) -> Simulated:
        return Simulated(
            spans=tuple(self.spans),
            sent=self.sent,
            received=self.received,
            versions=self.version,
            published_s=tuple(self.published),
            idle=self._idle,
            most_pods=self.pods.most,
            now=self.ended_s,
            events=self.world.events,
        )
