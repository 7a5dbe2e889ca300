"""`ostinato bench calibrate` and `ostinato bench pairs`: how far a judge of quality can be believed."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.bench.calibrate import Calibration
    from ostinato.bench.judge import RubricJudge

DONE, FAILED, WRONG = 0, 1, 2
JUDGE_KEY = "OSTINATO_JUDGE_KEY"


def register(group: Any) -> None:
    """Add both to the commands of `ostinato bench`."""
    calibrate = group.add_parser(
        "calibrate", help="ask a judge of quality about labelled pairs of diffs, and print how far it agrees"
    )
    calibrate.add_argument("judge", metavar="MODEL@URL", help=f"the judge (its key is in {JUDGE_KEY})")
    calibrate.add_argument("--pairs", type=Path, default=None, help="labelled pairs (default: those shipped)")
    calibrate.add_argument("--json", action="store_true", help="print JSON")
    calibrate.set_defaults(run=_calibrate)
    pairs = group.add_parser(
        "pairs",
        help="make labelled pairs of a folder of tasks: their solutions beside ones made worse by rule",
    )
    pairs.add_argument("tasks", type=Path, metavar="TASKS", help="a folder of mined tasks")
    pairs.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write (.jsonl)")
    pairs.set_defaults(run=_pairs)


def named(word: str) -> tuple[str, str]:
    """Return model and address of a word like `qwen3@http://127.0.0.1:8000/v1`. Raises ValueError."""
    model, _, url = word.partition("@")
    if not model or not url.startswith(("http://", "https://")):
        raise ValueError(f"{word!r} is no MODEL@URL, as qwen3@http://127.0.0.1:8000/v1")
    return model, url.rstrip("/")


@asynccontextmanager
async def open_judge(word: str) -> AsyncIterator["RubricJudge"]:
    """Open the judge that a command line names; its key is in the environment. Raises ValueError."""
    import aiohttp

    from ostinato.bench.judge import ANSWER_TOKENS, PATIENCE_S, RubricJudge
    from ostinato.rewards.judge_client import JudgeClient

    model, url = named(word)
    async with aiohttp.ClientSession() as http:
        key = os.environ.get(JUDGE_KEY, "")
        yield RubricJudge(JudgeClient(http, url, model, key, max_tokens=ANSWER_TOKENS, patience_s=PATIENCE_S))


def _calibrate(options: argparse.Namespace) -> int:
    from ostinato.bench.pairs import PairsError, load_pairs, shipped

    try:
        named(options.judge)
        pairs = shipped() if options.pairs is None else load_pairs(options.pairs)
    except (ValueError, PairsError) as error:
        return _complain(str(error))

    async def run() -> "Calibration":
        from ostinato.bench.calibrate import calibrate

        async with open_judge(options.judge) as judge:
            return await calibrate(judge, pairs)

    found = asyncio.run(run())
    print(json.dumps(found.as_json()) if options.json else _text(found))  # noqa: T201
    return DONE if found.answered else FAILED


def _text(found: "Calibration") -> str:
    rows = [f"{found.judge}: a verdict on {found.answered} of {found.pairs} pairs"]
    rows += [f"  no verdict on {number}: {why}" for why, number in sorted(found.silent.items())]
    if found.whole is not None:
        rows.append(f"kappa    {found.whole.text}")
    rows += [f"  {aspect:8} {each.text}" for aspect, each in found.aspects.items()]
    if found.biased is not None:
        rows.append(f"the two orders contradict each other on {100 * found.biased:.0f} % of them")
    if found.size is not None:
        rows.append(f"beside it, the rule that the smaller diff is better: kappa {found.size.text}")
    return "\n".join(rows)


def _pairs(options: argparse.Namespace) -> int:
    from ostinato.bench.pairs import line_of, pairs_of
    from ostinato.tasks.source import FolderSource

    tasks = sorted(FolderSource(options.tasks).tasks, key=lambda task: task.id)
    pairs = list(pairs_of(tasks))
    if not pairs:
        return _complain(
            f"none of the {len(tasks)} tasks of {options.tasks} has a solution in one Python file"
        )
    part = options.out.with_name(f".{options.out.name}.part")
    part.write_text("".join(f"{line_of(pair)}\n" for pair in pairs), encoding="utf-8")
    part.rename(options.out)
    print(f"{len(pairs)} pairs of {len({pair.cluster for pair in pairs})} tasks in {options.out}")  # noqa: T201
    return DONE


def _complain(message: str) -> int:
    print(f"ostinato bench: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
