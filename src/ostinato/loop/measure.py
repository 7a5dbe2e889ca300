"""The benchmark at one version, on every held-out split."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ostinato.bench.run import Bench
from ostinato.harness.episode import Episode
from ostinato.loop.config import SPLITS, DemoConfig
from ostinato.loop.run import Run
from ostinato.loop.workshop import Workshop
from ostinato.tasks.pebble import Pebble, provide, sample
from ostinato.types import Arm, Task

HELD_OUT_SEED = 1_000_003
"""Where the seeds of the benchmark's tasks begin: the same whatever the run's seed, so runs can be
compared.
"""


def pebbles(split: str, first_seed: int) -> Iterator[Pebble]:
    """An endless stream of practice problems, each problem once."""
    seen = set()
    seed = first_seed
    while True:
        pebble = sample(split, seed)
        seed += 1
        if pebble.key not in seen:
            seen.add(pebble.key)
            yield pebble


def held_out(config: DemoConfig, run: Run) -> list[Task]:
    """The benchmark's tasks, written to the run folder when they are not there yet."""
    tasks = []
    for split in SPLITS:
        stream = pebbles(split, HELD_OUT_SEED)
        for _ in range(config.bench.tasks(split)):
            pebble = next(stream)
            tasks.append(provide(pebble, run.tasks / "held-out" / pebble.id))
    return tasks


async def measure(shop: Workshop, version: int, tasks: Sequence[Task]) -> dict[str, Any]:
    """Scores, behaviour and, task by task, what was solved."""
    engine = await shop.engine(f"engine-bench-{version}", "--version", str(version))
    name = f"bench-{version}"
    shop.put_arm(Arm(name=name, version=version, share=0.0, engine=engine.url))
    bench = Bench(shop.runner(shop.client("bench", name)), shop.store)
    solved = 0
    with shop.show.stage(f"bench of version {version}", total=len(tasks)) as bar:

        def done(episode: Episode) -> None:
            nonlocal solved
            solved += episode.solved
            bar.more(f"{solved} solved of {len(tasks)}")

        measured = await bench.measure(version, tasks, done)
    stats = await shop.stats(engine)
    await shop.services.stop(engine)
    return {
        "version": version,
        "report": measured.report.id,
        "harness": measured.report.harness,
        "scores": {split: asdict(score) for split, score in measured.report.scores.items()},
        "rates": dict(measured.report.rates),
        "solved": list(measured.solved),
        "engine": stats,
    }
