"""`ostinato tasks mine` makes tasks from repositories and archives, `ostinato bench mine` from sessions."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.mining.base import LEVELS
from ostinato.sandbox.choose import KINDS
from ostinato.store.commands import add_record

if TYPE_CHECKING:
    from ostinato.mining.mine import Miner, MiningConfig
    from ostinato.sandbox.base import Backend
    from ostinato.types import Task

DONE, FAILED, WRONG = 0, 1, 2


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
    mine.add_argument(
        "--detail", choices=["mixed", *LEVELS], default="mixed", help="how much the instructions say"
    )
    mine.add_argument("--name", default="", help="the repository's name, where its folder's is another")
    mine.add_argument("--seed", type=int, default=1, help="the seed of the faults")
    mine.add_argument("--sandbox", choices=["auto", *KINDS], default="auto", help="where its tests run")
    mine.add_argument(
        "--egress",
        default="none",
        metavar="WHAT",
        help="hosts that they may reach: none, registries, or a policy file",
    )
    _add_yield(mine, _mine)

    pack = commands.add_parser("pack", help="write the tasks of a folder into one file")
    pack.add_argument("folder", type=Path, help="a task, or a folder of tasks")
    pack.add_argument("file", type=Path, help="the file to write, which ends in .jsonl")
    pack.set_defaults(run=_pack)


def register_sessions(group: Any) -> None:
    """Add `mine` to the commands of `ostinato bench`."""
    mine = group.add_parser(
        "mine", help="make tasks of recorded, consented sessions: the user's words, and what was committed"
    )
    mine.add_argument("repository", type=Path, metavar="REPO", help="where the sessions took place")
    mine.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the tasks")
    add_record(mine)
    mine.add_argument(
        "--checkpoint",
        type=Path,
        default=None,
        metavar="DIR",
        help="a checkpoint with the record's tokenizer, for sessions of other clients than `ostinato code`",
    )
    mine.add_argument("--sandbox", default="auto", help="where the tests run")
    mine.add_argument(
        "--egress",
        default="none",
        metavar="WHAT",
        help="hosts that they may reach: none, registries, or a policy file",
    )
    _add_yield(mine, _mine_sessions)


def _add_yield(mine: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    mine.add_argument("--json", action="store_true", help="print the yield as JSON, last line of the output")
    mine.set_defaults(run=run, interrupted="stopped: the tasks that are in the folder are whole")


def _mine(options: argparse.Namespace) -> int:
    from ostinato.mining.mine import MiningConfig

    config = MiningConfig(
        per_repository=options.per_repository,
        commits=options.commits,
        detail=options.detail,
        name=options.name,
        seed=options.seed,
    )
    return asyncio.run(_run(options, config, lambda _, miner: miner.mine(options.repositories)))


def _mine_sessions(options: argparse.Namespace) -> int:
    from ostinato.harness.session_log import Sessions
    from ostinato.mining.mine import MiningConfig
    from ostinato.mining.sessions import SessionMiner, outside_sessions
    from ostinato.model.tokenizer import Tokenizer
    from ostinato.store import Store
    from ostinato.store.config import meant_record

    tokenizer = None if options.checkpoint is None else Tokenizer.load(options.checkpoint)
    place = meant_record(options.directory, options.store).place
    options.out.mkdir(parents=True, exist_ok=True)
    root = options.repository
    with closing(Store.open(place)) as store:
        outside = outside_sessions(root, store, tokenizer)

        async def mine(backend: "Backend", miner: "Miner") -> "list[Task]":
            sessions = SessionMiner(backend, miner, store, Sessions.of_user(), root, outside=outside)
            return await sessions.mine(print)

        return asyncio.run(_run(options, MiningConfig(), mine))


async def _run(
    options: argparse.Namespace,
    config: "MiningConfig",
    work: Callable[["Backend", "Miner"], "Awaitable[list[Task]]"],
) -> int:
    """Mine in a sandbox backend of the kind that was named, and print how many of each stage there were."""
    from ostinato.mining.mine import Miner
    from ostinato.sandbox.choose import choose_backend
    from ostinato.sandbox.config import SandboxConfig

    backend = await choose_backend(SandboxConfig(backend=options.sandbox, egress=options.egress))
    try:
        miner = Miner(backend, options.out, config, lambda line: print(line, flush=True))  # noqa: T201
        tasks = await work(backend, miner)
    finally:
        await backend.aclose()
    for stage, number in miner.tally.stages.items():
        print(f"{number:6} {stage}")  # noqa: T201
    for kind, number in miner.tally.refused.most_common():
        print(f"{number:6} left out: {kind}")  # noqa: T201
    if options.json:
        rows = {
            "tasks": [task.id for task in tasks],
            "stages": dict(miner.tally.stages),
            "refused": dict(miner.tally.refused),
            "reasons": miner.tally.reasons,
        }
        print(json.dumps(rows))  # noqa: T201
    return DONE if tasks else FAILED


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
