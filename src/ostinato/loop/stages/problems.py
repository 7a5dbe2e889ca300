"""The problems of a run: endless streams of pebbles, and the held-out ones of the benchmark."""

from collections.abc import Iterator

from ostinato.loop.config import RunConfig
from ostinato.loop.run import Run
from ostinato.tasks.pebble import TRAIN, Pebble, provide, sample
from ostinato.types import Task

HELD_OUT_SEED = 1_000_003
"""The first seed of the benchmark's tasks: the same whatever the run's seed, so that runs can be compared."""
SEEDS = {"lessons": 0, "practice": 500_000, "live": 600_000, "ab": 700_000, "corpus": 900_000}
"""The first seed of each stream, within the million of the run's own seed."""


def pebbles(split: str, first_seed: int) -> Iterator[Pebble]:
    """Yield the problems of a split without end, each problem once."""
    keys = set()
    seed = first_seed
    while True:
        pebble = sample(split, seed)
        seed += 1
        if pebble.key not in keys:
            keys.add(pebble.key)
            yield pebble


def stream(config: RunConfig, purpose: str) -> Iterator[Pebble]:
    """Yield the problems of the run's own seed for one purpose, a key of `SEEDS`."""
    return pebbles(TRAIN, config.seed * 1_000_000 + SEEDS[purpose])


def held_out(config: RunConfig, run: Run) -> list[Task]:
    """Return the benchmark's tasks, which are written to the run folder when they are not there yet."""
    tasks = []
    for split, count in config.tasks.held_out.items():
        problems = pebbles(split, HELD_OUT_SEED)
        for _ in range(count):
            pebble = next(problems)
            tasks.append(provide(pebble, run.tasks / "held-out" / pebble.id))
    return tasks
