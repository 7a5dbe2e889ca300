"""`ostinato tasks mine`: tasks from somebody's repositories and source archives."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.sandbox.choose import KINDS

if TYPE_CHECKING:
    from ostinato.loop.mining.mine import Miner
    from ostinato.types import Task

DONE, FAILED = 0, 1
LEVELS = ("mixed", "terse", "plain", "full")


def register(commands: Any) -> None:
    """Add `mine` to the commands below `ostinato tasks`."""
    mine = commands.add_parser(
        "mine",
        help="make tasks of repositories and source archives",
        description=(
            "Make tasks of repositories: commits to be done again, and faults that tests notice to be "
            "found. The code of a repository runs in sandboxes alone."
        ),
    )
    mine.add_argument("repositories", nargs="+", type=Path, metavar="REPO", help="a directory or an archive")
    mine.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the tasks")
    mine.add_argument(
        "--per-repository", type=int, default=15, help="tasks of one repository, of each origin"
    )
    mine.add_argument("--commits", type=int, default=200, help="newest commits to look at; 0 looks at none")
    mine.add_argument("--detail", choices=LEVELS, default="mixed", help="how much the instructions say")
    mine.add_argument("--name", default="", help="the repository's name, where its folder's is another")
    mine.add_argument("--seed", type=int, default=1, help="the seed of the faults")
    mine.add_argument("--sandbox", choices=["auto", *KINDS], default="auto", help="where its tests run")
    mine.add_argument("--json", action="store_true", help="print the yield as JSON, last line of the output")
    mine.set_defaults(run=_mine, interrupted="stopped: the tasks that are in the folder are whole")

    pack = commands.add_parser("pack", help="write the tasks of a folder into one file")
    pack.add_argument("folder", type=Path, help="a task, or a folder of tasks")
    pack.add_argument("file", type=Path, help="the file to write, which ends in .jsonl")
    pack.set_defaults(run=_pack)


def _mine(options: argparse.Namespace) -> int:
    from ostinato.loop.mining.mine import MiningConfig

    config = MiningConfig(
        per_repository=options.per_repository,
        commits=options.commits,
        detail=options.detail,
        name=options.name,
        seed=options.seed,
    )
    return asyncio.run(_run(options, config))


def _pack(options: argparse.Namespace) -> int:
    from ostinato.tasks.packed import SUFFIX, pack
    from ostinato.tasks.source import FolderSource, SourceError

    if options.file.suffix != SUFFIX:
        raise SourceError(f"{options.file} does not end in {SUFFIX}, by which a packed dataset is known")
    part = options.file.with_name(f".{options.file.name}.part")
    part.write_text(
        "".join(f"{pack(task)}\n" for task in FolderSource(options.folder).tasks), encoding="utf-8"
    )
    part.rename(options.file)
    return DONE


async def _run(options: argparse.Namespace, config: Any) -> int:
    from ostinato.loop.mining.mine import Miner
    from ostinato.sandbox.choose import choose_backend

    backend = await choose_backend(options.sandbox)
    try:
        miner = Miner(backend, options.out, config, lambda line: print(line, flush=True))  # noqa: T201
        tasks = await miner.mine(options.repositories)
    finally:
        await backend.aclose()
    show_yield(miner, tasks, as_json=options.json)
    return DONE if tasks else FAILED


def show_yield(miner: "Miner", tasks: "Sequence[Task]", *, as_json: bool) -> None:
    """Print how many of each stage there were and what was left out; as JSON too, on the last line."""
    tally = miner.tally
    for stage, number in tally.stages.items():
        print(f"{number:6} {stage}")  # noqa: T201
    for kind, number in tally.refused.most_common():
        print(f"{number:6} left out: {kind}")  # noqa: T201
    if as_json:
        rows = {
            "tasks": [task.id for task in tasks],
            "stages": dict(tally.stages),
            "refused": dict(tally.refused),
            "reasons": tally.reasons,
        }
        print(json.dumps(rows))  # noqa: T201
