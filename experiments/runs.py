"""Runs of `ostinato run` as the arms of a study: carried out in a folder of their own, and read back.

A folder with a report is read, not run again; a run without one goes on where it stopped.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

from experiments.study import Results, Study, as_json, draw, show
from ostinato.deploy.outcomes import TaskOutcome
from ostinato.rewards.practice.definition import OUTCOME
from ostinato.store import Store
from ostinato.types import Reward, Source


class RunError(RuntimeError):
    """A run ended without its report."""


def carry_out(file: Path, folder: Path, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run `file` with these settings to its end, in `folder`, and return its report. Raises RunError."""
    report = folder / "report.json"
    if not report.exists():
        words = [part for word in overrides(settings) for part in ("--set", word)]
        command = [sys.executable, "-m", "ostinato", "run", str(file), "--directory", str(folder), *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode or not report.exists():
            raise RunError(f"{folder} ended with {done.returncode}:\n{done.stderr[-800:]}")
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def command(
    doc: str | None,
    directory: Path,
    study_in: Callable[[Path], Study],
    more_of: Callable[[Path, Results, Sequence[int]], Mapping[str, Any]],
    lines_of: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    picture: Callable[[Study, Results, Path], None] = draw,
) -> None:
    """Run the command line of a study of runs below a folder, `directory` by default, seed after seed.

    `more_of` returns what the figures of the arms do not have, for the JSON, and `lines_of` says it.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--directory", type=Path, default=directory)
    parser.add_argument("--plots", type=Path, help="a folder for the picture")
    parser.add_argument("--json", action="store_true", help="print one line of JSON as well")
    options = parser.parse_args()
    study = study_in(options.directory)
    by_seed = [{arm: study.run(arm, seed) for arm in study.arms} for seed in options.seeds]
    results = {arm: [each[arm] for each in by_seed] for arm in study.arms}
    show(study, results)
    more = more_of(options.directory, results, options.seeds)
    for line in lines_of(more):
        print(line)
    if options.plots is not None:
        picture(study, results, options.plots / f"{study.name}.png")
    if options.json:
        print(json.dumps(json.loads(as_json(study, results)) | more))


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as the words of `--set`.

    >>> overrides({"seed": 1, "tasks.held_out": {"seeds": 2}})
    ['seed=1', 'tasks.held_out={seeds = 2}']
    """
    return [f"{key}={_toml(value)}" for key, value in settings.items()]


def _toml(value: Any) -> str:
    """Return the value as TOML, which writes all that settings hold as JSON does, but tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def outcomes(folder: Path, stage: str) -> list[TaskOutcome]:
    """Return what one measuring stage found of each held-out task, as far as a study needs it."""
    rows = json.loads((folder / "stages" / f"{stage}.json").read_text())["result"]["measurement"]["outcomes"]
    return [
        TaskOutcome(
            task=row["task"],
            split=row["split"],
            cluster=row["cluster"],
            solved=tuple(row["solved"]),
            broken=tuple(row["broken"]),
        )
        for row in rows
    ]


def practised_groups(folder: Path) -> dict[int, list[list[bool]]]:
    """Return which sessions of each group of practice were solved, by the version that sampled them."""
    store = Store.open(folder / "store.db")
    groups: dict[tuple[int, str], list[bool]] = defaultdict(list)
    for session in store.sessions(source=Source.PRACTICE):
        rewards, turns = store.rewards(session.id), store.turns(session.id)
        if rewards and turns:
            version = min(turns[0].completion.versions)
            groups[version, str(session.task_id)].append(_solved(rewards[-1]))
    store.close()
    by_version: dict[int, list[list[bool]]] = defaultdict(list)
    for (version, _), solved in sorted(groups.items()):
        by_version[version].append(solved)
    return dict(by_version)


def _solved(reward: Reward) -> bool:
    return any(part.name == OUTCOME and part.value > 0 for part in reward.parts)


def best_of(solved: Sequence[bool], k: int) -> float:
    """Return the chance that one of `k` sessions drawn from the group is solved, without bias.

    >>> best_of([True, False], 1), best_of([True, False], 2)
    (0.5, 1.0)
    """
    n, won = len(solved), sum(solved)
    return 1 - comb(n - won, k) / comb(n, k)
