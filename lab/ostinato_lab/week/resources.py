"""The resources of a week's cycles: everything shipped but the engines and the tools.

The trainer runs in this process, an engine is a version of the surrogate, and a stage takes virtual time.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from rich.console import Console

from ostinato.deploy.traffic import point_arm, put_arm
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode
from ostinato.loop.config import RunConfig
from ostinato.loop.release import until
from ostinato.loop.results import Counters
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.loop.stages.learn import LEARNER
from ostinato.store import Objects, Store
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.train.config import RepublishProcess
from ostinato.types import Arm, Completion, Ending, GenerateRequest, Session, Source, Task
from ostinato_lab.week.acts import Act
from ostinato_lab.week.base import SimulatedRequest, attempt_of
from ostinato_lab.week.policy import Policies, act_of
from ostinato_lab.week.simulation import acts_of, turns_of

T = TypeVar("T")
POLL_S = 1_800.0
TAKES_S = {"after": 100.0, "refine": 840.0, "champion": 780.0, "gate": 780.0, "shadow": 300.0}
"""The virtual time that a stage takes: such that no cycle and no release do anything at the same moment,
since their order would then be another one after a kill."""
CALLS = {Act.ASK: "ask_user", Act.DEFER: "ask_user", Act.TEST: "bash", Act.READ: "read"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateEngine:
    """An engine that serves one version of the surrogate."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUnderWay:
    """A stage of a cycle, or of a trial beside it."""

    name: str
    began: float
    """The moment at which it began for the first time, in whichever process."""
    passes: Counter[str] = field(default_factory=Counter)
    """The sessions of each task of the benchmark so far."""


UNDER_WAY: ContextVar[StageUnderWay] = ContextVar("UNDER_WAY")
"""The stage of the flow that asks: a trial and the cycles beside it have one each."""


class WeekResources:
    """A `Resources`. Its store's clock is the loop's."""

    def __init__(
        self, config: RunConfig, run: Run, store: Store, policies: Policies, show: Any = None
    ) -> None:
        self.config = config
        self.run = run
        self.store = store
        self.show = show or Show(Console(quiet=True, force_terminal=False))
        self.poll_s = POLL_S
        self.policies = policies

    async def stage(self, name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Do a stage, or go on where it ended: the clock of a killed process had stopped at its last row."""
        kept = self.run.result(name, schema)
        cycle, _, stage = name.rpartition("/")
        logged = self._began(cycle, stage)
        if kept is not None:
            if logged is not None:
                await until(self.store, logged + self.run.seconds()[name])
            return kept
        began = self.store.now() if logged is None else logged
        UNDER_WAY.set(StageUnderWay(name=name, began=began))
        result = await work()
        took = max(TAKES_S.get(stage, 0.0), math.ceil(10 * (self.store.now() - began)) / 10)  # as it is kept
        await until(self.store, began + took)
        self.run.finish(name, result, took)
        return result

    def _began(self, cycle: str, stage: str) -> float | None:
        """Return when a stage of a cycle began for the first time, in whichever process; None for others."""
        entries = cycle_log(self.store)
        wanted = CycleAction.STAGE_BEGAN, cycle, stage
        return next((e.at for e in entries if (e.action, e.cycle, e.detail) == wanted), None)

    def put_arm(self, arm: Arm) -> None:
        put_arm(self.store, arm)

    @asynccontextmanager
    async def serving(self, arm: Arm) -> AsyncIterator[SurrogateEngine]:
        site = SurrogateEngine(url=f"http://surrogate/{arm.version}")
        point_arm(self.store, arm, site.url)
        yield site

    async def counters(self, engine: Any) -> Counters:
        return {}

    def engines(self, patience_s: float) -> "SurrogateEngines":
        return SurrogateEngines(self.policies, self.config.seed)

    def client(self, user: str, arm: str | None = None) -> Arm:
        return next(each for each in self.store.arms() if each.name == arm)

    def runner(self, client: Arm, profile: str | None = None) -> "BenchRunner":
        return BenchRunner(self, client)

    def session_of(self, version: int, task: Task) -> str:
        """Return the id of a session of the benchmark: the same one when a killed stage is done again."""
        stage = UNDER_WAY.get()
        done = f"bench-{stage.name}-{version}-{task.id}"
        stage.passes[done] += 1
        return f"{done}-{stage.passes[done]}"

    async def train(self, name: str, module: str, settings: Any, tick: Callable[[], None]) -> None:
        """Run the shipped trainer, or the one that puts a version back, in this process."""
        from ostinato.train.learner import train
        from ostinato.train.republish import republish

        if module == LEARNER:
            train(settings, lambda: False)
        else:
            assert isinstance(settings, RepublishProcess)
            republish(Store.open(settings.store), Objects.open(settings.objects), settings.version)
        tick()


class SurrogateEngines:
    """The engines of a week, asked past the gateway."""

    def __init__(self, policies: Policies, seed: int) -> None:
        self._policies = policies
        self._seed = seed

    async def generate(
        self, pool: Callable[[], Awaitable[Sequence[str]]], request: GenerateRequest
    ) -> Completion:
        version = int((await pool())[0].rpartition("/")[2])
        rng = Random(f"shadow/{self._seed}/{version}/{request.session_id}/{len(request.prompt_ids)}")
        await asyncio.sleep(1.0)
        return self._policies.of(version).sample(request.prompt_ids[-1], rng)

    async def aclose(self) -> None: ...


class BenchRunner:
    """The runner of a benchmark's sessions: hidden tests say what was right."""

    harness = "week"

    def __init__(self, resources: WeekResources, arm: Arm) -> None:
        self._resources = resources
        self._arm = arm

    async def run(self, task: Task, user: Any, *, source: Source) -> Episode:
        """Do a task once more, record the session, and return what came of it."""
        resources, id_ = self._resources, self._resources.session_of(self._arm.version, task)
        began = UNDER_WAY.get().began
        request = SimulatedRequest(
            stratum=task.kind, ambiguous=task.metadata["ambiguous"], hard=task.metadata["hard"]
        )
        seed, policies = resources.config.seed, resources.policies
        turns = turns_of(
            policies.of(self._arm.version),
            policies.vocabulary,
            request,
            session_id=id_,
            arm=self._arm.name,
            at=began,
            seed=seed,
        )
        acts = acts_of(act_of(policies.vocabulary, turn.completion) for turn in turns)
        attempt = attempt_of(request, acts, Random(f"exam/{seed}/{id_}"))
        session = Session(
            id=id_,
            source=source,
            user="bench",
            arm=self._arm.name,
            task_id=task.id,
            harness=self.harness,
            started_at=began,
            ending=Ending.FINISHED,
            consent=True,
        )
        resources.store.record(turns, [], [session])
        outcome = Outcome(
            session_id=id_,
            ending=Ending.FINISHED,
            final_message="",
            turns=len(turns),
            calls=tuple(CALLS[act] for act in acts if act in CALLS),
            broken=int(Act.BREAK in acts),
        )
        return Episode(
            task=task,
            session_id=id_,
            outcome=outcome,
            changed=attempt.edited,
            solved=attempt.right,
            tampered=Act.TAMPER in acts,
            void=None,
        )


SPLITS = {"seeds": 4, "names": 1, "larger": 1}
"""The parts of an exam that each split has."""


def held_out_tasks(kinds: Sequence[str], count: int, seed: int = 0) -> list[Task]:
    """Return about `count` held-out tasks of a week: five share what they are hard for."""
    tasks = []
    for split, part in SPLITS.items():
        for number in range(part * count // sum(SPLITS.values())):
            rng = Random(f"task/{seed}/{split}/{number // 5}")
            hard, kind = rng.random(), rng.choice(list(kinds))
            tasks.append(
                Task(
                    id=f"{split}-{number:03d}",
                    kind=kind,
                    split=split,
                    key=f"week/{split}/{number}",
                    instruction=f"do the {kind} {number}",
                    directory=Path("nowhere"),
                    test_ids=("test_hidden.py::test_it",),
                    metadata={
                        "cluster": f"{number // 5}",
                        "hard": hard,
                        "ambiguous": number % 8 == 0,
                        "needs": {},
                    },
                )
            )
    return tasks
