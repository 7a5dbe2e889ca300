"""Real traffic: `ostinato serve` records what people do with a run's version, and the run learns from it.

Only the clock is ahead, by an attribution window.
"""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.foreign import checkpoint
from rich.console import Console

from ostinato.config import read
from ostinato.harness.client import GatewayClient, open_http
from ostinato.harness.episode import CardUser, EpisodeRunner
from ostinato.loop.base import LiveTraffic
from ostinato.loop.config import RunConfig, ScheduleConfig, check
from ostinato.loop.folder import open_run, owned
from ostinato.loop.people import PeopleTraffic
from ostinato.loop.pipeline import run_pipeline
from ostinato.loop.resources import RunResources
from ostinato.loop.results import RunResult
from ostinato.loop.run import START
from ostinato.loop.show import Show
from ostinato.model.families import load_renderer
from ostinato.rewards.live.definition import LIVE
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Signal, SignalKind, Source, new_id

pytestmark = pytest.mark.slow
SESSIONS = 3


def people(resources: RunResources) -> LiveTraffic:
    return PeopleTraffic(
        resources.store,
        load_renderer(resources.run.checkpoint(START)).tokenizer,
        resources.show,
        now=lambda: time.time() + LIVE.mature_s,
        poll_s=0.01,
    )


async def turned(folder: Path, config: RunConfig) -> RunResult:
    check(config)
    with owned(folder, "run") as run:
        opened = open_run(run, config, fresh=False)
        return await run_pipeline(config, run, Show(Console(quiet=True)), people, resumed=opened.resumed)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The address and the key that `ostinato serve` prints."""
    command = ("-m", "ostinato", "serve", "--directory", str(folder), "--port", "0")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe)
    assert process.stdout is not None
    found = None
    while found is None:
        line = (await process.stdout.readline()).decode()
        assert line, "serve ended"
        found = re.search(r"OSTINATO_URL=(\S+) OSTINATO_KEY=(\S+)", line)
    yield found[1], found[2]
    process.terminate()
    await process.communicate()


async def work(url: str, key: str, directory: Path, config: RunConfig) -> None:
    """Bring a few requests to the agent, and keep some of its edits."""
    backend = await choose_backend("process")
    async with open_http() as http:
        client = GatewayClient(url, key, http=http)
        runner = EpisodeRunner(client, backend, Verifier(backend), config.harness)
        for number in range(SESSIONS):
            pebble, id = generate("fix", "train", number), new_id()
            task = provide(pebble, directory / pebble.id)
            await runner.attempt(task, CardUser(task), source=Source.LIVE, session_id=id)
            kind = (SignalKind.EDIT_KEPT, SignalKind.COMPLAINT)[number % 2]
            await client.signal(Signal(session_id=id, kind=kind, value=1.0, observed_at=time.time()))
    await backend.aclose()


@pytest.mark.deep
async def test_a_cycle_learns_from_the_sessions_that_serve_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {
        "sandbox": {"backend": "process"},
        "model": {"path": str(checkpoint(tmp_path / "llama", "Llama"))},
        "engine": {"slots": 8, "context": 3072},
        "tasks": {"held_out": {"seeds": 2}},
        "harness": {"profile": "short", "max_context": 2048, "max_turns": 2},
        "bench": {"passes": 1},
        "live": {
            "developers": "people",
            "sessions": SESSIONS,
            "ab_sessions": 4,
            "canary_sessions": 0,
            "versions": 1,
        },
        "schedule": {"stages": ["after"]},
    }
    config = read(RunConfig, settings, "the test")
    first = await turned(folder, config)
    assert first.after is not None and first.turned is None
    store = Store.open(folder / "store.db")
    store.accounts.set_consent(user="local", granted=True, by="local")
    async with served(folder) as (url, key):
        await work(url, key, tmp_path / "tasks", config)
    longer = replace(config, schedule=ScheduleConfig(stages=("after", "cycle")))
    second = await turned(folder, longer)
    assert second.resumed and second.after == first.after
    assert second.turned is not None
    (cycle,) = second.turned.cycles
    assert cycle.lived.sessions == cycle.collected.sessions == SESSIONS
    assert cycle.collected.offered == SESSIONS and cycle.lived.signals >= SESSIONS
    assert second.integrity.turns_unaccounted == second.integrity.prompts_unended == 0
    (arm,) = [each for each in store.arms() if each.share > 0]
    assert arm.version == second.turned.served.version
    store.close()
