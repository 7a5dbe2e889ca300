"""Nodes of a real Ray cluster that do not belong to the run, that die, and that hang and wake again.

Covers loop/placement/nodes.py, loop/placement/keeper.py and loop/placement/ray.py.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fuzz.ray_nodes import add_node, is_gone, other_machine, parent_of, pids_of, signal_all
from tests.loop.placement.test_contract import HUNG_S, Settings, answers

import ostinato
from ostinato.loop import services as services_module
from ostinato.loop.placement.base import PlacementError
from ostinato.loop.placement.config import Needs, PlacementConfig
from ostinato.loop.resources import open_placement
from ostinato.loop.run import Run
from ostinato.loop.services import Service, Services

pytestmark = pytest.mark.ray

SOON_S = 2.0
"""The bound of a wait for an actor that goes, in place of the package's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A node that is not like the others."""

    node: Any
    place: str
    """The resource that it alone has."""


@contextmanager
def node_with(cluster: Any, place: str, **environment: str) -> Iterator[Stranger]:
    node = add_node(cluster, "r9", place=place, **environment)
    try:
        yield Stranger(node=node, place=place)
    finally:
        cluster.remove_node(node)


def wants(cluster: Any, place: str) -> PlacementConfig:
    needs = {"engine": Needs(custom={place: 1.0})}
    return PlacementConfig(kind="ray", address=cluster.address, resources=needs)


async def refusal(config: PlacementConfig, directory: Path) -> str:
    """Return the words with which a run is refused before its first stage."""
    placement = open_placement(config, directory, local_store=True)
    try:
        with pytest.raises(PlacementError) as caught:
            await placement.reserve(["engine"])
    finally:
        await placement.aclose()
    return str(caught.value)


async def test_a_node_with_another_version_is_refused_at_the_start(
    cluster: Any, tmp_path: Path, modules: Path
) -> None:
    root = Path(ostinato.__file__).parent
    other = tmp_path / "other" / "ostinato"
    shutil.copytree(root, other, ignore=shutil.ignore_patterns("__pycache__"))
    text = (other / "__init__.py").read_text()
    (other / "__init__.py").write_text(text.replace(ostinato.__version__, "0.0.7"))
    (other / "loop" / "placement" / "keeper.py").unlink()  # which that version does not have yet
    with node_with(cluster, "other", PYTHONPATH=f"{other.parent}:{modules}") as stranger:
        said = await refusal(wants(cluster, stranger.place), tmp_path)
    own = re.escape(ostinato.__version__)
    both = rf"ostinato is 0\.0\.7\+\w{{8}} on \S+ \(\S+\) and {own}\+\w{{8}} on \S+"
    assert re.fullmatch(both + ": install the same on every node", said)


async def test_a_node_without_ostinato_is_refused_and_one_that_is_never_used_is_not(
    cluster: Any, tmp_path: Path, modules: Path
) -> None:
    hidden = tmp_path / "hidden" / "ostinato"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('there is no ostinato here')")
    with node_with(cluster, "none", PYTHONPATH=f"{hidden.parent}:{modules}") as stranger:
        said = await refusal(wants(cluster, stranger.place), tmp_path)
        placement = open_placement(wants(cluster, "place"), tmp_path, local_store=True)
        try:
            await placement.reserve(["engine"])
        finally:
            await placement.aclose()
    assert said.startswith("ostinato is not installed on ")


async def test_a_run_folder_that_a_node_does_not_see_is_named(cluster: Any, tmp_path: Path) -> None:
    said = await refusal(wants(cluster, "place"), tmp_path / "nowhere")
    assert re.search(r"does not see the run folder \S+nowhere: put it on a file system that all nodes", said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts over the name of this machine")
async def test_a_record_that_one_machine_alone_reaches_is_refused_on_another(
    cluster: Any, tmp_path: Path
) -> None:
    with other_machine(cluster, tmp_path, "elsewhere"):
        said = await refusal(wants(cluster, "elsewhere"), tmp_path)
        placement = open_placement(wants(cluster, "elsewhere"), tmp_path, local_store=False)
        try:
            await placement.reserve(["engine"])  # a database that both reach
        finally:
            await placement.aclose()
    assert re.search(r"is another machine than \S+, which alone reaches the record, a SQLite file or a", said)


@contextmanager
def stopped(pids: list[int], ends: str) -> Iterator[None]:
    """Kill or stop these processes; those that are stopped go on in the end."""
    signal_all(pids, signal.SIGKILL if ends == "killed" else signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


async def is_up_again(service: Service) -> None:
    """Wait without a question to the address, which a service that hangs still accepts."""
    async with asyncio.timeout(HUNG_S):
        while service.restarts == 0 or not service.up:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("ends", ["killed", "hung"])
async def test_services_of_a_node_that_is_lost_move_to_another(
    ends: str, cluster: Any, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that hung and wakes ends the service that was moved away from it, and starts nothing."""
    for name, seconds in (("HEALTH_S", 0.5), ("ANSWER_S", 5.0), ("MOST_SILENT", 3)):
        monkeypatch.setattr(services_module, name, seconds)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setitem(services_module.KINDS, "placed_server", "engine")
    place = f"for-{ends}"
    with node_with(cluster, place) as lost:
        placement = open_placement(wants(cluster, place), tmp_path, local_store=True)
        async with Services(Run(directory=tmp_path), placement) as services:
            service = await services.start("web", "placed_server", Settings(diary=str(tmp_path / "diary")))
            pid, frozen = service.pid, pids_of(lost.node)
            assert pid in frozen
            with node_with(cluster, place) as other, stopped(frozen, ends):
                await services.guard(is_up_again(service))
                assert service.pid in pids_of(other.node) and await answers(service)
                now = service.pid
                signal_all(frozen, signal.SIGCONT)
                async with asyncio.timeout(HUNG_S):
                    while not is_gone(pid):
                        await asyncio.sleep(0.1)
                assert await answers(service) and service.pid == now and not is_gone(now)


@pytest.fixture
async def services(
    cluster: Any, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Services]:
    """Services on the cluster whose questions come soon."""
    for name, seconds in (("HEALTH_S", 0.5), ("ANSWER_S", 5.0), ("MOST_SILENT", 2)):
        monkeypatch.setattr(services_module, name, seconds)
    monkeypatch.setattr("ostinato.loop.placement.ray.GONE_S", SOON_S)
    config = PlacementConfig(kind="ray", address=cluster.address)
    async with Services(
        Run(directory=tmp_path), open_placement(config, tmp_path, local_store=True)
    ) as services:
        yield services


@pytest.fixture
async def service(services: Services, tmp_path: Path) -> Service:
    return await services.start("web", "placed_server", Settings(diary=str(tmp_path / "diary")))


async def test_an_actor_that_hangs_is_given_up_with_its_service(services: Services, service: Service) -> None:
    """Ray does not notice: the node answers, and the actor has not ended."""
    frozen = [parent_of(service.pid), service.pid]
    with stopped(frozen, "hung"):
        await services.guard(is_up_again(service))
        assert service.pid not in frozen and await answers(service)


async def test_a_service_that_was_killed_is_started_once(services: Services, service: Service) -> None:
    """The bound of the wait for the killed one is not applied to the one that was started after it."""
    service.kill()
    await services.guard(is_up_again(service))
    await asyncio.sleep(2 * SOON_S)
    assert service.restarts == 1 and await answers(service)


async def test_the_services_of_a_node_share_one_actor_and_come_back_when_it_dies(
    cluster: Any, tmp_path: Path, modules: Path
) -> None:
    """Four services on three nodes, so that two of them share one."""
    config = PlacementConfig(kind="ray", address=cluster.address)
    placement = open_placement(config, tmp_path, local_store=True)
    async with Services(Run(directory=tmp_path), placement) as services:
        started = [
            await services.start(f"web-{number}", "placed_server", Settings(diary=str(tmp_path / "diary")))
            for number in range(4)
        ]
        actors = [parent_of(service.pid) for service in started]
        shared = next(actor for actor in actors if actors.count(actor) > 1)
        of_it = [service for service, actor in zip(started, actors, strict=True) if actor == shared]
        signal_all([shared], signal.SIGKILL)
        for service in of_it:
            await services.guard(is_up_again(service))
        assert all([await answers(service) for service in started])
        assert [service.restarts for service in started] == [int(service in of_it) for service in started]
        assert len(set(actors)) <= 3 and shared not in {parent_of(service.pid) for service in started}
