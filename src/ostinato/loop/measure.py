"""The benchmark at one version, on every held-out split."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ostinato.bench.run import Bench
from ostinato.deploy.outcomes import Measurement, TaskOutcome
from ostinato.harness.episode import Episode
from ostinato.loop.config import SPLITS, DemoConfig
from ostinato.loop.run import Run
from ostinato.loop.workshop import Result, Workshop
from ostinato.tasks.pebble import Pebble, provide, sample
from ostinato.types import Arm, Report, Score, Task

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


async def measure(shop: Workshop, version: int, tasks: Sequence[Task], *, passes: int = 1) -> Result:
    """Scores, behaviour and, task by task and pass by pass, what was solved."""
    engine = await shop.engine(f"engine-bench-{version}", "--version", str(version))
    name = f"bench-{version}"
    shop.put_arm(Arm(name=name, version=version, share=0.0, engine=engine.url))
    bench = Bench(shop.runner(shop.client("bench", name)), shop.store)
    solved, total = 0, passes * len(tasks)
    with shop.show.stage(f"bench of version {version}", total=total) as bar:

        def done(episode: Episode) -> None:
            nonlocal solved
            solved += episode.solved
            bar.more(f"{solved} solved of {total}")

        measured = await bench.measure(version, tasks, passes=passes, on_done=done)
    stats = await shop.stats(engine)
    await shop.services.stop(engine)
    report = measured.report
    return {
        "version": version,
        "report": report.id,
        "harness": report.harness,
        "scores": {split: asdict(score) for split, score in report.scores.items()},
        "rates": dict(report.rates),
        "outcomes": [asdict(outcome) for outcome in measured.outcomes],
        "engine": stats,
    }


def measurement(result: Result) -> Measurement:
    """What `measure` gave, from its stage's result, which may have been read from the run folder."""
    told = {name: result[name] for name in ("version", "rates", "harness")}
    scores = {split: Score(**score) for split, score in result["scores"].items()}
    outcomes = []
    for row in result["outcomes"]:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        outcomes.append(TaskOutcome(**values))
    return Measurement(report=Report(**told, scores=scores, id=result["report"]), outcomes=tuple(outcomes))
