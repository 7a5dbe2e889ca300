"""The pipeline of a run: the stages that its file lists. One whose result the run folder has is skipped.

::

    prepare ─► teach ─► before ─► practice ─► after ─► cycle … ─► deployed for `ostinato serve`
                 │                   │                   └ live, reward, train, gate; beside them A/B, verdict
                 └ teacher + SFT     └ actor + learner
"""

import resource
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from ostinato.loop.base import Display, LiveTraffic
from ostinato.loop.beside.served import deploy
from ostinato.loop.config import RunConfig
from ostinato.loop.cycle import cycles
from ostinato.loop.fidelity.differences import differences, said, unnamed
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.results import (
    Champion,
    Claimed,
    Counters,
    Integrity,
    Measured,
    Practised,
    Published,
    RunResult,
    Taught,
    Turned,
)
from ostinato.loop.run import Run
from ostinato.loop.stages.learn import publish
from ostinato.loop.stages.measure import measure
from ostinato.loop.stages.practise import practise
from ostinato.loop.stages.prepare import prepare
from ostinato.loop.stages.problems import SHARED, has_shared_tasks, held_out, unpaid
from ostinato.loop.stages.sealed import claim, claim_stage
from ostinato.loop.stages.teach import teach
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger
from ostinato.types import Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """What a run has done so far: the results of its stages by name, and what the next one works with."""

    resources: RunResources
    tasks: Sequence[Task]
    """The held-out tasks."""
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The newest version that practice made; 0, what was taught, where there was no practice."""
        practised: Practised | None = self.results.get("practice")
        return practised.version if practised else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage(Generic[T]):
    """One stage of a run, whose result is kept in the run folder under its name."""

    name: str
    schema: type[T]
    """What it results in."""
    work: Callable[[RunProgress], Awaitable[T]]


def stages_of(config: RunConfig) -> list[RunStage[Any]]:
    """Return the stages before the cycles that a run's file lists, in the order in which they run.

    Where nothing is taught, the model is published as it came.
    """
    listed, bench = config.schedule.stages, config.bench
    stages: list[RunStage[Any]] = []
    if "teach" in listed:
        stages.append(RunStage(name="teach", schema=Taught, work=lambda run: teach(run.resources)))
    else:
        stages.append(RunStage(name="publish", schema=Published, work=lambda run: publish(run.resources)))
    if "before" in listed:
        stages += [_measurement("before", profile, 1) for profile in (*bench.profiles, None)]
    if "practice" in listed:
        stages.append(RunStage(name="practice", schema=Practised, work=lambda run: practise(run.resources)))
    if "after" in listed:
        stages += [_measurement("after", profile, bench.passes) for profile in (*bench.profiles, None)]
    return stages


def _measurement(name: str, profile: str | None, passes: int) -> RunStage[Measured]:
    """Return a stage that measures the newest version, under the run's own profile or another one."""

    def work(run: RunProgress) -> Awaitable[Measured]:
        return measure(run.resources, run.version, run.tasks, passes=passes, profile=profile)

    return RunStage(name=name if profile is None else f"{name}-{profile}", schema=Measured, work=work)


async def run_pipeline(
    config: RunConfig,
    run: Run,
    show: Display,
    live: Callable[[RunResources], LiveTraffic],
    *,
    resumed: bool = False,
) -> RunResult:
    """Run every listed stage that the run folder does not hold yet; `live` makes the cycle's traffic."""
    if "practice" in config.schedule.stages and run.result("practice", Practised) is None:
        for sentence in unpaid(config):
            show.say(sentence)
    await prepare(config, run)
    async with open_resources(config, run, show) as resources:
        show.say(f"sandbox: {resources.backend.name} · run folder: {run.directory}")
        if resumed and (lost := Ledger(resources.store).void_interrupted()):
            show.say(f"{lost} turns of interrupted sessions are void")
        done = RunProgress(resources=resources, tasks=held_out(config, run))
        if has_shared_tasks(run):
            show.say(SHARED)
        Ledger(resources.store).hold_out(task.key for task in done.tasks)
        for stage in stages_of(config):
            work = partial(stage.work, done)
            done.results[stage.name] = await resources.stage(stage.name, stage.schema, work)
        turned = None
        if "cycle" in config.schedule.stages:
            if missing := unnamed(differences(config, resources.store)):
                show.say(f"the gate will admit nobody: {said(missing)}")
            champion = Champion(version=done.version, measured=done.results["after"])
            turned = await cycles(resources, live(resources), champion, done.tasks, config.schedule.cycles)
        else:
            deploy(resources.store, done.version)
        claimed = None
        if config.bench.claim:
            newest = turned.served.version if turned else done.version
            work_of_claim = partial(claim, resources, 0, newest)
            claimed = await resources.stage(claim_stage(config.bench.claim), Claimed, work_of_claim)
        counted = integrity(resources.store, _engines(done.results, turned))
    own = {"taught": "teach", "before": "before", "practised": "practice", "after": "after"}
    return RunResult(
        seed=config.seed,
        resumed=resumed,
        seconds=run.seconds(),
        cpu_s=round(cpu_seconds(), 1),
        **{key: done.results.get(name) for key, name in own.items()},
        elsewhere={name: result for name, result in done.results.items() if "-" in name},
        turned=turned,
        integrity=counted,
        claimed=claimed,
    )


def _engines(results: Mapping[str, Any], turned: Turned | None) -> list[Counters]:
    """Return what the engines of all stages, cycles and trials counted, each once."""
    counters = [result.engine for result in results.values() if isinstance(result, Measured | Practised)]
    return counters + (turned.engines if turned else [])


def integrity(store: Store, engines: Sequence[Counters]) -> Integrity:
    """Count turns without a state, prompts without an end, prompts trained twice, weights that were refused,
    and requests that an engine failed."""
    ledger = Ledger(store)
    return Integrity(
        turns_unaccounted=ledger.unaccounted(),
        prompts_unended=ledger.unended(),
        prompts_trained_twice=ledger.trained_twice(),
        digest_mismatches=_total(engines, "mismatches"),
        requests_failed_by_swap=_total(engines, "failed"),
        swaps=_total(engines, "swaps"),
        turns_by_state={str(state): n for state, n in ledger.states().items()},
    )


def _total(engines: Sequence[Counters], name: str) -> int:
    return int(sum(engine[name] for engine in engines))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all its ended children, in seconds."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
