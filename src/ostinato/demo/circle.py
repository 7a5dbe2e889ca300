"""The whole circle, once: teach, practise, deploy, learn from developers, gate, A/B, promote.

::

    prepare ─► teach ─► measure ─► practise ─► measure ─► cycle ─► report
                 │                    │                     └ live, reward, train, gate, A/B, verdict
                 └ teacher + SFT      └ actor + learner

Each stage leaves its result in the run folder and is skipped when it is there already.
"""

import resource

from ostinato.demo.config import DemoConfig
from ostinato.demo.developers import SimulatedTraffic
from ostinato.demo.integrity import integrity
from ostinato.demo.pebbles import held_out
from ostinato.demo.practise import practise
from ostinato.demo.prepare import prepare
from ostinato.demo.results import DemoResult, Practised, Taught
from ostinato.demo.teach import teach
from ostinato.loop.base import Display
from ostinato.loop.cycle import cycles
from ostinato.loop.measure import measure
from ostinato.loop.results import Champion, Measured
from ostinato.loop.run import Run
from ostinato.loop.workshop import open_workshop
from ostinato.store.ledger.ledger import Ledger

STAGES = ("teach", "before", "practice", "after", "cycle-1", "cycle-1/live", "cycle-1/collect")


async def demo(config: DemoConfig, run: Run, show: Display, *, resumed: bool = False) -> DemoResult:
    """Run every stage that the run folder does not hold yet."""
    await prepare(config, run)
    async with open_workshop(config, run, show) as shop:
        show.say(f"sandbox: {shop.backend.name} · run folder: {run.directory}")
        if resumed and (lost := Ledger(shop.store).void_interrupted()):
            show.say(f"{lost} turns of interrupted sessions are void")
        tasks, passes = held_out(config, run), config.bench.passes
        taught = await shop.stage("teach", Taught, lambda: teach(shop, config))
        before = await shop.stage("before", Measured, lambda: measure(shop, 0, tasks))
        practised = await shop.stage("practice", Practised, lambda: practise(shop, config))
        version = practised.version
        after = await shop.stage("after", Measured, lambda: measure(shop, version, tasks, passes=passes))
        champion = Champion(version=version, measured=after)
        (cycled,) = await cycles(shop, SimulatedTraffic(shop, config), champion, tasks, count=1)
        engines = [before.engine, practised.engine, after.engine, *cycled.engines.values()]
        counted = integrity(shop.store, engines)
    return DemoResult(
        seed=config.seed,
        resumed=resumed,
        seconds={stage: run.seconds(stage) for stage in STAGES},
        cpu_s=round(cpu_seconds(), 1),
        taught=taught,
        before=before,
        practised=practised,
        after=after,
        cycled=cycled,
        integrity=counted,
    )


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all its ended children, in seconds."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
