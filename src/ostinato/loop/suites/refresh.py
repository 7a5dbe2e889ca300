"""`ostinato bench refresh`: the tasks of a suite that leaked, or that every version solves, leave it."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.store.commands import FOLDER_HELP
from ostinato.store.config import meant_folder

DONE = 0


def register(group: Any) -> None:
    """Add `refresh` to the commands of `ostinato bench`."""
    refresh = group.add_parser(
        "refresh", help="retire tasks that training has seen, or that every measured side always solves"
    )
    refresh.add_argument("suite", type=Path, metavar="SUITE", help="a sealed folder of Harbor tasks")
    refresh.add_argument("--directory", type=Path, help=FOLDER_HELP)
    refresh.add_argument("--to", type=Path, default=None, help="folder for what leaves (SUITE-retired)")
    refresh.add_argument("--look", action="store_true", help="say what would leave, and change nothing")
    refresh.add_argument("--json", action="store_true", help="print JSON")
    refresh.set_defaults(run=_refresh)


def _refresh(options: argparse.Namespace) -> int:
    from contextlib import closing

    from ostinato.bench.fence import exposures, training_texts
    from ostinato.bench.refresh import retire, retirements
    from ostinato.bench.suite import open_suite
    from ostinato.loop.run import START, Run
    from ostinato.model.families import load_renderer
    from ostinato.store.passes import Passes

    run = Run(directory=meant_folder(options.directory))
    suite = open_suite(options.suite)
    decode = load_renderer(run.checkpoint(START)).tokenizer.decode
    with closing(run.open_store()) as store:
        seen = exposures(store, suite.tasks, training_texts(store, decode))
        leaving = retirements(suite, Passes(store.database), seen)
    to = options.to or options.suite.with_name(f"{options.suite.resolve().name}-retired")
    after = suite if options.look or not leaving else retire(options.suite, suite, leaving, to)
    if options.json:
        tasks = {id: asdict(each) for id, each in seen.items()}
        rows = {"suite": after.label, "tasks": tasks, "retired": [asdict(each) for each in leaving]}
        print(json.dumps(rows))  # noqa: T201
        return DONE
    for each in leaving:
        print(f"{each.task}: {each.reason}")  # noqa: T201
    verb = "would leave" if options.look else "left"
    print(f"{len(leaving)} of {len(suite.tasks)} tasks {verb}; the suite is {after.label}")  # noqa: T201
    return DONE
