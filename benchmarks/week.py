"""Simulated weeks: does what people feel rise, is what is planted promoted, and does a kill change anything?

    python -m benchmarks.week [--parts runs/week-parts] [--only learnt independent …] [--shuffled] [--json]

Each part leaves a file in the folder, and the same command goes on with those that are missing; a week that
was cut off goes on where it was.

- `learnt`: weeks of the shipped cycle with real training, `--cycles` on the first seed and `--fewer` on each
  of the others. `satisfaction` is the hidden satisfaction of each honest developer with the last version less
  that with the first, on the same requests and luck, clustered by developer; `fresh` is the same for
  developers that the week never met. `satisfaction_low` is the least lower bound of any seed.
- `independent`: the same with the developers that were written independently, on the first three seeds.
- `shuffled` (also `--shuffled`): weeks of smaller trials in which each session shows the reactions of another
  one, so that there is nothing to learn: `promotions`, trials that met people, and hidden satisfaction.
- `null`: the peer. Drawn candidates (`week_drawn.py`) that learnt nothing: equal to the champion, or random
  steps of the size of a learner's first. None goes through a gate, so that all meet people.
- `bad`: drawn candidates that are planted to be worse (`week_planted.py`), every other fifty without a gate;
  `bad_promoted` is their promoted share.
- `real`: planted candidates of both sorts in the whole cycle, with store, ledger, chain and stages, under a
  wide gate. A store ends at its first promotion, since what follows may be no worse than the champion.
- `whole`: candidates that are better, and equal ones, in the whole cycle at the sizes of a week, every five
  hours, until the first promotion, under a wide gate.
- `fuzzed`, `killed`: kills of small weeks (`week_kills.py`), in the process before a durable step and by
  SIGKILL; `kills` counts both, and those after which ledger, verdicts or releases were not as without them.

Intervals are 95 %.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.measure import Run, table
from benchmarks.week_drawn import DEVELOPERS, SIZES, drawn
from benchmarks.week_kills import KILLED_EACH, KILLS_EACH, fuzzed, killed
from benchmarks.week_planted import BAD, GOOD, NULL, Plant, PlantedResources, better
from ostinato.deploy.statistics import wilson
from ostinato.loop.folder import owned
from ostinato.loop.run import START, write_whole
from ostinato.types import Decision
from ostinato_lab.week.acts import AT_FIRST, Act
from ostinato_lab.week.developers import Developers
from ostinato_lab.week.policy import Policies, write_start
from ostinato_lab.week.report import draw, report_of
from ostinato_lab.week.satisfaction import gain, mean_gain, satisfactions
from ostinato_lab.week.week import WeekPlan, open_policies, run_week

Part = dict[str, Any]
FRESH = 1_000
"""What is added to a seed to draw the developers whom a week never met."""
SMALL = ("live.sessions=60", "bench.passes=1", "live.gate_margin=0.5", *SIZES)
"""The settings of weeks with planted candidates: a gate so wide that most of them meet people."""
SHUFFLED, SHUFFLED_CYCLES = ("live.gate_margin=0.5", *SIZES), 5
"""The settings and the cycles of weeks with nothing to learn: most candidates should meet people."""
DRAWN = 50
"""The drawn candidates of one part."""
EACH = 10
"""The planted candidates of one store."""
WHOLE = 4
"""The planted candidates of one store at the size of a week."""
EVERY = ("schedule.every_s=18000",)
"""The time between two cycles of a week, which is that of `ostinato cycle`."""


def learnt(folder: Path, name: str, plan: WeekPlan) -> Part:
    """Return the report of a week of the shipped cycle; a longer one goes on with what a shorter one left."""
    folder = folder.with_name(name)
    with owned(folder, "a week of the benchmark") as run:
        week = run_week(folder, plan)
        policies = open_policies(run)
        report = report_of(week, policies)
        draw(report, folder / "week.svg")
        versions, new = (policies.of(week.first), policies.of(week.last)), plan.seed + FRESH
        population = replace(plan, seed=new, developers=240, adversaries=0.0).people
        fresh = gain(*versions, policies.vocabulary, population, new)
    met = sum(trial.met for trial in week.trials)
    return report | {"fresh": asdict(mean_gain(fresh)), "met_people": met}


def planted(
    folder: Path, kinds: tuple[Plant, ...], plan: WeekPlan, first: Mapping[Act, float] = GOOD
) -> Part:
    """Return what became of planted candidates, one after another in one store; `first` are the chances of
    its first version.
    """
    names, seed = [kind.__name__ for kind in kinds], plan.seed
    resources = type("Planted", (PlantedResources,), {"kinds": kinds})
    with owned(folder, "planted candidates of the benchmark") as run:
        write_start(run.checkpoint(START), {act.value: chance for act, chance in first.items()})
        week = run_week(folder, plan, opened=resources)
        policies, rows = open_policies(run), list[Part]()
        trials = {trial.opened.candidate: trial for trial in week.trials}
        for number, cycle in enumerate(week.cycles):
            trial = trials.get(cycle.candidate)
            promoted = trial is not None and trial.decision.promotes
            rows.append(
                {
                    "kind": names[number % len(names)],
                    "candidate": cycle.candidate,
                    "decision": (trial or cycle).decision.value,
                    "admitted": cycle.decision is Decision.ADMIT,
                    "met_people": trial is not None and trial.met,
                    "promoted": promoted,
                    "reason": (trial or cycle).reason,
                }
            )
            if promoted:
                break
        hidden = [
            _hidden(policies, version, seed) for version in (week.first, *(r["candidate"] for r in rows))
        ]
    return {
        "candidates": [
            row | {"hidden_change": round(after - hidden[0], 4)}
            for row, after in zip(rows, hidden[1:], strict=True)
        ]
    }


def _hidden(policies: Policies, version: int, seed: int) -> float:
    """Return the mean hidden satisfaction of thirty developers with a version."""
    found = satisfactions(policies.of(version), policies.vocabulary, Developers(30, seed), seed)
    return fmean(found.values())


def parts_of(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[Path], Part]]]:
    """Yield the parts of a run by name, those that matter most first."""
    first, *others = options.seeds
    for seed, cycles in ((first, options.cycles), *((each, options.fewer) for each in others)):
        plan = WeekPlan(cycles=cycles, seed=seed, overrides=EVERY)
        yield f"learnt-{seed}-{cycles}", partial(learnt, name=f"learnt-{seed}", plan=plan)
    for seed in options.seeds[:3]:
        plan = WeekPlan(cycles=options.fewer, seed=seed, population="independent", overrides=EVERY)
        yield f"independent-{seed}-{plan.cycles}", partial(learnt, name=f"independent-{seed}", plan=plan)
    for seed in range(1, 1 + options.shuffles):
        plan = WeekPlan(
            cycles=SHUFFLED_CYCLES, seed=seed, developers=DEVELOPERS, shuffled=True, overrides=SHUFFLED
        )
        yield f"shuffled-{seed}", partial(learnt, name=f"shuffled-{seed}", plan=plan)
    for number in range(options.null // DRAWN):
        for kind in NULL:
            name = f"null-{kind.__name__}-{number}"
            yield name, partial(drawn, seed=FRESH + number, kinds=(kind,), each=DRAWN, gated=False)
    for number in range(options.bad // DRAWN):
        gated = number % 2 == 0
        name = f"bad-{'gated' if gated else 'free'}-{number}"
        yield name, partial(drawn, seed=number, kinds=BAD, each=DRAWN, gated=gated)
    for name, kinds in (("bad", BAD), ("equal", NULL[:1]), ("shuffled", NULL[1:])):
        for seed in range(options.real // EACH):
            plan = WeekPlan(cycles=EACH, seed=seed, developers=DEVELOPERS, overrides=SMALL)
            yield f"real-{name}-{seed}", partial(planted, plan=plan, kinds=kinds)
    for seed in range(1, 1 + options.whole):
        plan = WeekPlan(cycles=WHOLE, seed=seed, overrides=(*EVERY, "live.gate_margin=0.5"))
        yield f"whole-better-{seed}", partial(planted, plan=plan, kinds=(better,), first=AT_FIRST)
        yield f"whole-equal-{seed}", partial(planted, plan=plan, kinds=NULL[:1])
    for number in range(options.fuzzed // KILLS_EACH):
        yield f"fuzzed-{number:03d}", partial(fuzzed, seed=number, kills=KILLS_EACH)
    for number in range(options.killed // KILLED_EACH):
        yield f"killed-{number:02d}", partial(killed, seed=number, kills=KILLED_EACH)


def found(options: argparse.Namespace) -> dict[str, Part]:
    """Do the parts that are missing, and return all."""
    parts: dict[str, Part] = {}
    for name, work in parts_of(options):
        if name.partition("-")[0] not in options.only:
            continue
        path = options.parts / f"{name}.json"
        if not path.exists():
            began = time.process_time()
            part = work(options.parts / name)
            part["cpu_s"] = round(time.process_time() - began, 1)
            write_whole(path, json.dumps(part))
            print(f"{name}: {part['cpu_s']} CPU seconds", flush=True)
        parts[name] = json.loads(path.read_text())
    return parts


def summed(parts: Mapping[str, Part]) -> Part:
    """Return the figures of all parts that are there."""
    weeks = {name: part for name, part in parts.items() if name.partition("-")[0] in WEEKS}
    groups = {
        "bad, through the gate": _candidates(parts, "bad-gated"),
        "bad, without a gate": _candidates(parts, "bad-free"),
        **{kind.__name__: _of_kind(_candidates(parts, "bad"), kind) for kind in BAD},
        **{f"null: {kind.__name__}": _of_kind(_candidates(parts, "null"), kind) for kind in NULL},
        "bad, whole cycle": _candidates(parts, "real-bad"),
        **{f"null: {k.__name__}, whole cycle": _candidates(parts, f"real-{k.__name__}") for k in NULL},
        **{f"{kind}, a week's size": _candidates(parts, f"whole-{kind}") for kind in ("better", "equal")},
    }
    kills = {
        kind: {
            "kills": sum(part["kills"] for part in some),
            "weeks": sum(part["weeks"] for part in some),
            "different": sum(part["different"] for part in some),
        }
        for kind in ("fuzzed", "killed")
        if (some := [part for name, part in parts.items() if name.startswith(kind)])
    }
    return {
        "satisfaction_low": _lowest(weeks, "learnt"),
        "satisfaction_low_independent": _lowest(weeks, "independent"),
        "shuffled": _null(weeks),
        "bad_promoted": share(_candidates(parts, "bad"))["promoted_share"],
        "kills": kills,
        "planted": {name: share(rows) for name, rows in groups.items() if rows},
        "weeks": {
            name: {
                "cycles": len(part["cycles"]),
                "hours": part["cycles"][-1]["hours"],
                "promotions": part["promotions"],
                "met_people": part.get("met_people"),
                "satisfaction": _of(part, "satisfaction"),
                "fresh": part["fresh"],
                "reward": [part["cycles"][0]["reward"], part["cycles"][-1]["reward"]],
                "hold_out": part["hold_out"],
                "hold_out_tasks": part["hold_out_tasks"],
            }
            for name, part in weeks.items()
        },
        "parts_cpu_s": round(sum(part["cpu_s"] for part in parts.values()), 1),
    }


def _lowest(weeks: Mapping[str, Part], kind: str) -> float | None:
    """Return the least lower bound of the change of hidden satisfaction of any seed."""
    lows = [_of(part, "satisfaction")["low"] for name, part in weeks.items() if name.startswith(kind)]
    return min(lows, default=None)


def _null(weeks: Mapping[str, Part]) -> Part:
    """Return what weeks with nothing to learn came to; the interval is that of a week's mean change."""
    some = [part for name, part in weeks.items() if name.startswith("shuffled")]
    if not some:
        return {}
    promoting = sum(part["promotions"] > 0 for part in some)
    rate, changes = wilson(promoting, len(some)), [_of(part, "satisfaction")["estimate"] for part in some]
    return {
        "weeks": len(some),
        "cycles": sum(len(part["cycles"]) for part in some),
        "trials": sum(part["met_people"] for part in some),
        "promotions": sum(part["promotions"] for part in some),
        "weeks_with_a_promotion": promoting,
        "low": round(rate.low, 4),
        "high": round(rate.high, 4),
        "hidden_satisfaction": changes,
    }


def _of(part: Part, name: str) -> Part:
    found: Part = part["hidden_satisfaction_gained" if name == "satisfaction" else name]
    return found


def _of_kind(rows: Sequence[Part], kind: Plant) -> list[Part]:
    return [row for row in rows if row["kind"] == kind.__name__]


def _candidates(parts: Mapping[str, Part], kind: str) -> list[Part]:
    return [row for name, part in parts.items() if name.startswith(kind) for row in part["candidates"]]


def share(rows: Sequence[Part]) -> Part:
    """Return how many candidates came how far, and the share that was promoted with its interval."""
    promoted = sum(row["promoted"] for row in rows)
    rate = wilson(promoted, len(rows))
    return {
        "n": len(rows),
        "admitted": sum(row["admitted"] for row in rows),
        "met_people": sum(row["met_people"] for row in rows),
        "promoted": promoted,
        "promoted_worse": sum(row["promoted"] and row["hidden_change"] < 0 for row in rows),
        "promoted_share": promoted / len(rows) if rows else None,
        "low": round(rate.low, 4),
        "high": round(rate.high, 4),
        "hidden_change": round(fmean(row["hidden_change"] for row in rows), 3) if rows else None,
    }


def show(figures: Part) -> None:
    """Print the tables."""
    rows = [
        [name, week["cycles"], week["promotions"], _shown(week["satisfaction"]), _shown(week["fresh"])]
        for name, week in figures["weeks"].items()
    ]
    header = ["week", "cycles", "promoted", "hidden satisfaction", "with other people"]
    table(header, [[str(cell) for cell in row] for row in rows])
    columns = "n", "admitted", "met_people", "promoted", "promoted_worse"
    table(
        ["planted", *columns, "interval", "hidden satisfaction"],
        [
            [
                name,
                *(str(row[c]) for c in columns),
                f"[{row['low']:.2%}, {row['high']:.2%}]",
                str(row["hidden_change"]),
            ]
            for name, row in figures["planted"].items()
        ],
    )
    print(f"kills: {figures['kills']}; nothing to learn: {figures['shuffled']}")


def _shown(change: Part) -> str:
    return f"{change['estimate']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"


WEEKS = ("learnt", "independent", "shuffled")
KINDS = (*WEEKS, "null", "bad", "real", "whole", "fuzzed", "killed")


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=Path, default=Path("runs/week-parts"), help="the folder of the parts")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--fewer", type=int, default=10)
    parser.add_argument("--null", type=int, default=100, help="drawn candidates of each kind of the null")
    parser.add_argument("--real", type=int, default=20, help="planted candidates of a kind in a whole cycle")
    parser.add_argument("--whole", type=int, default=3, help="stores of better and of equal candidates")
    parser.add_argument("--bad", type=int, default=300)
    parser.add_argument("--fuzzed", type=int, default=10_000)
    parser.add_argument("--shuffles", type=int, default=8, help="weeks in which there is nothing to learn")
    parser.add_argument("--shuffled", action="store_true", help="only those weeks")
    parser.add_argument("--killed", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    if options.shuffled:
        options.only = ("shuffled",)
    torch.set_num_threads(1)
    options.parts.mkdir(parents=True, exist_ok=True)
    figures = summed(found(options))
    show(figures)
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    with Run("week", "torch", "numpy") as opened:
        main(opened)
