"""`python -m ostinato.loop.stages.sampler`: one sampler of practice, the reconciler in a process of its own.

Any number of them work on the ledger of one run, on any number of hosts (`store/ledger/leases.py`). A sampler
ends by itself when the last version is published. Its keys are in the environment.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from ostinato.config import load, settings_of
from ostinato.harness.client import GatewayClient, open_http
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.harness.providers.search import SearchAt
from ostinato.loop.config import RunConfig, practice_definition
from ostinato.loop.resources import GATEWAY_KEY, SEARCH_KEY
from ostinato.loop.run import START, Run, write_whole
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.problems import paid
from ostinato.rewards.practice.definition import PracticeReward
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SessionRunner, SlotWork
from ostinato.rollout.timeouts import Examiner
from ostinato.sandbox.base import Backend, SandboxError
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verdict_memory import RememberingVerifier
from ostinato.store import Store, StoreError
from ostinato.store.definitions import keep_definition
from ostinato.store.ledger.slots import Slots
from ostinato.tasks.base import TaskError
from ostinato.tasks.source import SourceError
from ostinato.web.secret import bearer, take_secret

REPORT_S = 1.0
"""Seconds between two looks at the totals, which are written for a display."""
ANSWER_S = aiohttp.ClientTimeout(total=10.0)
MENDABLE = (SandboxError, SourceError, StoreError, TaskError)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerProcess:
    """The settings of a sampler; everything else it reads from the settings of the run.

    >>> SamplerProcess(directory=Path("runs/demo"), number=0, gateway="", engine="").name
    'sampler-0'
    """

    directory: Path
    """the folder of the run"""
    number: int
    """its place among the samplers, from 0"""
    gateway: str
    """URL of the gateway"""
    engine: str
    """URL of the engine, which synchronous runs ask for its version"""
    search: str = ""
    """URL of the search service; empty for none"""

    @property
    def name(self) -> str:
        return f"sampler-{self.number}"


def totals(run: Run, name: str) -> Path:
    """Return the file with the totals of a sampler, for a display."""
    return run.directory / "samplers" / f"{name}.json"


async def sample(settings: SamplerProcess) -> None:
    """Sample until the last version of practice is published."""
    run = Run(directory=settings.directory)
    config = load(RunConfig, run.config)
    until, secret = config.refine.versions, take_secret()
    assert until is not None  # `config.check` has refused anything else
    async with AsyncExitStack() as stack:
        store, http = run.open_store(), open_http()
        stack.push_async_callback(http.close)
        backend = await choose_backend(config.sandbox)
        stack.push_async_callback(backend.aclose)

        async def served() -> int | None:
            return await _served(http, settings.engine, secret)

        runner = _runner(settings, config, backend, http)
        reconciler = Reconciler(
            SlotWork(runner, config.practice, Examiner(store, backend, served)),
            store,
            _reward(store, config, run),
            run.tasks / "practice",
            Training(
                batch=config.refine.groups,
                staleness=config.refine.staleness,
                until=until,
                baseline=config.refine.policy.baseline,
            ),
            seed=config.seed,
            name=settings.name,
            served=served,
        )
        reporting = asyncio.create_task(_report(reconciler, totals(run, settings.name)))
        slots = Slots(store)
        try:
            await reconciler.run(paid(config), lambda: slots.newest_version() >= until)
        finally:
            reporting.cancel()


def _runner(
    settings: SamplerProcess, config: RunConfig, backend: Backend, http: aiohttp.ClientSession
) -> SessionRunner:
    key, outside = os.environ.pop(GATEWAY_KEY, ""), config.practice.outside
    verifier = RememberingVerifier(backend)
    if outside.harness:
        return OutsideRunner(settings.gateway, key, backend, verifier, outside)
    search = None
    if settings.search:
        search = SearchAt(url=settings.search, key=os.environ.pop(SEARCH_KEY, ""), http=http)
    client = GatewayClient(settings.gateway, key, http=http)
    return EpisodeRunner(client, backend, verifier, config.harness, search=search)


def _reward(store: Store, config: RunConfig, run: Run) -> PracticeReward:
    """Return practice's reward; the text of its definition is kept under its hash."""
    definition = practice_definition(config.practice)
    keep_definition(store, definition.hash(), definition.text())
    return PracticeReward(definition, load_wire(run.checkpoint(START))[1])


async def _served(http: aiohttp.ClientSession, engine: str, secret: str) -> int | None:
    """Return the version that the engine serves; None while it does not answer."""
    try:
        async with http.get(engine + "/healthz", headers=bearer(secret), timeout=ANSWER_S) as response:
            version: int = (await response.json())["version"]
    except (aiohttp.ClientError, TimeoutError):
        return None
    return version


async def _report(reconciler: Reconciler, path: Path) -> None:
    """Write the totals whenever a group was added to them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = -1
    while True:
        progress = reconciler.progress
        if progress.groups != written:
            written = progress.groups
            write_whole(path, json.dumps({"groups": progress.groups, "recent": progress.recent}))
        await asyncio.sleep(REPORT_S)


async def _until_asked_to_end(settings: SamplerProcess) -> bool:
    """Sample; return False when SIGTERM or SIGINT ended it before it was done."""
    work = asyncio.ensure_future(sample(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sampler as a process; return its exit status."""
    settings = settings_of(SamplerProcess, arguments, "python -m ostinato.loop.stages.sampler", __doc__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        done = asyncio.run(_until_asked_to_end(settings))
    except MENDABLE as error:
        log.error("%s stopped: %s", settings.name, error)
        return 1
    if not done:  # ends as by the signal, so that nobody takes it for done
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
