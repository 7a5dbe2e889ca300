"""Child processes are restarted on their port, given up in the end, and read their own table of settings.

Covers loop/services.py and loop/run.py.
"""

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from ostinato.config import load
from ostinato.loop import services as services_module
from ostinato.loop.run import Run
from ostinato.loop.services import Service, ServiceError, Services, watch

SERVER = """
import http.server, json, sys, tomllib
_, _, path, _, table = sys.argv
own = tomllib.load(open(path, "rb"))[table]
server = http.server.HTTPServer((own["host"], own["port"]), http.server.SimpleHTTPRequestHandler)
print(json.dumps({"ready": True, "port": server.server_port}), flush=True)
server.serve_forever()
"""

DIES_ONCE = """
import os, pathlib, signal, sys, tomllib
_, _, path, _, table = sys.argv
died = pathlib.Path(tomllib.load(open(path, "rb"))[table]["died"])
if not died.exists():
    died.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a resources's process."""

    host: str = "127.0.0.1"
    port: int = 0
    died: str = ""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_server.py").write_text(SERVER)
    (tmp_path / "shop_fails.py").write_text("import sys; sys.exit('no weights in DIR')")
    (tmp_path / "shop_ends.py").write_text("print('done')")
    (tmp_path / "shop_dies_once.py").write_text(DIES_ONCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def killed_and_back(service: Service, services: Services) -> None:
    """Kill a service and wait until it answers on its port again."""

    async def back(before: int) -> None:
        while service.restarts == before or not await answers(service.url):
            await asyncio.sleep(0.02)

    os.kill(service.pid, signal.SIGKILL)
    await services.guard(back(service.restarts))


async def test_a_killed_service_comes_back_on_its_port(tmp_path: Path) -> None:
    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        url = service.url
        await killed_and_back(service, services)
        assert service.url == url
        settings = load(Settings, tmp_path / "processes.toml", table="web")
        assert settings.port == service.ready["port"], "a restart takes the same one"
        assert services.restarts == 1
    assert not await answers(url)


async def test_a_service_that_hangs_is_ended_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process accepts connections, but it never answers."""
    for name, seconds in (("HEALTH_S", 0.05), ("ANSWER_S", 2.0), ("MOST_SILENT", 2)):
        monkeypatch.setattr(services_module, name, seconds)
    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        assert await answers(service.url)
        os.kill(service.pid, signal.SIGSTOP)

        async def back() -> None:
            while not service.restarts or not await answers(service.url):
                await asyncio.sleep(0.05)

        await services.guard(back())


async def test_a_service_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    async with Services(Run(directory=tmp_path)) as services:
        with pytest.raises(ServiceError, match="no weights in DIR"):
            await services.start("engine", "shop_fails", Settings())


async def test_a_killed_trainer_is_started_again(tmp_path: Path) -> None:
    async with Services(Run(directory=tmp_path)) as services:
        trainer = await services.start(
            "trainer", "shop_dies_once", Settings(died=str(tmp_path / "died")), keep=False
        )
        await watch(trainer, lambda: None)
        assert trainer.restarts == 1


async def test_watch_tells_a_good_end_from_a_bad_one(tmp_path: Path) -> None:
    ticks = []
    async with Services(Run(directory=tmp_path)) as services:
        await watch(
            await services.start("good", "shop_ends", Settings(), keep=False), lambda: ticks.append(1)
        )
        with pytest.raises(ServiceError, match=r"(?s)status 1.*no weights"):
            await watch(await services.start("bad", "shop_fails", Settings(), keep=False), lambda: None)
    assert ticks


async def test_a_watch_that_fails_leaves_nothing_that_starts_the_service_again(tmp_path: Path) -> None:
    def tick() -> None:
        raise RuntimeError("the record is locked")

    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("resources", "shop_server", Settings(), keep=False)
        before = asyncio.all_tasks()
        with pytest.raises(RuntimeError, match="locked"):
            await watch(service, tick)
        assert asyncio.all_tasks() == before


async def test_a_service_that_was_started_wrongly_is_one_sentence(tmp_path: Path) -> None:
    lines = (
        "import sys; print('loading', file=sys.stderr); print('engine: port 80 is taken', file=sys.stderr)"
    )
    (tmp_path / "shop_wrong.py").write_text(f"{lines}; sys.exit(2)")
    async with Services(Run(directory=tmp_path)) as services:
        with pytest.raises(ServiceError) as caught:
            await services.start("engine", "shop_wrong", Settings())
    assert str(caught.value) == "engine did not start: engine: port 80 is taken"


async def test_only_recent_deaths_count_against_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.loop.services.MAX_RESTARTS", 1)
    monkeypatch.setattr("ostinato.loop.services.RESTARTS_WITHIN_S", 0.0)
    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        for _ in range(3):
            await killed_and_back(service, services)


async def test_work_ends_when_a_service_that_it_needs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.loop.services.MAX_RESTARTS", 0)
    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        os.kill(service.pid, signal.SIGKILL)
        with pytest.raises(ServiceError, match="web died 1 times within 10 minutes, last with status -9"):
            await services.guard(asyncio.Event().wait())


def listener_at(port: int) -> socket.socket | None:
    """Return a socket that listens at a port, None when it is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        listener.close()
        return None
    return listener


async def test_an_error_that_nobody_foresaw_in_a_restart_ends_the_work_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise OSError("no such cluster")

    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        monkeypatch.setattr(service._place, "start", broken)
        service.kill()
        with pytest.raises(ServiceError, match="web was not started again: OSError\\('no such cluster'\\)"):
            await services.guard(asyncio.Event().wait())


async def test_a_port_that_is_taken_for_a_moment_does_not_end_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.loop.services.PAUSE_S", 0.01)
    async with Services(Run(directory=tmp_path)) as services:
        service = await services.start("web", "shop_server", Settings())
        port = int(service.ready["port"])
        monkeypatch.setattr("ostinato.loop.services.MAX_RESTARTS", 1_000)
        while (taken := listener_at(port)) is None:  # the next start may be faster than this test
            with contextlib.suppress(ProcessLookupError):
                os.kill(service.pid, signal.SIGKILL)
            await asyncio.sleep(0)
        before = service.restarts
        while service.restarts < before + 2:
            await asyncio.sleep(0.01)
        taken.close()
        while not await answers(service.url):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")])
async def test_a_service_listens_where_its_settings_say(tmp_path: Path, host: str, reached: str) -> None:
    async with Services(Run(directory=tmp_path)) as services:
        shop = await services.start("shop", "shop_server", Settings(host=host))
        for again in range(2):
            assert shop.url == f"http://{reached}:{shop.ready['port']}" and await answers(shop.url)
            assert await answers(f"http://127.0.0.3:{shop.ready['port']}") is (host == "0.0.0.0")
            if not again:
                await killed_and_back(shop, services)
