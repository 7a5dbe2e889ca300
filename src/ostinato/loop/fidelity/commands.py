"""`ostinato fidelity RUN`: every difference between what people are served and what trains a model."""

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.loop.fidelity.differences import Difference

NAMED, UNNAMED = 0, 1


def register(commands: Any) -> None:
    """Add `fidelity` to the subparsers of `ostinato`."""
    parser = commands.add_parser("fidelity")
    parser.add_argument("place", type=Path, metavar="RUN", help="a run folder, or a run's file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_fidelity)


def _fidelity(options: argparse.Namespace) -> int:
    """Print the differences; the exit status is 1 where the run's file does not name all of them."""
    from ostinato.config import load
    from ostinato.harness.providers import mcp_config
    from ostinato.loop.config import RunConfig
    from ostinato.loop.fidelity.differences import Brought, differences, unnamed
    from ostinato.loop.run import Run
    from ostinato.store import Store
    from ostinato.store.config import is_there

    run = Run(directory=options.place)
    config = load(RunConfig, run.config if options.place.is_dir() else options.place)
    servers = tuple(each.name for each in mcp_config.of_person())
    brought = Brought(servers=servers, search=bool(os.environ.get("OSTINATO_SEARCH_URL")))
    with ExitStack() as stack:
        store = None
        if options.place.is_dir() and is_there(run.store):
            store = stack.enter_context(closing(Store.open(run.store)))
        found = differences(config, store, brought)
    missing = len(unnamed(found))
    if options.json:
        print(json.dumps({"differences": [asdict(each) for each in found], "unnamed": missing}))  # noqa: T201
    else:
        print(_text(found, missing))  # noqa: T201
    return UNNAMED if missing else NAMED


def _text(found: Sequence["Difference"], missing: int) -> str:
    lines = []
    for each in found:
        lines += [f"{each.name}: {each.why or 'not named in [fidelity.wanted]'}"]
        sides = {"served": each.served, "trained": each.trained, "measured": each.measured}
        lines += [f"  {side:<9}{value}" for side, value in sides.items() if value]
    return "\n".join([*lines, f"{len(found)} differences, {missing} of them not named"])
