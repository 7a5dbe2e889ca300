"""`ostinato bench`: seal a suite, and run it with versions of a run or with models behind URLs."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.config import secret
from ostinato.loop.suites.judge import named, open_judge
from ostinato.loop.suites.judge import register as register_judge
from ostinato.loop.suites.looks import register as register_looks
from ostinato.loop.suites.refresh import register as register_refresh
from ostinato.mining.commands import register_sessions
from ostinato.sandbox.config import SandboxConfig
from ostinato.store.commands import FOLDER_HELP
from ostinato.store.config import meant_folder

if TYPE_CHECKING:
    from ostinato.bench.axes import PassResult
    from ostinato.bench.contest import Contest, Results, Side
    from ostinato.bench.judge import QualityJudge
    from ostinato.bench.suite import BenchSuite
    from ostinato.harness.agent import HarnessConfig
    from ostinato.loop.show import Show
    from ostinato.store import Store

DONE, UNFINISHED, WRONG = 0, 1, 2
ENDPOINT_KEY = "OSTINATO_BENCH_KEY"
Opened = tuple["Side", "Store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOrder:
    """The sides that a command names.

    >>> BenchOrder(directory=Path("runs/demo"), versions=(3, 7)).urls
    ()
    """

    directory: Path | None
    """The run folder of `versions`; None takes the one that every command without a flag means."""
    versions: tuple[int, ...] = ()
    urls: tuple[tuple[str, str], ...] = ()
    """(address, name of the model) of each endpoint."""
    store: Path = Path("runs/bench.db")
    """The record of the passes, where no version of a run is among the sides."""
    sandbox: SandboxConfig = SandboxConfig()  # noqa: RUF009 - it is frozen
    harness: "HarnessConfig | None" = None
    """The limits of sessions with an endpoint; None where there is none."""
    key: str = ""


def register(commands: Any) -> None:
    """Add `bench` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("bench")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_seal(group)
    _add_run(group)
    register_sessions(group)
    register_refresh(group)
    register_looks(group)
    register_judge(group)


def _add_seal(group: Any) -> None:
    seal = group.add_parser(
        "seal", help="write the manifest of a folder of Harbor tasks: name, version, hash"
    )
    seal.add_argument("suite", type=Path, metavar="SUITE", help="the folder")
    seal.add_argument(
        "--name", default="", help="the suite's name (default: the one it has, or the folder's)"
    )
    seal.add_argument("--json", action="store_true", help="print JSON")
    seal.set_defaults(run=_seal)


def _add_run(group: Any) -> None:
    run = group.add_parser("run", help="run every task with every side, and compare the sides with the first")
    run.add_argument("suite", type=Path, metavar="SUITE", help="a sealed folder of Harbor tasks")
    run.add_argument("--versions", type=int, nargs="+", default=[], help="versions of the run in --directory")
    run.add_argument("--directory", type=Path, help=FOLDER_HELP)
    run.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="MODEL@URL",
        help="a model of an OpenAI-compatible endpoint",
    )
    run.add_argument(
        "--key-file",
        type=Path,
        default=None,
        help=f"file with the key of every --url (or set {ENDPOINT_KEY})",
    )
    run.add_argument(
        "--judge",
        default="",
        metavar="MODEL@URL",
        help="a model that compares each solved pass with the task's solution, aspect by aspect",
    )
    run.add_argument("--passes", type=int, default=8, help="times that each side does each task")
    run.add_argument("--at-once", type=int, default=8, help="sessions at the same time")
    url = run.add_argument_group("sessions with a --url; versions have the settings of their run")
    url.add_argument("--temperature", type=float, default=1.0, help="of sampling")
    url.add_argument("--profile", default="core", help="tools and prompt that the model is shown")
    url.add_argument("--max-turns", type=int, default=40, help="model calls of one session")
    url.add_argument("--max-tokens", type=int, default=4096, help="of one completion")
    url.add_argument("--max-context", type=int, default=32768, help="tokens of prompt and completion")
    url.add_argument("--command-timeout", type=float, default=120.0, help="seconds of one command")
    url.add_argument("--sandbox", default="auto", help="where the sessions run")
    url.add_argument(
        "--egress",
        default="none",
        metavar="WHAT",
        help="hosts that they may reach: none, registries, or a policy file",
    )
    run.add_argument("--store", type=Path, default=Path("runs/bench.db"), help="record, without --versions")
    run.add_argument(
        "--out", type=Path, default=None, help="folder for report.json, report.html and plot.png"
    )
    run.add_argument("--json", action="store_true", help="print JSON instead of tables")
    run.set_defaults(
        run=_run, interrupted="stopped: the same command goes on with the passes that are missing"
    )


def _seal(options: argparse.Namespace) -> int:
    from ostinato.bench.suite import seal

    suite = seal(options.suite, options.name)
    row = {"name": suite.name, "version": suite.version, "hash": suite.hash, "tasks": len(suite.tasks)}
    text = f"{suite.label}: {len(suite.tasks)} tasks, hash {suite.hash}"
    print(json.dumps(row) if options.json else text)  # noqa: T201
    return DONE


def _run(options: argparse.Namespace) -> int:
    if not options.versions and not options.url:
        return _complain("name at least one side: --versions 3 7, or --url MODEL@http://HOST:PORT/v1")
    if options.passes < 1 or options.at_once < 1:
        return _complain("--passes and --at-once are at least 1")
    try:
        urls = [(url, model) for model, url in map(named, options.url)]
        judge = options.judge and named(options.judge)
    except ValueError as error:
        return _complain(str(error))
    if judge and judge in {(model, url) for url, model in urls}:
        return _complain(f"{options.judge} cannot judge itself: name another model")
    from ostinato.bench.suite import open_suite
    from ostinato.harness.agent import HarnessConfig

    order = BenchOrder(
        directory=options.directory,
        versions=tuple(options.versions),
        urls=tuple(urls),
        store=options.store,
        sandbox=SandboxConfig(backend=options.sandbox, egress=options.egress),
        harness=HarnessConfig(
            profile=options.profile,
            temperature=options.temperature,
            max_turns=options.max_turns,
            max_tokens=options.max_tokens,
            max_context=options.max_context,
            max_broken=3,
            command_timeout_s=options.command_timeout,
        ),
        key=secret(options.key_file, ENDPOINT_KEY),
    )
    suite = open_suite(options.suite)
    return asyncio.run(_contest(suite, order, options))


async def _contest(suite: "BenchSuite", order: BenchOrder, options: argparse.Namespace) -> int:
    """Run side after side, then report on all of them."""
    from ostinato.bench.compare import figures
    from ostinato.bench.contest import Contest, Results
    from ostinato.bench.page import text

    results: dict[str, Results] = {}
    voids: list[str] = []
    unjudged: Counter[str] = Counter()
    show = _show()
    with show.heartbeat():
        async with open_sides(order) as sides, _judge_of(options.judge) as judge:
            async for side, store in sides:
                contest = Contest(store, suite, passes=options.passes, slots=options.at_once, judge=judge)
                total = len(suite.tasks) * options.passes
                results[side.name], void = await _all_passes(contest, side, show, total)
                voids += [void] if void else []
                unjudged += contest.unjudged
    found = figures(suite, options.passes, results)
    if options.out is not None:
        write(found, options.out)
    print(json.dumps(found.as_json()) if options.json else text(found))  # noqa: T201
    for why, number in unjudged.items():
        print(f"ostinato bench: no verdict on {number} solved passes: {why}", file=sys.stderr)  # noqa: T201
    for reason in voids:
        print(f"ostinato bench: {reason}", file=sys.stderr)  # noqa: T201
    return UNFINISHED if voids else DONE


async def _all_passes(contest: "Contest", side: "Side", show: "Show", total: int) -> "tuple[Results, str]":
    """Run the passes of a side under a bar; return them, and the reason why some stayed void."""
    from ostinato.bench.run import BenchError

    solved = 0
    with show.stage(side.name, total) as bar:

        def tell(result: "PassResult") -> None:
            nonlocal solved
            solved += result.solved
            bar.more(f"{solved} solved")

        try:
            return await contest.run(side, tell), ""
        except BenchError as error:
            return contest.results(side.name), str(error)


def _show() -> "Show":
    """Return a display on standard error, since the report is all that goes to standard output."""
    from rich.console import Console

    from ostinato.loop.show import Show

    return Show(Console(stderr=True))


@asynccontextmanager
async def _judge_of(word: str) -> AsyncIterator["QualityJudge | None"]:
    if not word:
        yield None
        return
    async with open_judge(word) as judge:
        yield judge


def write(found: Any, folder: Path) -> None:
    """Write the report into `folder` as JSON, as a page, and as a plot where matplotlib is installed."""
    from importlib.util import find_spec

    from ostinato.bench.page import page, plot

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(found.as_json(), indent=1) + "\n")
    (folder / "report.html").write_text(page(found))
    if find_spec("matplotlib") is not None:
        (folder / "plot.png").write_bytes(plot(found))


@asynccontextmanager
async def open_sides(order: BenchOrder) -> AsyncIterator[AsyncIterator[Opened]]:
    """Open what the sides need; each side is served only while it is the one that runs."""
    async with AsyncExitStack() as stack:
        yield _sides(order, stack)


async def _sides(order: BenchOrder, stack: AsyncExitStack) -> AsyncIterator[Opened]:
    from ostinato.loop.stages.suite import side_of

    store: Store | None = None
    endpoints = await _endpoints(order, stack) if order.urls else []  # before hours of versions
    if order.versions:
        resources = await _resources(order, stack)
        store = resources.store
        for version in order.versions:
            async with side_of(resources, version) as side:
                yield side, store
    if order.urls:
        if store is None:
            from ostinato.store import Store as Record

            order.store.parent.mkdir(parents=True, exist_ok=True)
            store = Record.open(order.store)
            stack.callback(store.close)
        for side in endpoints:
            yield side, store


async def _resources(order: BenchOrder, stack: AsyncExitStack) -> Any:
    from ostinato.config import load
    from ostinato.loop.config import RunConfig
    from ostinato.loop.folder import RunError, owned
    from ostinato.loop.resources import open_resources

    directory = meant_folder(order.directory)
    run = stack.enter_context(owned(directory, "bench run"))
    known = {each.version for each in run.open_store().versions()}
    if unknown := sorted(set(order.versions) - known):
        raise RunError(f"{directory} has no version {unknown[0]}, only {min(known)} to {max(known)}")
    config = load(RunConfig, run.config)
    return await stack.enter_async_context(open_resources(config, run, _show()))


async def _endpoints(order: BenchOrder, stack: AsyncExitStack) -> Sequence["Side"]:
    from ostinato.bench.contest import Side, settings_hash
    from ostinato.bench.endpoint import Endpoint
    from ostinato.harness.episode import EpisodeRunner
    from ostinato.sandbox.choose import choose_backend
    from ostinato.sandbox.exam.verifier import Verifier

    backend = await choose_backend(order.sandbox)
    stack.push_async_callback(backend.aclose)
    config = order.harness
    assert config is not None
    sides = []
    for url, model in order.urls:
        async with Endpoint(url, order.key, model=model, patience_s=0.0) as impatient:
            await impatient.check()
        client = await stack.enter_async_context(Endpoint(url, order.key, model=model))
        runner = EpisodeRunner(client, backend, Verifier(backend), config)
        name = f"{model} at {url} (settings {settings_hash(config, runner.harness)})"
        sides.append(Side(name=name, runner=runner))
    return sides


def _complain(message: str) -> int:
    print(f"ostinato bench: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
