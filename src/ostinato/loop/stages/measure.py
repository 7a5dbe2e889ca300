"""The benchmark of one version on held-out tasks."""

from collections.abc import Sequence

from ostinato.bench.run import Bench
from ostinato.harness.episode import Episode
from ostinato.loop.base import Shop
from ostinato.loop.results import Measured
from ostinato.types import Arm, Task


async def measure(
    shop: Shop, version: int, tasks: Sequence[Task], *, passes: int = 1, profile: str | None = None
) -> Measured:
    """Return scores, behaviour and the outcome of every task in every pass, under the run's own profile or
    under another one."""
    arm = Arm(name=f"bench-{version}", version=version, share=0.0, engines=())
    solved, total = 0, passes * len(tasks)
    async with shop.serving(arm) as engine:
        bench = Bench(
            shop.runner(shop.client("bench", arm.name), profile), shop.store, shop.config.bench.at_once
        )
        under = "" if profile is None else f" under {profile}"
        with shop.show.stage(f"bench of version {version}{under}", total=total) as bar:

            def count(episode: Episode) -> None:
                nonlocal solved
                solved += episode.solved
                bar.more(f"{solved} solved of {total}")

            measurement = await bench.measure(version, tasks, passes=passes, on_done=count)
        return Measured(measurement=measurement, engine=await shop.counters(engine))
