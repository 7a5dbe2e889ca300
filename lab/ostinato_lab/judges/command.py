"""`ostinato bench calibrate` and `ostinato bench pairs`: how far a judge of quality can be believed."""

import argparse
import asyncio
import json
import sys

from ostinato.loop.suites.judge import named, open_judge
from ostinato.tasks.source import FolderSource
from ostinato_lab.judges.calibrate import Calibration, calibrate
from ostinato_lab.judges.pairs import PairsError, line_of, load_pairs, pairs_of, shipped

DONE, FAILED, WRONG = 0, 1, 2


def calibrate_judge(options: argparse.Namespace) -> int:
    """Ask a judge about labelled pairs, and print how far it agrees."""
    try:
        named(options.judge)
        pairs = shipped() if options.pairs is None else load_pairs(options.pairs)
    except (ValueError, PairsError) as error:
        return _complain(str(error))

    async def run() -> Calibration:
        async with open_judge(options.judge) as judge:
            return await calibrate(judge, pairs)

    found = asyncio.run(run())
    print(json.dumps(found.as_json()) if options.json else _text(found))  # noqa: T201
    return DONE if found.answered else FAILED


def _text(found: Calibration) -> str:
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


def make_pairs(options: argparse.Namespace) -> int:
    """Write the pairs of a folder of tasks."""
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
