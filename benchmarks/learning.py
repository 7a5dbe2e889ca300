"""The gains of practice and of the live cycle: the whole circle for several seeds, on tasks never practised.

    python -m benchmarks.learning [--seeds 1 2 3] [--directory runs/learning] [--json]
    python -m benchmarks.learning --demo --seeds 1 2 3 4 5 --json      # the demo as it ships
    python -m benchmarks.learning --peer trl …    (see benchmarks/learning_trl.py)

Each seed is one `ostinato demo` in its own folder. A folder with a report is read, not run again; a run
without one goes on where it stopped. The peer in the same run is version 0, the supervised policy without
practice.

Intervals are 95 % for a number of tasks fixed beforehand; tasks that share what their split holds out are one
cluster, since they are won or lost together. A solve rate's interval is Wilson's for as many tasks
as the clusters are worth, a gain's is a jackknife over clusters of the same tasks before and after. The gain
over seeds has Student's t-interval for the mean of as many runs. The A/B's bounds hold at every look, each
side at the level its verdict states. `machine` and `cpu_s` describe this run of the benchmark; a seed's own
`wall_s` and `cpu_s` come from its report, whose `cpu_s` leaves out what ran before it was resumed. `origin`
says whether the report was `read`, `resumed` or `run` here.

`--demo` runs the demo with its own held-out tasks and passes. Its JSON has at the top `gain_low` (the least
lower bound of the seeds' gains on `seeds`, in points), `intervals` (each seed's gain in points), `n` (tasks
of that split), and `cpu_s` and `wall_s` (the most of any seed, in place of this program's own).
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_trl import compare
from benchmarks.measure import Run, table
from ostinato.deploy.gate import change
from ostinato.deploy.outcomes import TaskOutcome, clusters_of
from ostinato.deploy.statistics import clustered, interval
from ostinato.loop.config import HELD_OUT

Row = dict[str, Any]

TASKS = 288
"""The number of held-out tasks of every split; the demo itself measures fewer, in more passes."""
LEVEL = 0.025
"""The level of each side of an interval."""


class LearningError(RuntimeError):
    """The run of a seed failed, or its folder holds something else."""


def turn(seed: int, directory: Path, settings: Sequence[str]) -> str:
    """Run the demo of a seed unless its report exists; return the origin of the report."""
    if (directory / "report.json").exists():
        return "read"
    resumed = (directory / "stages").exists()
    status = demo(seed, directory, settings)
    if status:
        raise LearningError(f"seed {seed}: `ostinato demo` ended with {status}: see {directory}/logs")
    return "resumed" if resumed else "run"


def demo(seed: int, directory: Path, settings: Sequence[str]) -> int:
    """Run the demo to its end, with progress on stderr; return the exit status."""
    command = ["demo", "--seed", str(seed), "--directory", str(directory), "--json"]
    for setting in settings:
        command += ["--set", setting]
    # In a session of its own it gets one signal to stop, from here, and leaves no process behind.
    with subprocess.Popen(
        [sys.executable, "-m", "ostinato.cli", *command], stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def read(seed: int, directory: Path, origin: str) -> Row:
    """Return the figures of one seed's run folder."""
    report = _load(directory / "report.json")
    if report["seed"] != seed:
        raise LearningError(f"{directory} holds a run of seed {report['seed']}: name another folder")
    done = [_outcomes(directory / "stages" / f"{name}.json") for name in ("before", "after")]
    (cycle,) = report["cycles"]
    trial = next(iter(report["trials"]), None)
    return {
        "seed": seed,
        "origin": origin,
        "splits": splits(report, *done),
        "verdict": trial["verdict"] if trial else cycle["gate"]["decision"],
        "reason": trial["reason"] if trial else cycle["gate"]["reason"],
        "gate": cycle["gate"],
        "ab": ab(trial["test"] if trial else {}),
        "wall_s": report["wall_s"],
        "cpu_s": report["cpu_s"],
        "integrity": report["integrity"],
    }


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def _outcomes(path: Path) -> list[TaskOutcome]:
    """Return the outcome of each task, without what the gain does not need."""
    return [
        TaskOutcome(task=row["task"], split=row["split"], cluster=row["cluster"], solved=tuple(row["solved"]))
        for row in _load(path)["result"]["measurement"]["outcomes"]
    ]


def splits(
    report: Mapping[str, Any], before: Sequence[TaskOutcome], after: Sequence[TaskOutcome]
) -> dict[str, Row]:
    """Return version 0, the practised version, their gain and ratio, and the live gain, by split."""
    held, cycled = report["held_out"], report["cycles"][-1]["held_out"]
    by_split = {}
    for split in HELD_OUT:
        peer, ours = held["before"][split], held["after"][split]
        pairs = [(a, b) for a, b in zip(before, after, strict=True) if a.split == split]
        if any(a.task != b.task for a, b in pairs):
            raise LearningError(f"split {split}: version 0 and the practised version did other tasks")
        gains = np.array([b.mean("solved") - a.mean("solved") for a, b in pairs])
        if abs(gains.mean() - (ours["solve"] - peer["solve"])) > 1e-9:
            raise LearningError(f"split {split}: the report and the outcomes of its stages disagree")
        clusters = clusters_of([a for a, _ in pairs])
        by_split[split] = {
            "n": peer["n"],
            "clusters": clusters.shape[1],
            "before": peer,
            "after": ours,
            "gain": asdict(interval(change(gains, clusters), LEVEL)) | {"estimate": float(gains.mean())},
            "ratio": ours["solve"] / peer["solve"] if peer["solve"] else None,
            "live": cycled.get(split),
        }
    return by_split


def ab(evidence: Mapping[str, Any]) -> Row | None:
    """Return challenger minus champion per session; None if there was no trial or too few users."""
    if "promoting" not in evidence:
        return None
    return {**evidence["promoting"], "n": evidence["sessions"], "level": evidence["alpha"]}


def smallest(rows: Sequence[Row]) -> Row:
    """Return the worst seed's gain on `seeds`, and the lowest of the lower bounds."""
    gains = [row["splits"]["seeds"]["gain"] for row in rows]
    low = min(gain["low"] for gain in gains)
    return {"gain": min(gain["estimate"] for gain in gains), "low": low, "n": len(rows)}


def points(rows: Sequence[Row]) -> Row:
    """Return the figures of several demos: gains on `seeds` in points, and the most that a seed cost."""
    gains = [row["splits"]["seeds"]["gain"] for row in rows]
    intervals = {
        str(row["seed"]): {end: round(100 * gain[end], 1) for end in ("estimate", "low", "high")}
        for row, gain in zip(rows, gains, strict=True)
    }
    return {
        "gain_low": min(each["low"] for each in intervals.values()),
        "intervals": intervals,
        "n": rows[0]["splits"]["seeds"]["n"],
        "cpu_s": max(row["cpu_s"] for row in rows),
        "wall_s": max(row["wall_s"] for row in rows),
    }


def across(rows: Sequence[Row]) -> Row | None:
    """Return the mean gain on `seeds` over runs, with Student's t-interval; None for one run."""
    if len(rows) < 2:
        return None
    gains = [row["splits"]["seeds"]["gain"]["estimate"] for row in rows]
    return asdict(interval(clustered(gains, np.ones(len(gains))), LEVEL)) | {"n": len(gains)}


def show(row: Row) -> None:
    """Print one seed."""
    print(f"seed {row['seed']} ({row['origin']}): wall {row['wall_s']:,.0f} s, CPU {row['cpu_s']:,.0f} s")
    header = ["split", "n", "version 0", "after practice", "gain", "ratio", "after the live cycle"]
    table(header, [[split, *cells(each)] for split, each in row["splits"].items()])
    print(f"verdict: {row['verdict']} ({row['reason']})")
    print(f"gate: {row['gate']['decision']} ({row['gate']['reason']})")
    print("A/B: " + (f"{signed(row['ab'])} n={row['ab']['n']}" if row["ab"] else "not measured"))
    counted = dict(row["integrity"])
    states = counted.pop("turns_by_state")
    print(f"integrity: {listed(counted)}\nturns: {listed(states)}", end="\n\n")


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def cells(split: Row) -> list[str]:
    ratio = f"{split['ratio']:.2f}" if split["ratio"] is not None else "-"
    live = rate(split["live"]) if split["live"] else "not measured"
    gain = signed(split["gain"], percent=True)
    return [str(split["n"]), rate(split["before"]), rate(split["after"]), gain, ratio, live]


def rate(score: Row) -> str:
    return f"{score['solve']:.1%} [{score['low']:.1%}, {score['high']:.1%}]"


def signed(interval: Row, *, percent: bool = False) -> str:
    style = "+.1%" if percent else "+.3f"
    low, high = format(interval["low"], style), format(interval["high"], style)
    return f"{interval['estimate']:{style}} [{low}, {high}]"


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--directory", type=Path, help="the folder of the seeds' runs")
    parser.add_argument("--demo", action="store_true", help="run the demo as it ships, whose tasks are fewer")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as cleanly as for an interrupt
    held_out = ", ".join(f"{split} = {TASKS}" for split in HELD_OUT)
    settings = () if options.demo else (f"tasks.held_out={{{held_out}}}", "bench.passes=1")
    folder = options.directory or Path("runs/learning-demo" if options.demo else "runs/learning")
    rows = []
    try:
        for seed in options.seeds:
            directory = folder / f"seed-{seed}"
            rows.append(read(seed, directory, turn(seed, directory, settings)))
            show(rows[-1])
    except LearningError as error:
        sys.exit(f"benchmarks.learning: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmarks.learning: stopped, the same command goes on from here")
    worst = smallest(rows)
    print(
        f"smallest gain on seeds over {worst['n']} seeds: {worst['gain']:+.1%}, "
        f"smallest lower bound {worst['low']:+.1%}"
    )
    mean = across(rows)
    if mean is not None:
        print(f"mean gain on seeds of a run, over {mean['n']} seeds: {signed(mean, percent=True)}, 95 %")
    figures = {"peer": "version 0", "seeds": rows, "smallest": worst, "across": mean}
    run.finish(figures | (points(rows) if options.demo else {}), as_json=options.json)


if __name__ == "__main__":
    with Run("learning", "torch") as opened:
        if sys.argv[1:3] == ["--peer", "trl"]:
            peers, as_json = compare(sys.argv[3:], opened)
            opened.finish(peers, as_json=as_json)
        else:
            main(opened)
