"""`ostinato run` and `ostinato demo`: a run by a file of settings, and by the one that is shipped."""

import argparse
import asyncio
import json
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ostinato.loop.config import RunConfig
    from ostinato.loop.dashboard.beside import Beside
    from ostinato.loop.results import RunResult
    from ostinato.loop.run import Run
    from ostinato.loop.show import Show

DONE = 0
DEMO = Path(__file__).with_name("demo.toml")
"""The file of the demo."""
INTERRUPTED = "stopped: the same command goes on from the last finished stage"
AHEAD = """\
A tiny model with random weights is taught, measured, practises, is measured again, works for simulated
developers, learns from what they did with its edits, and is gated and tested. Two cores take 10 to 20
minutes; Ctrl-C stops, and the same command goes on from the last finished stage."""
CAVEAT = (
    "The policy has well under a million parameters and knows one family of toy repositories. Its figures "
    "show that the system works, not that the model codes well."
)
NEXT = (
    "next: `ostinato serve --directory {}` prints a key and the two lines to type in a git repository of "
    "yours, where `ostinato code` is the same agent"
)
STAYS = "the dashboard stays until Ctrl-C: {}"


def register(commands: Any) -> None:
    """Add `run` and `demo` to the subparsers of `ostinato`."""
    run = commands.add_parser("run")
    run.add_argument("file", type=Path, metavar="FILE", help="a TOML file of settings")
    run.add_argument(
        "--directory", type=Path, default=None, help="the run folder (default: runs/ and the file's name)"
    )
    _add_common(run)
    run.set_defaults(run=_run, interrupted=INTERRUPTED)

    demo = commands.add_parser("demo")
    demo.add_argument("--seed", type=int, default=None, help="the run's seed")
    demo.add_argument("--directory", type=Path, default=Path("runs/demo"), help="the run folder")
    demo.add_argument(
        "--config", type=Path, default=None, metavar="FILE", help="a TOML file in place of the demo's own"
    )
    _add_common(demo)
    demo.set_defaults(run=_demo, interrupted=INTERRUPTED)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, e.g. teach.steps=500"
    )
    parser.add_argument(
        "--stages", action="store_true", help="print the stages and which of them are done, and run none"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="delete the run that lies there, and start afresh"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON, last line of the output"
    )


def _run(options: argparse.Namespace) -> int:
    directory = options.directory or Path("runs") / options.file.stem
    return _go(options, options.file, options.set, directory)


def _demo(options: argparse.Namespace) -> int:
    seed = [] if options.seed is None else [f"seed={options.seed}"]
    file, settings = options.config or DEMO, [*options.set, *seed]
    return _go(options, file, settings, options.directory, ahead=AHEAD, caveat=CAVEAT)


def turn(run: "Run", *, cycles: int, every_s: float) -> int:
    """Go on with the cycles of a run folder, under the settings that it holds."""
    from ostinato.config import load
    from ostinato.loop.config import STAGES, RunConfig

    stages = load(RunConfig, run.config).schedule.stages
    listed = [*stages, *({"after", "cycle"} - set(stages))]
    order = [stage for stage in STAGES if stage in listed]
    overrides = [
        f"schedule.stages={json.dumps(order)}",
        f"schedule.cycles={cycles}",
        f"schedule.every_s={every_s}",
    ]
    options = argparse.Namespace(json=False, fresh=False, stages=False)
    return _go(options, run.config, overrides, run.directory, begins=False)


def _go(
    options: argparse.Namespace,
    file: Path,
    overrides: list[str],
    directory: Path,
    *,
    begins: bool = True,
    ahead: str = "",
    caveat: str = "",
) -> int:
    """Run the listed stages in the folder, and end in the report; without `begins` a run there must go on."""
    from ostinato.config import load
    from ostinato.demo.developers import live_traffic
    from ostinato.demo.report import as_json, finish
    from ostinato.loop.config import RunConfig, check
    from ostinato.loop.folder import open_run, owned
    from ostinato.loop.pipeline import run_pipeline
    from ostinato.loop.run import Run
    from ostinato.loop.show import Show
    from ostinato.loop.stages.prepare import check_start

    config = load(RunConfig, file, overrides)
    check(config)
    check_start(config)
    if options.stages:
        return _print_stages(config, Run(directory=directory))
    show = Show(Console(stderr=options.json))
    watched = bool(ahead) and show.console.is_terminal and not options.json
    with ExitStack() as stack:
        beside = None
        with owned(directory, "run") as run:
            opened = open_run(run, config, fresh=options.fresh, begins=begins)
            show.say(f"{opened.notice} (--fresh deletes and starts afresh)" if begins else opened.notice)
            if ahead:
                show.console.print(ahead, style="dim", highlight=False, soft_wrap=True)
            if watched:
                beside = stack.enter_context(_dashboard(config, run))
                show.console.print(beside.words, markup=False, highlight=False, soft_wrap=True)
            with show.heartbeat():
                result = asyncio.run(run_pipeline(config, run, show, live_traffic, resumed=opened.resumed))
            finish(run, result, show.console, caveat=caveat)
        _say_next(run, show, result)
        # The folder has no owner now, so `ostinato serve` can begin.
        if beside is not None and beside.address:
            show.console.print(STAYS.format(beside.address), markup=False, highlight=False, soft_wrap=True)
            beside.stay()
    if options.json:
        print(json.dumps(as_json(result)))  # noqa: T201
    return DONE


def _print_stages(config: "RunConfig", run: "Run") -> int:
    from ostinato.loop.pipeline import stages_of
    from ostinato.loop.results import Cycled

    cycles = config.schedule.cycles if "cycle" in config.schedule.stages else 0
    stages = [(stage.name, stage.schema) for stage in stages_of(config)]
    stages += [(f"cycle-{number}", Cycled) for number in range(1, 1 + cycles)]
    for name, schema in stages:
        print(f"{name:12} {'to do' if run.result(name, schema) is None else 'done'}")  # noqa: T201
    return DONE


def _say_next(run: "Run", show: "Show", result: "RunResult") -> None:
    if result.turned:
        show.console.print(NEXT.format(shlex.quote(str(run.directory))), markup=False, highlight=False)
    if run.page.exists():
        seen = f"see it: {run.page}, or `ostinato dashboard --directory {shlex.quote(str(run.directory))}`"
        show.console.print(seen, markup=False, highlight=False, soft_wrap=True)


def _dashboard(config: "RunConfig", run: "Run") -> "AbstractContextManager[Beside]":
    """Return a dashboard of the run, whose record and tokenizer are made if they are not there yet."""
    from ostinato.loop.dashboard.beside import dashboard_beside
    from ostinato.loop.stages.prepare import prepare

    asyncio.run(prepare(config, run))
    run.open_store().close()
    return dashboard_beside(run.logs / "dashboard.log", "--directory", str(run.directory))
