"""A run on one machine: the stages of `ostinato run`, every session and every step on two cores.

Engine, trainer, gateway, agents and sandboxes are processes of their own, with a thread each, that share the
cores. The rules of who may start when are those of the rollout room (`rollout.policies`). A run on several
Ray nodes of the machine also starts Ray's client and actors, and the nodes' own processes work beside it.
"""

from dataclasses import dataclass

from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.policies import Counts, allowed, policies
from ostinato_lab.planner.costs import Costs
from ostinato_lab.planner.events import (
    Host,
    Milestone,
    Places,
    Process,
    Spend,
    Station,
    Take,
    World,
    every,
)
from ostinato_lab.planner.runs import LaptopRun, SessionSize

STAGES = ("join", "teach", "before", "practice", "after", "cycle")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """The time that a stage took.

    >>> StageTime(name="teach", wall_s=130.0, cpu_s=210.0).wall_s
    130.0
    """

    name: str
    wall_s: float
    cpu_s: float


def predict(run: LaptopRun, costs: Costs) -> list[StageTime]:
    """Return the stages of a run in their order, each simulated on an idle machine.

    What the nodes' own processes take counts, and holds up nothing.
    """
    machine = Laptop(run, costs)
    stages = []
    for name in STAGES:
        before = machine.world.now, machine.cpu_s()
        machine.world.start(getattr(machine, name)())
        machine.world.run()
        wall, cpu = machine.world.now - before[0], machine.cpu_s() - before[1]
        if cpu > 0:
            beside = costs["ray.node_share"] * run.nodes * wall
            stages.append(StageTime(name=name, wall_s=wall, cpu_s=cpu + beside))
    return stages


class Laptop:
    """The stations of one machine, and the stages as processes on them."""

    def __init__(self, run: LaptopRun, costs: Costs) -> None:
        self.run = run
        self.world = World()
        host = Host(run.cores)
        self.engine = Station(self.world, "engine", 1.0, host)
        self.trainer = Station(self.world, "trainer", 1.0, host)
        self.gateway = Station(self.world, "gateway", 1.0, host)
        self.agents = Station(self.world, "agents", 1.0, host)
        self.sandboxes = Station(self.world, "sandboxes", run.cores, host)
        self._here = {cost.name.partition(".")[2]: cost.value for cost in costs.of(*run.cost_groups)}

    def cpu_s(self) -> float:
        """Return the CPU seconds that were spent so far."""
        return sum(station.done for station in self.world.stations)

    # --- the pieces of work ---------------------------------------------------------------------------------

    def session(self, *, scripted: bool = False) -> Process:
        """One session: turns of engine, gateway, agent and tools, and the verdict."""
        here, facts = self._here, self.run.lesson if scripted else self.run.sessions
        count = max(1, round(facts.turns))
        share = facts.turns / count
        for _ in range(count):
            yield Spend(self.agents, here["agent_turn_s"] * share)
            yield Spend(self.gateway, here["gateway_turn_s"] * share)
            if not scripted:
                yield from self.turn(facts.read / count, facts.sampled / count)
            yield Spend(self.sandboxes, here["sandbox_turn_s"] * share)

    def turn(self, read: float, sampled: float) -> Process:
        """One turn of the engine, at the price of the batch that it begins in."""
        batch = self.engine.members + 1
        token = self._here["decode_step_s"] / batch + self._here["decode_token_s"]
        yield Spend(self.engine, read * self._here["prefill_token_s"] + sampled * token)

    def serving(self) -> Process:
        """An engine starts, and computes once what all sessions share."""
        yield Spend(self.engine, self._here["start_s"] + self._here["load_s"])
        yield Spend(self.engine, self.run.sessions.shared * self._here["prefill_token_s"])

    def step(self, rows: float, shared: float, of: SessionSize) -> Process:
        """An optimizer's step on `rows` sessions, `shared` times the tokens that they have in common."""
        tokens = rows * (of.sampled + of.read) + shared * of.shared
        yield Spend(self.trainer, tokens * self._here["train_token_s"] + self._here["optimizer_s"])

    def publish(self) -> Process:
        """A version's state is saved and its delta published; the engine swaps it in."""
        yield Spend(self.trainer, self._here["save_s"] + self._here["publish_s"])
        self.world.start(self._swap())

    def _swap(self) -> Process:
        yield Spend(self.engine, self._here["fetch_s"])
        yield Spend(self.engine, self.run.sessions.shared * self._here["prefill_token_s"])

    def sessions(self, count: int, at_once: int, *, scripted: bool = False) -> Milestone:
        """Begin sessions, so many at once; return the event that all have ended."""
        places = Places(self.world, at_once)

        def one() -> Process:
            yield Take(places)
            yield from self.session(scripted=scripted)
            places.give()

        return every(self.world, [one() for _ in range(count)])

    # --- the stages -----------------------------------------------------------------------------------------

    def join(self) -> Process:
        """Ray's client starts in the run's process, and an actor on each node, which keeps its services."""
        if self.run.nodes:
            yield Spend(self.agents, self._here["client_s"])
            yield every(self.world, [self._actor() for _ in range(self.run.nodes)])

    def _actor(self) -> Process:
        yield Spend(self.sandboxes, self._here["actor_s"])

    def teach(self) -> Process:
        """Lessons, then supervised fine-tuning on all of them."""
        run = self.run
        if not run.sft_steps:
            return
        yield Spend(self.agents, self._here["prepare_s"])
        yield self.sessions(run.lessons, run.lessons_at_once, scripted=True)
        yield Spend(self.trainer, self._here["start_s"] + self._here["load_s"])
        for _ in range(run.sft_steps):
            yield from self.step(run.sft_rows, 1.0, run.lesson)
        yield from self.publish()

    def before(self) -> Process:
        yield from self._bench(1)

    def after(self) -> Process:
        yield from self._bench(self.run.passes)

    def _bench(self, passes: int) -> Process:
        yield from self.serving()
        yield self.sessions(self.run.held_out * passes, self.run.bench_at_once)

    def practice(self) -> Process:
        """Sampling and training side by side, until the last version is out."""
        yield from self.serving()
        yield Spend(self.trainer, self._here["start_s"] + self._here["load_s"])
        yield from Practice(self).steps()

    def cycle(self) -> Process:
        """Live sessions, steps on them, the gate, the shadow and the release."""
        run = self.run
        if not run.live_sessions:
            return
        yield from self.serving()
        yield self.sessions(run.live_sessions, run.developers)
        yield Spend(self.trainer, self._here["start_s"] + self._here["load_s"])
        for _ in range(run.live_versions):
            rows = run.live_sessions / run.live_versions
            yield from self.step(rows, 1.0, run.sessions)
            yield from self.publish()
        yield from self._bench(run.passes)
        yield from self.serving()
        per_turn = run.sessions.read / run.sessions.turns, run.sessions.sampled / run.sessions.turns
        yield every(self.world, [self.turn(*per_turn) for _ in range(run.shadow_requests)])
        yield self.sessions(run.released_sessions, run.developers)


class Practice:
    """Groups of sessions, sampled as the rollout room's policies allow, and trained a batch at a time."""

    def __init__(self, laptop: Laptop) -> None:
        run = laptop.run
        self._laptop, self._world = laptop, laptop.world
        self._places = Places(self._world, run.groups_at_once * run.group_size)
        settings = PracticeConfig(
            group_size=run.group_size, groups_at_once=run.groups_at_once, ready_ahead=run.ready_ahead
        )
        self._policies = policies(settings, batch=run.groups, staleness=run.staleness, until=run.versions)
        self._open = self._waiting = self._claimed = self._busy = 0
        self._newest = 0
        self._ready = Milestone()

    def steps(self) -> Process:
        """Claim a batch, train it, publish; sampling starts again as far as it may."""
        run, laptop = self._laptop.run, self._laptop
        self._begin()
        for _ in range(run.versions):
            while self._waiting < run.groups:
                yield self._ready
            self._waiting, self._claimed = self._waiting - run.groups, run.groups
            self._begin()
            yield from laptop.step(run.groups * run.group_size, run.groups, run.sessions)
            yield from laptop.publish()
            self._claimed, self._newest = 0, self._newest + 1
            self._begin()

    def _begin(self) -> None:
        """Start as many groups as the strictest policy allows."""
        while self._more() > 0:
            self._open += 1
            self._busy += self._laptop.run.group_size
            self._world.start(self._group())

    def _more(self) -> int:
        now = Counts(
            open=self._open,
            waiting=self._waiting,
            claimed=self._claimed,
            busy=self._busy,
            newest=self._newest,
        )
        return allowed(self._policies, now)

    def _group(self) -> Process:
        def one() -> Process:
            yield Take(self._places)
            yield from self._laptop.session()
            self._places.give()
            self._busy -= 1
            self._begin()

        yield every(self._world, [one() for _ in range(self._laptop.run.group_size)])
        self._open, self._waiting = self._open - 1, self._waiting + 1
        ready, self._ready = self._ready, Milestone()
        self._world.happen(ready)
        self._begin()
