"""The contract of a placement, held by children of this process and by actors on a real Ray cluster.

Covers loop/placement/base.py, loop/placement/local.py, loop/placement/ray.py, loop/placement/keeper.py and
loop/placement/choose.py.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ostinato.loop import services as services_module
from ostinato.loop.placement.base import PlacementError
from ostinato.loop.placement.config import Needs, PlacementConfig
from ostinato.loop.resources import open_placement
from ostinato.loop.run import Run
from ostinato.loop.services import Service, ServiceError, Services

BOTH = ["local", pytest.param("ray", marks=pytest.mark.ray)]


HUNG_S = 300.0
"""Seconds after which a wait counts as hung; on a quiet machine the longest takes 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a small server."""

    host: str = ""
    port: int = 0
    diary: str = ""


@pytest.fixture(params=BOTH)
def config(request: pytest.FixtureRequest) -> PlacementConfig:
    """A placement of each kind."""
    if request.param == "local":
        return PlacementConfig()
    return PlacementConfig(kind="ray", address=request.getfixturevalue("cluster").address)


@pytest.fixture
async def services(
    config: PlacementConfig, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    monkeypatch.setenv("PYTHONPATH", str(modules))
    placement = open_placement(config, tmp_path, local_store=True)
    async with Services(Run(directory=tmp_path), placement) as opened:
        yield opened


async def answers(service: Service) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(service.url) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def back(service: Service, before: int = 0) -> None:
    """Wait until a service was started again and answers."""
    async with asyncio.timeout(HUNG_S):
        while service.restarts == before or not await answers(service):
            await asyncio.sleep(0.05)


async def server(services: Services, tmp_path: Path, name: str = "web") -> Service:
    return await services.start(name, "placed_server", Settings(diary=str(tmp_path / "diary")))


async def test_a_service_answers_at_its_address_and_comes_back_on_its_port(
    services: Services, tmp_path: Path
) -> None:
    service = await server(services, tmp_path)
    assert await answers(service) and service.ready["ready"]
    url = service.url
    os.kill(service.pid, signal.SIGKILL)
    await services.guard(back(service))
    assert service.url == url and services.restarts == 1


async def test_a_service_that_hangs_is_ended_and_comes_back(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HEALTH_S", 0.1), ("ANSWER_S", 3.0), ("MOST_SILENT", 2)):
        monkeypatch.setattr(services_module, name, seconds)
    service = await server(services, tmp_path)
    os.kill(service.pid, signal.SIGSTOP)
    await services.guard(back(service))


async def test_a_service_that_dies_too_often_is_given_up(services: Services, tmp_path: Path) -> None:
    services.most_restarts = 1
    service = await server(services, tmp_path)
    os.kill(service.pid, signal.SIGKILL)
    await services.guard(back(service))
    os.kill(service.pid, signal.SIGKILL)
    with pytest.raises(ServiceError, match="web died 2 times within 10 minutes, last with status -9"):
        await services.guard(asyncio.Event().wait())


async def test_a_service_that_was_started_wrongly_is_one_sentence(services: Services) -> None:
    with pytest.raises(ServiceError) as caught:
        await services.start("web", "placed_wrong", Settings())
    assert str(caught.value) == "web did not start: port 80 is taken"


async def test_services_are_stopped_in_reverse_order(
    config: PlacementConfig, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(modules))
    placement = open_placement(config, tmp_path, local_store=True)
    async with Services(Run(directory=tmp_path), placement) as services:
        for name in ("first", "second"):
            await server(services, tmp_path, name)
        stopped = [service.url for service in services._running]
    assert len(stopped) == 2
    assert (tmp_path / "diary").read_text().split("\n")[:2] == ["second stopped", "first stopped"]


@pytest.mark.ray
async def test_what_a_cluster_lacks_is_named_at_once(cluster_config: PlacementConfig, tmp_path: Path) -> None:
    placement = open_placement(cluster_config, tmp_path, local_store=True)
    try:
        with pytest.raises(PlacementError, match="no node has more than 0 GPU"):
            await placement.reserve(["gateway", "engine"])
        with pytest.raises(PlacementError, match=r"no node has the labels .*mars"):
            await placement.reserve(["search"])
        with pytest.raises(PlacementError, match="too small for 13 gateway at once"):
            await placement.reserve(["gateway"] * 13)
    finally:
        await placement.aclose()


@pytest.fixture
def cluster_config(cluster: Any) -> PlacementConfig:
    wanted = {"engine": Needs(gpus=1.0), "search": Needs(labels={"region": "mars"})}
    return PlacementConfig(kind="ray", address=cluster.address, resources=wanted)


ORPHAN = """
import os, time
from ostinato.loop.placement.local import die_with_parent
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
die_with_parent(parent)
print("goes on")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_child_whose_parent_was_killed_before_it_asked_ends() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
