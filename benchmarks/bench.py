"""The figures of the session benchmark: whether its intervals cover, and what it says it detects is detected.

    python -m benchmarks.bench [--suites 2000] [--tasks 40] [--passes 2] [--kills 6] [--json]

- `coverage`: of simulated suites (few repositories, of one size and of several; tasks hard, middling and
  easy), the share whose 95 % interval holds the truth, for the mean, for best of 4 and for the difference of
  two versions. The truth is that of all repositories the suite could have been drawn from.
- `detectable`, `detected`: one comparison of two versions on a suite states what it would detect with 80 %;
  another comparison, of versions that differ by just that, is made on another suite of the same make.
- `stated_size`: one version fails on a planted share of the tasks that the other solves as it can. One
  comparison states what it would detect, at the share at which that is the difference planted on the average;
  the next one has just that planted, and `rate` is how often it is told apart.
- `planted`: the whole path with a scripted model behind a URL, a real harness and real sandboxes. The second
  version fails on a planted share of the tasks that the first one solves.
- `killed`: the same run in another process, killed with SIGKILL at random sessions, then finished. Nothing is
  lost or counted twice when as many passes have a result as there are; `sessions` counts those cut off too.

Intervals are Wilson's, 95 %.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.endpoint import Message, asked_for, endpoint, says, solves
from numpy.typing import NDArray

from benchmarks.measure import Run, table
from ostinato.bench import estimate
from ostinato.bench.compare import figures
from ostinato.bench.contest import Contest, Results, Side
from ostinato.bench.endpoint import Endpoint
from ostinato.bench.suite import BenchSuite, open_suite, seal
from ostinato.deploy.outcomes import best_of
from ostinato.deploy.statistics import Estimate, half_width, wilson
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import EpisodeRunner
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.tasks.pebble import Pebble, provide
from ostinato.tasks.pebble.source import pebbles

Row = dict[str, Any]
Rng = np.random.Generator
Floats = NDArray[np.float64]
DESIGNS = {
    "6 repositories of 30": [30] * 6,
    "12 repositories of 10 to 20": [10, 20] * 6,
    "20 repositories of 15": [15] * 20,
    "20 repositories of 5 to 40": [5, 10, 20, 40] * 5,
    "40 repositories of 3 to 8": [3, 8] * 20,
}
ALIKE = ("6 repositories of 30", "20 repositories of 15", "40 repositories of 3 to 8")
"""The designs whose repositories are of about one size, for which the detectable difference is exact."""
EASE = {"hard": -2.0, "middling": 0.0, "easy": 2.0}
PASSES, BEST = 8, 4
OF_REPOSITORY, OF_TASK, MOVED_REPOSITORY, MOVED_TASK = 0.8, 1.2, 0.3, 0.5
"""Standard deviations on the scale of log-odds: of difficulty, and of the change by another version."""
CHUNK = 250
FIXED_POINT = 8
"""The rounds after which the planted share agrees with what is stated."""
LEANS = 37
CONFIG = HarnessConfig(max_context=20_000, max_tokens=400)


def rate(happened: int, n: int) -> Row:
    score = wilson(happened, n)
    return {"rate": happened / n, "low": score.low, "high": score.high, "n": n}


def odds(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def drawn(rng: Rng, n: int, clusters: Floats, ease: float) -> tuple[Floats, Floats]:
    """Return the solve rates of two versions on `n` suites, each (n, tasks)."""
    tasks, groups = clusters.shape
    hard = ease + rng.normal(0, OF_REPOSITORY, (n, groups)) @ clusters.T + rng.normal(0, OF_TASK, (n, tasks))
    moved = rng.normal(0, MOVED_REPOSITORY, (n, groups)) @ clusters.T + rng.normal(0, MOVED_TASK, (n, tasks))
    return odds(hard), odds(hard + moved)


def truth(ease: float) -> dict[str, float]:
    """Return the means over all repositories and tasks there could be."""
    rng = np.random.default_rng(0)
    one, other = drawn(rng, 2000, np.eye(500), ease)
    best = 1 - (1 - one) ** BEST
    return {"mean": one.mean(), "best": best.mean(), "difference": (other - one).mean()}


def solved(rng: Rng, p: Floats) -> Floats:
    return np.asarray(rng.random((*p.shape, PASSES)) < p[..., None], dtype=float)


def coverage(suites: int, seed: int) -> tuple[Row, Row]:
    """Return coverage, and detection, by design and ease."""
    covered: Row = {}
    detected: Row = {}
    for design, sizes in DESIGNS.items():
        clusters = estimate.member([str(group) for group, size in enumerate(sizes) for _ in range(size)])
        for ease, level in EASE.items():
            name, true = f"{design}, {ease}", truth(level)
            rng = np.random.default_rng([seed, len(covered)])
            held = {"mean": 0, "best": 0, "difference": 0}
            found: list[Estimate] = []
            stated: list[Floats] = []
            for _ in range(suites // CHUNK):
                one, other = drawn(rng, CHUNK, clusters, level)
                a, b = solved(rng, one), solved(rng, other)
                for what, values in (("mean", a.mean(axis=-1)), ("best", best_of(a, BEST))):
                    _, low, high = estimate.share(values, clusters)
                    held[what] += int(((low <= true[what]) & (true[what] <= high)).sum())
                gap = estimate.difference(b.mean(axis=-1) - a.mean(axis=-1), clusters)
                off = np.abs(gap.value - true["difference"])
                held["difference"] += int((off <= half_width(gap, estimate.LEVEL / 2)).sum())
                found.append(gap)
                stated.append(says_detectable(gap, b.mean(axis=-1) - a.mean(axis=-1)))
            n = CHUNK * (suites // CHUNK)
            covered[name] = {what: rate(count, n) for what, count in held.items()}
            detected[name] = detection(found, np.concatenate(stated), true["difference"])
    return covered, detected


def says_detectable(gap: Estimate, differences: Floats) -> Floats:
    """Return what each of many comparisons states as detectable, as `estimate.detectable` does for one.

    The factor is smooth, so that a table of it is enough for all.
    """
    freedom = float(gap.freedom.flat[0])
    leans = np.linspace(-estimate.MOST_LEAN, estimate.MOST_LEAN, LEANS)
    factors = [estimate.factor(freedom, float(lean)) for lean in leans]
    return np.asarray(np.interp(estimate.lean(gap, differences), leans, factors) * gap.error)


def detection(found: Sequence[Estimate], stated: Floats, true: float) -> Row:
    """Return how often what one suite says is detectable is detected on the next one.

    The next suite's estimate is moved by the stated difference, which adds no noise of its own.
    """
    errors = np.concatenate([each.error for each in found])
    values = np.concatenate([each.value for each in found]) - true
    moved = Estimate(
        value=values + np.roll(stated, 1),
        error=errors,
        freedom=np.concatenate([each.freedom for each in found]),
    )
    hits = int((estimate.two_sided(moved) <= estimate.LEVEL).sum())
    freedom = float(found[0].freedom.flat[0])
    return rate(hits, len(errors)) | {"detectable": float(np.median(stated)), "freedom": freedom}


def stated_size(suites: int, seed: int) -> Row:
    """Return how often a planted failure of the stated size is told apart, by design of the suite."""
    found: Row = {}
    for number, design in enumerate(ALIKE):
        sizes = DESIGNS[design]
        clusters = estimate.member([str(group) for group, size in enumerate(sizes) for _ in range(size)])
        rng, share = np.random.default_rng([seed, 7, number]), np.full(CHUNK, 0.1)
        for _ in range(FIXED_POINT):
            stated, solve = with_failures(rng, clusters, share)[1:]
            share = np.full(CHUNK, min(1.0, float(stated.mean()) / solve))
        hits, sizes_stated = 0, list[float]()
        for _ in range(suites // CHUNK):
            stated, solve = with_failures(rng, clusters, share)[1:]
            gap = with_failures(rng, clusters, np.minimum(1.0, stated / solve))[0]
            hits += int((estimate.two_sided(gap) <= estimate.LEVEL).sum())
            sizes_stated.append(float(stated.mean()))
        n = CHUNK * len(sizes_stated)
        stated_mean = float(np.mean(sizes_stated))
        found[design] = rate(hits, n) | {"planted": float(share[0]), "stated": stated_mean}
    return found


def with_failures(rng: Rng, clusters: Floats, share: Floats) -> tuple[Estimate, Floats, float]:
    """Return comparisons with a version that fails on a share of the tasks, one for each share.

    With them, what each states as detectable, and the mean of the version that does not fail.
    """
    one, _ = drawn(rng, len(share), clusters, EASE["middling"])
    other = np.where(rng.random(one.shape) < share[:, None], 0.0, one)
    differences = solved(rng, other).mean(axis=-1) - solved(rng, one).mean(axis=-1)
    gap = estimate.difference(differences, clusters)
    return gap, says_detectable(gap, differences), float(one.mean())


# ---------------------------------------------------------------- the whole path


def suite_of(folder: Path, n: int) -> tuple[BenchSuite, dict[str, Pebble]]:
    """Write pebbles as a suite, each with an instruction of its own, and return them by it."""
    made: dict[str, Pebble] = {}
    fixes = (pebble for pebble in pebbles("seeds", 11) if pebble.kind == "fix")
    for pebble in islice(fixes, n):
        task = provide(pebble, folder / "suite" / pebble.id)
        text = f"{pebble.instruction} ({pebble.id})"
        (task.directory / "instruction.md").write_text(text)
        made[text] = pebble
    return seal(folder / "suite", "planted"), made


async def contest(folder: Path, url: str, name: str, passes: int) -> Results:
    backend = ProcessBackend()
    try:
        async with Endpoint(url, "", model="m") as client:
            side = Side(name=name, runner=EpisodeRunner(client, backend, Verifier(backend), CONFIG))
            runner = Contest(Store.open(folder / "bench.db"), open_suite(folder / "suite"), passes=passes)
            return await runner.run(side)
    finally:
        await backend.aclose()


async def planted(folder: Path, tasks: int, passes: int, share: float) -> Row:
    """Return the difference that the benchmark finds between versions that differ by `share`."""
    suite, made = suite_of(folder, tasks)
    fails = {
        pebble.id for pebble in random.Random(1).sample(sorted(made.values(), key=str), round(share * tasks))
    }
    results: dict[str, Results] = {}
    for name, failing in (("before", set[str]()), ("after", fails)):

        def model(_: str, messages: Sequence[Message], failing: set[str] = failing) -> Message:
            pebble = asked_for(made, messages)
            return says("done") if pebble.id in failing else solves(pebble, messages)

        async with endpoint(model) as url:
            results[name] = await contest(folder, url, name, passes)
    (changes,) = figures(suite, passes, results).changes.values()
    found = changes["solved"]
    return {
        "tasks": tasks,
        "passes": passes,
        "planted": -len(fails) / tasks,
        "found": found.finding.value,
        "low": found.finding.low,
        "high": found.finding.high,
        "detectable": found.detectable,
        "told_apart": found.p <= estimate.LEVEL,
    }


async def killed(folder: Path, tasks: int, passes: int, kills: int) -> Row:
    """Return what a run has counted that was killed `kills` times and then finished."""
    suite_of(folder, tasks)
    rng, sessions, started = random.Random(2), set[str](), time.monotonic()

    due = asyncio.Event()
    left = 0

    def model(session: str, _: Sequence[Message]) -> Message:
        nonlocal left
        sessions.add(session)
        left -= 1
        if left == 0:
            due.set()
        return says("done")

    async with endpoint(model) as url:
        died = 0
        while True:
            due.clear()
            left = rng.randint(1, tasks * passes // (kills + 1)) if died < kills else 0
            command = [sys.executable, "-m", "benchmarks.bench", "--child", str(folder), url, str(passes)]
            child = await asyncio.create_subprocess_exec(*command)
            over, kill = asyncio.create_task(child.wait()), asyncio.create_task(due.wait())
            await asyncio.wait([over, kill], return_when=asyncio.FIRST_COMPLETED)
            kill.cancel()
            if over.done():
                break
            await asyncio.sleep(rng.uniform(0, 0.1))
            child.send_signal(signal.SIGKILL)
            await over
            died += 1
        store = Store.open(folder / "bench.db")
        rows = Contest(store, open_suite(folder / "suite"), passes=passes).results("child")
    return {
        "tasks": tasks,
        "passes": passes,
        "kills": died,
        "results": len(rows),
        "expected": tasks * passes,
        "sessions": len(sessions),
        "wall_s": round(time.monotonic() - started, 1),
    }


def show(found: Row) -> None:
    def text(row: Row) -> str:
        return f"{row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"

    detected = found["detection"]
    table(
        ["suite", "mean", "best of 4", "difference", "detectable", "detected"],
        [
            [
                name,
                *(text(row[what]) for what in ("mean", "best", "difference")),
                f"{detected[name]['detectable']:.3f}",
                text(detected[name]),
            ]
            for name, row in found["covered"].items()
        ],
    )
    for design, row in found["stated_size"].items():
        print(f"planted {row['planted']:.3f}, the stated size, {design}: told apart {text(row)}")
    print(f"\nplanted: {found['planted']}\nkilled: {found['killed']}")


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suites", type=int, default=2000, help="simulated suites of each kind")
    parser.add_argument("--tasks", type=int, default=40, help="tasks of the whole path")
    parser.add_argument("--passes", type=int, default=2, help="passes of the whole path")
    parser.add_argument(
        "--planted", type=float, default=0.3, help="share of tasks that the second version fails"
    )
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    covered, detected = coverage(options.suites, options.seed)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = asyncio.run(planted(Path(one), options.tasks, options.passes, options.planted))
        dead = asyncio.run(killed(Path(other), options.tasks, options.passes, options.kills))
    alike = [row for name, row in detected.items() if name.startswith(ALIKE)]
    hits, n = sum(round(row["rate"] * row["n"]) for row in alike), sum(row["n"] for row in alike)
    found: Row = {
        "coverage": min(row[what]["rate"] for row in covered.values() for what in row),
        "detectable": {name: row["detectable"] for name, row in detected.items()},
        "detected": rate(hits, n),
        "stated_size": stated_size(options.suites, options.seed),
        "covered": covered,
        "detection": detected,
        "planted": whole,
        "killed": dead,
    }
    show(found)
    run.finish(found, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        where, address, times = sys.argv[2:]
        asyncio.run(contest(Path(where), address, "child", int(times)))
    else:
        with Run("bench", "numpy", "scipy") as opened:
            main(opened)
