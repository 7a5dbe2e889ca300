"""The whole circle: the stages that a run's file lists. One whose result the run folder has is skipped.

::

    prepare ─► teach ─► before ─► practice ─► after ─► cycle … ─► deployed for `ostinato serve`
                 │                   │                   └ live, reward, train, gate, A/B, verdict
                 └ teacher + SFT     └ actor + learner
"""

import resource
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from ostinato.loop.base import Display, LiveTraffic
from ostinato.loop.config import RunConfig
from ostinato.loop.cycle import cycles, deploy
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.results import (
    Champion,
    Counters,
    Integrity,
    Measured,
    Practised,
    Published,
    RunResult,
    Taught,
)
from ostinato.loop.run import Run
from ostinato.loop.stages.learn import publish
from ostinato.loop.stages.measure import measure
from ostinato.loop.stages.practise import practise
from ostinato.loop.stages.prepare import prepare
from ostinato.loop.stages.problems import held_out, unpaid
from ostinato.loop.stages.teach import teach
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger

T = TypeVar("T")


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

        async def listed(name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T | None:
            return await resources.stage(name, schema, work) if name in config.schedule.stages else None

        async def measured(name: str, version: int, passes: int = 1) -> Measured | None:
            for other in config.bench.profiles if name in config.schedule.stages else ():
                stage, under = f"{name}-{other}", partial(measure, passes=passes, profile=other)
                elsewhere[stage] = await resources.stage(
                    stage, Measured, partial(under, resources, version, tasks)
                )
            return await listed(name, Measured, lambda: measure(resources, version, tasks, passes=passes))

        elsewhere: dict[str, Measured] = {}
        tasks, passes = held_out(config, run), config.bench.passes
        Ledger(resources.store).hold_out(task.key for task in tasks)
        if "teach" not in config.schedule.stages:
            await resources.stage("publish", Published, lambda: publish(resources))
        taught = await listed("teach", Taught, lambda: teach(resources))
        before = await measured("before", 0)
        practised = await listed("practice", Practised, lambda: practise(resources))
        version = practised.version if practised else 0
        after = await measured("after", version, passes)
        cycled = []
        if after is not None and "cycle" in config.schedule.stages:
            champion = Champion(version=version, measured=after)
            cycled = await cycles(resources, live(resources), champion, tasks, config.schedule.cycles)
        if not cycled:
            deploy(resources.store, version)
        counters = [stage.engine for stage in (before, practised, after, *elsewhere.values()) if stage]
        counters += [engine for cycle in cycled for engine in cycle.engines.values()]
        counted = integrity(resources.store, counters)
    return RunResult(
        seed=config.seed,
        resumed=resumed,
        seconds=run.seconds(),
        cpu_s=round(cpu_seconds(), 1),
        taught=taught,
        before=before,
        practised=practised,
        after=after,
        elsewhere=elsewhere,
        cycles=tuple(cycled),
        integrity=counted,
    )


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
