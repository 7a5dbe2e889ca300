"""`ostinato sft FILE.toml`: the command."""

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.loop.run import Run
    from ostinato.loop.sft.tune import FineTuned

DONE = 0


def register(commands: Any) -> None:
    """Add `sft` to the subparsers of `ostinato`."""
    parser = commands.add_parser("sft")
    parser.add_argument("file", type=Path, metavar="FILE", help="a TOML file of settings")
    parser.add_argument("--directory", type=Path, help="the run folder (default: runs/ and the file's name)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, e.g. steps=500"
    )
    parser.add_argument("--fresh", action="store_true", help="delete what lies there, and start afresh")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(
        run=_run, interrupted="stopped: the same command goes on from the last finished stage"
    )


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from ostinato.config import load
    from ostinato.loop.folder import open_run, owned
    from ostinato.loop.run import write_whole
    from ostinato.loop.sft.config import SftRunConfig, check_sft
    from ostinato.loop.show import Show
    from ostinato.loop.stages.prepare import check_start

    config = load(SftRunConfig, options.file, options.set)
    check_sft(config)
    check_start(config.run, "start")
    from ostinato.loop.sft.tune import fine_tuned  # brings torch, whose extra is named first

    show = Show(Console(stderr=True))
    with owned(options.directory or Path("runs") / options.file.stem, "sft") as run, show.heartbeat():
        show.say(open_run(run, config.run, fresh=options.fresh).notice)
        result = asyncio.run(fine_tuned(config, run, show))
        write_whole(run.report, json.dumps(asdict(result), indent=1))
    print(json.dumps(asdict(result)) if options.json else "\n".join(_lines(result, run)))  # noqa: T201
    return DONE


def _lines(result: "FineTuned", run: "Run") -> list[str]:
    lines = []
    for name, each in result.sources.items():
        losses = [f"{loss[name]:.4f}" for loss in (result.before, result.after) if name in loss]
        told = f", loss of these {' → '.join(losses)}" if losses else ""
        lines.append(f"{name}: {len(each.train)} sessions learnt from, {len(each.held_out)} held out{told}")
        lines += [f"  left out: {count} {reason}" for reason, count in each.left_out.items()]
    return [*lines, f"the checkpoint, as model.path of a run: {run.checkpoint('taught')}"]
