"""The whole circle, once: teach, practise, deploy, learn from developers, gate, A/B, promote.

::

    prepare ─► teach ─► measure ─► practise ─► measure ─► live ─► cycle ─► report
                 │                    │                    │        └ reward, train, gate, A/B, verdict
                 └ teacher + SFT      └ actor + learner    └ simulated developers

Each stage leaves its result in the run folder and is skipped when it is there already.
"""

import resource

from ostinato.loop.config import DemoConfig
from ostinato.loop.cycle import cycle
from ostinato.loop.integrity import integrity
from ostinato.loop.live import live, settled
from ostinato.loop.measure import held_out, measure
from ostinato.loop.practise import practise
from ostinato.loop.prepare import prepare
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.loop.teach import teach
from ostinato.loop.workshop import Result, open_workshop
from ostinato.store.ledger import Ledger


async def demo(config: DemoConfig, run: Run, show: Show, *, resumed: bool = False) -> Result:
    """Runs every stage that the run folder does not hold yet; gives the report."""
    await prepare(config, run)
    async with open_workshop(config, run, show) as shop:
        show.say(f"sandbox: {shop.backend.name} · run folder: {run.directory}")
        if resumed and (lost := Ledger(shop.store).void_interrupted()):
            show.say(f"{lost} turns of interrupted sessions are void")
        tasks = held_out(config, run)
        taught = await shop.stage("teach", lambda: teach(shop))
        before = await shop.stage("before", lambda: measure(shop, 0, tasks))
        practised = await shop.stage("practice", lambda: practise(shop))
        champion = practised["version"]
        passes = config.bench.passes
        after = await shop.stage("after", lambda: measure(shop, champion, tasks, passes=passes))
        lived = await shop.stage("live", lambda: live(shop, champion))
        cycled = await shop.stage("cycle", lambda: cycle(shop, champion, tasks, after, as_of=settled()))
        stages = [taught, before, practised, after, lived, cycled]
        counted = integrity(shop.store, stages)
    return {
        "seed": config.seed,
        "resumed": resumed,
        "wall_s": round(sum(each["seconds"] for each in stages), 1),
        "cpu_s": round(cpu_seconds(), 1),
        "teach": taught,
        "practice": {"held_out": {"before": before["scores"], "after": after["scores"]}, **practised},
        "rates": {"before": before["rates"], "after": after["rates"]},
        "live": lived,
        "cycle": cycled,
        "integrity": counted,
    }


def cpu_seconds() -> float:
    """CPU time of this process and of all its ended children, in seconds."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
