"""Compaction error: what a session loses when it goes on from its own summaries.

    python -m benchmarks.compaction [--tasks 40] [--json]
    python -m benchmarks.compaction --run RUN --version 40 --masked RUN --masked-version 40 [--json]

The error is the solve rate at full context minus that at a half and at a quarter of it, over the same tasks:
pebbles of the kind `carry`, whose late edits need what was read early. Full context is the number of tokens
beyond the first instructions that a session takes without a summary.

The scripted subject remembers nothing but what its context shows. Its oracle summaries hold every fact, its
empty ones none, so the two show the range of the measure: about 0, and large. With `--run` the same is
measured of a version that was trained, `--masked` names a run with `practice.train_summaries = false`. There
is no peer. Intervals are 95 %: Wilson's for a rate, bootstrapped over tasks for an error.
"""

import argparse
import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.measure import Cpu
from benchmarks.scripted_agent import Desk
from ostinato.config import load
from ostinato.deploy.statistics import wilson
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import Message
from ostinato.harness.episode import CardUser, EpisodeRunner
from ostinato.loop.config import RunConfig
from ostinato.loop.resources import open_resources
from ostinato.loop.run import Run
from ostinato.loop.show import Show
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Ledger
from ostinato.tasks.pebble import Pebble, PebbleSource, pebble_of
from ostinato.tasks.pebble.families import Function
from ostinato.tasks.teaching.habits import DONE, SUMMARY_LINE, call
from ostinato.tasks.teaching.visible_state import asks_for_a_summary, visible_state
from ostinato.types import Arm, Ending, Source, State, Task

SPLIT = "seeds"
SHARES = {"full": 1.0, "half": 0.5, "quarter": 0.25}
LIMITS = HarnessConfig(profile="compact", max_turns=60, max_tokens=256, max_context=4_000)
HAD, EDITED = re.compile(r"^(\w+) had: (.+)$", re.MULTILINE), re.compile(r"^edited: (.+)$", re.MULTILINE)
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The solve rate of one subject at each share of the context, and its compaction errors."""

    subject: str
    tasks: int
    rates: Mapping[str, tuple[float, float, float]]
    """The rate at full context, a half and a quarter, each with its interval."""
    errors: Mapping[str, tuple[float, float, float]]
    summaries: Mapping[str, float]
    """The mean number of summaries of a session."""


class Carrier:
    """A scripted model that moves alternatives on; it knows of the work what its messages show."""

    def __init__(self, pebble: Pebble, *, oracle: bool) -> None:
        self._pebble = pebble
        self._oracle = oracle

    def said(self, messages: Sequence[Message]) -> str:
        had, edited = self._known(messages)
        if asks_for_a_summary(messages):
            facts = [f"{name} had: {line.strip()}" for name, line in had.items()]
            told = [*facts, f"edited: {' '.join(sorted(edited)) or 'nothing'}"]
            return "\n".join([SUMMARY_LINE, *(told if self._oracle else ["nothing"])])
        targets = self._pebble.targets
        for target in targets:
            if target.name not in had and target.path not in edited:
                return call("read", path=target.path)
        for before, target in zip((targets[-1], *targets[:-1]), targets, strict=True):
            if target.path not in edited:
                new = _option(before, had.get(before.name, "")) or target.family.options[0]
                line = had[target.name]
                return call("edit", path=target.path, old_string=line, new_string=target.line(new))
        return DONE

    def _known(self, messages: Sequence[Message]) -> tuple[dict[str, str], set[str]]:
        """Return the line that each function had before any edit, and the edited files, as far as told."""
        text = str(messages[2]["content"]) if len(messages) > 2 and messages[2]["role"] == "user" else ""
        had = {name: f"    {line}" for name, line in HAD.findall(text)}
        edited = {path for paths in EDITED.findall(text) for path in paths.split() if path != "nothing"}
        for end in range(3, len(messages) + 1):
            state = visible_state(messages[:end])
            for target in self._pebble.targets:
                if target.path not in edited | state.edited:
                    lines = state.texts.get(target.path, "").splitlines()
                    found = [line for o in target.family.options if (line := target.line(o)) in lines]
                    if found:
                        had.setdefault(target.name, found[0])
            edited = edited | state.edited
        return had, edited


def _option(function: Function, line: str) -> str | None:
    return next((option for option in function.family.options if function.line(option) == line), None)


Attempt = Callable[[Task, int | None], Awaitable[tuple[bool, int, int]]]
"""A session on a task with a trigger: solved, tokens beyond the first instructions, and summaries."""


async def compaction(subject: str, tasks: Sequence[Task], attempt: Attempt) -> Rates:
    """Run each task at every share of the context that it takes in full."""
    found: dict[str, list[tuple[bool, int]]] = {share: [] for share in SHARES}
    for task in tasks:
        full = await attempt(task, None)
        found["full"].append((full[0], full[2]))
        for share in ("half", "quarter"):
            solved, _, summaries = await attempt(task, max(1, int(SHARES[share] * full[1])))
            found[share].append((solved, summaries))
    solved = {share: np.array([each for each, _ in rows], dtype=float) for share, rows in found.items()}
    rates = {share: _rate(each) for share, each in solved.items()}
    return Rates(
        subject=subject,
        tasks=len(tasks),
        rates=rates,
        errors={share: _error(solved["full"] - solved[share]) for share in ("half", "quarter")},
        summaries={share: fmean(count for _, count in rows) for share, rows in found.items()},
    )


def _rate(solved: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    score = wilson(float(solved.sum()), len(solved))
    return float(solved.mean()), score.low, score.high


def _error(lost: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    draws = np.random.default_rng(0).choice(lost, (RESAMPLES, len(lost))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(lost.mean()), float(low), float(high)


async def scripted(tasks: Sequence[Task], *, oracle: bool) -> Rates:
    """Measure the scripted subject in plain processes."""
    desk = Desk(tasks, LIMITS)

    async def attempt(task: Task, after: int | None) -> tuple[bool, int, int]:
        pebble = pebble_of(task)
        assert pebble is not None
        limits = replace(LIMITS, summarize_after=after)
        episode, conversation, _ = await desk.session(task, Carrier(pebble, oracle=oracle).said, limits)
        beyond = conversation.tokens - (conversation.first or 0)
        return episode.solved and episode.outcome.ending is Ending.FINISHED, beyond, conversation.summaries

    return await compaction("oracle" if oracle else "empty", tasks, attempt)


async def of_version(subject: str, directory: Path, version: int, tasks: Sequence[Task]) -> Rates:
    """Measure a version of a run, under the run's own harness and with its summaries."""
    run = Run(directory=directory)
    config = load(RunConfig, run.directory / "config.toml")
    async with open_resources(config, run, Show(Console(quiet=True))) as resources:
        arm = Arm(name="compaction", version=version, share=0.0, engines=())
        async with resources.serving(arm):
            client, verifier = resources.client("compaction", "compaction"), Verifier(resources.backend)

            async def attempt(task: Task, after: int | None) -> tuple[bool, int, int]:
                limits = replace(config.harness, summarize_after=after)
                runner = EpisodeRunner(client, resources.backend, verifier, limits)
                episode = await runner.run(task, CardUser(task), source=Source.BENCH)
                turns = resources.store.turns(episode.session_id)
                Ledger(resources.store).account_sessions([episode.session_id], State.MEASURED)
                if episode.void is not None or not turns:
                    raise RuntimeError(f"{task.id}: {episode.void}")
                longest = max(len(turn.prompt_ids) + len(turn.completion.ids) for turn in turns)
                return episode.solved, longest - len(turns[0].prompt_ids), turns[-1].segment

            return await compaction(subject, tasks, attempt)


async def measured(options: argparse.Namespace, folder: Path) -> list[Rates]:
    problems = PebbleSource({"carry": 1.0}).problems(SPLIT, options.seed)
    tasks = [problem.provide(folder) for problem in islice(problems, options.tasks)]
    done = [await scripted(tasks, oracle=True), await scripted(tasks, oracle=False)]
    for subject, run, version in (
        ("trained", options.run, options.version),
        ("masked", options.masked, options.masked_version),
    ):
        if run is not None:
            done.append(await of_version(subject, run, version, tasks))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7_000_000)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--version", type=int)
    parser.add_argument("--masked", type=Path)
    parser.add_argument("--masked-version", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for run, version in ((options.run, options.version), (options.masked, options.masked_version)):
        if (run is None) != (version is None):
            parser.error("a run and its version go together")
    cpu = Cpu()
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(measured(options, Path(folder)))
    print(
        f"{'subject':<9} {'full':>22} {'half':>22} {'quarter':>22} {'error ½':>24} {'error ¼':>24}  summaries"
    )
    for each in done:
        cells = [*each.rates.values(), *each.errors.values()]
        shown = " ".join(f"{value:>8.2f} [{low:>5.2f}, {high:>5.2f}]" for value, low, high in cells)
        print(f"{each.subject:<9} {shown}  {', '.join(f'{n:.1f}' for n in each.summaries.values())}")
    if options.json:
        subjects = [asdict(each) for each in done]
        print(json.dumps({"tasks": options.tasks, "cpu_s": cpu.seconds(), "subjects": subjects}))


if __name__ == "__main__":
    main()
