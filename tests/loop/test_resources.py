"""Engines of one arm: real processes that are killed, of which another serves at once.

Covers loop/placement/engines.py.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from rich.console import Console
from tests.loop.test_services import SERVER, Settings

from ostinato.config import ConfigError, read
from ostinato.loop.config import RunConfig, check
from ostinato.loop.resources import ArmEngines, RunResources, standing
from ostinato.loop.run import Run
from ostinato.loop.services import Services
from ostinato.loop.show import Show
from ostinato.sandbox.choose import choose_backend
from ostinato.store import Store

QUIET = Show(Console(quiet=True, force_terminal=False))
COUNTING = """
import http.server, json, sys, tomllib
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"swaps": 3}')
_, _, path, _, table = sys.argv
server = http.server.HTTPServer(("127.0.0.1", tomllib.load(open(path, "rb"))[table]["port"]), Answers)
print(json.dumps({"ready": True, "port": server.server_port}), flush=True)
server.serve_forever()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_server.py").write_text(SERVER)
    (tmp_path / "counting_server.py").write_text(COUNTING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


async def test_another_engine_serves_at_once_and_the_dead_one_stands_by(tmp_path: Path) -> None:
    pointed: list[tuple[str, bool]] = []
    async with Services(Run(directory=tmp_path)) as services:
        one, two = [await services.start(name, "shop_server", Settings()) for name in ("one", "two")]
        engines = ArmEngines([one, two], lambda url: pointed.append((url, one.up)))
        assert pointed == [(one.url, True)]
        os.kill(one.pid, signal.SIGKILL)
        await services.guard(until(lambda: one.restarts == 1 and one.up))
        assert pointed[1:] == [(two.url, False)], "at once, while the dead one is not there yet"
        assert engines.url == two.url, "what serves goes on serving"
        os.kill(two.pid, signal.SIGKILL)
        await services.guard(until(lambda: two.restarts == 1 and two.up))
        assert pointed[2:] == [(one.url, True)] and engines.url == one.url


async def test_an_engine_alone_is_waited_for(tmp_path: Path) -> None:
    pointed: list[str] = []
    async with Services(Run(directory=tmp_path)) as services:
        one = await services.start("one", "shop_server", Settings())
        ArmEngines([one], pointed.append)
        os.kill(one.pid, signal.SIGKILL)
        await services.guard(until(lambda: one.restarts == 1 and one.up))
        assert pointed == [one.url]


async def test_the_counters_of_an_engine_that_just_died_are_waited_for(tmp_path: Path) -> None:
    run, store = Run(directory=tmp_path), Store.open(tmp_path / "store.db")
    async with Services(run) as services, AsyncExitStack() as stack:
        one = await services.start("one", "counting_server", Settings())
        backend = await choose_backend("process")
        stack.push_async_callback(backend.aclose)
        config = read(RunConfig, {}, "run.toml")
        resources = RunResources(
            config, run, QUIET, store=store, services=services, gateway=one, backend=backend
        )
        stack.push_async_callback(resources.aclose)
        resources.poll_s = 0.01
        os.kill(one.pid, signal.SIGKILL)
        await until(lambda: not one.up)
        counters = await services.guard(resources.counters(ArmEngines([one], lambda _: None)))
        assert counters == {"swaps": 3} and one.restarts == 1
    store.close()


@pytest.mark.parametrize(
    ("standby", "mode"), [(-1, "asynchronous"), (1, "synchronous")], ids=["negative", "synchronous"]
)
def test_engines_that_cannot_stand_by_are_refused(standby: int, mode: str) -> None:
    settings = {"engine": {"standby": standby}, "practice": {"mode": mode}}
    with pytest.raises(ConfigError, match=rf"engine\.standby is {standby}: make it 0 or more, and 0 in sync"):
        check(read(RunConfig, settings, "run.toml"))


def test_room_is_reserved_for_them() -> None:
    config = read(RunConfig, {"engine": {"standby": 2}}, "run.toml")
    assert standing(config).count("engine") == 3
