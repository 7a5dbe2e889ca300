"""Versions come from the object store into an engine at once, and nothing of another model does."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.faulty_objects import Fault, FaultyObjects
from tests.engine.toolbox import decoder

from ostinato.engine import loader as room
from ostinato.engine.base import LoadRefusedError
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.loader import SyncLoader
from ostinato.model.mtp import Mtp, draft_shapes
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.sync.weights import to_blobs

LONG_S = 60.0


@pytest.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = EmbeddedEngine(decoder(1), version=1, slots=2, max_len=64)
    yield made
    await made.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no inotify")
async def test_a_folder_reports_a_version_at_once(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polling would take ten minutes here."""
    objects = Objects.open(tmp_path)
    publisher = Publisher(objects)
    publisher.anchor(1, decoder(1).state_dict())
    monkeypatch.setattr(room, "POLL_S", 600.0)
    loader = SyncLoader(engine, Subscriber(objects))
    await loader.catch_up()
    following = asyncio.create_task(loader.follow())
    for version in (2, 3):
        await asyncio.to_thread(publisher.delta, version, decoder(version).state_dict())
        await asyncio.wait_for(_served(engine, version), LONG_S)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def _served(engine: EmbeddedEngine, version: int) -> None:
    while engine.version < version:
        await asyncio.sleep(0.01)


async def test_parts_are_fetched_before_the_version_is_committed(
    engine: EmbeddedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher commits only after the reader has fetched the uploaded parts."""
    monkeypatch.setattr(room, "POLL_S", 0.01)
    monkeypatch.setattr(room, "AHEAD_S", 0.0)
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(1, decoder(1).state_dict())
    ahead, committing = asyncio.Event(), False
    running = asyncio.get_running_loop()

    def reading(operation: str, key: str) -> Fault:
        if operation == "get" and "/parts/0000000002/" in key and not committing:
            running.call_soon_threadsafe(ahead.set)
        return Fault.NONE

    async def publish() -> None:
        manifest = publisher._uploader.patch(2, to_blobs(decoder(2).state_dict(), copy=True), publisher._base)
        assert manifest.size
        await asyncio.wait_for(ahead.wait(), LONG_S)

    loader = SyncLoader(engine, Subscriber(FaultyObjects(Objects.open(tmp_path), reading)))
    await loader.catch_up()
    following = asyncio.create_task(loader.follow())
    await publish()
    committing = True
    await asyncio.to_thread(publisher.delta, 2, decoder(2).state_dict())
    await asyncio.wait_for(_served(engine, 2), LONG_S)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert loader.stats() == {"refused": 0, "mismatches": 0}


async def test_another_architecture_is_refused_before_a_byte_of_it_is_read(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    other = {name: tensor.bfloat16() for name, tensor in decoder(1).state_dict().items()}
    Publisher(Objects.open(tmp_path)).anchor(1, other)
    read: list[str] = []

    def reading(operation: str, key: str) -> Fault:
        read.append(key)
        return Fault.NONE

    subscriber = Subscriber(FaultyObjects(Objects.open(tmp_path), reading), like=decoder(1).state_dict())
    with pytest.raises(LoadRefusedError, match=r"another architecture: .* is bfloat16 .*, not float32"):
        await SyncLoader(engine, subscriber).load(1)
    assert read and not [key for key in read if "/parts/" in key]


async def test_a_version_brings_a_draft_whole_or_none(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """An engine that has no use for it serves the model; a part of one is refused."""
    model = decoder(1)
    own, whole = model.state_dict(), Mtp.beside(model, 0).state_dict()
    part = {name: tensor for name, tensor in whole.items() if "enorm" not in name}
    like: dict[str, Any] = {"like": own, "beside": draft_shapes(model.config)}
    for number, tensors in enumerate((own | whole, own, own | part), 1):
        objects = Objects.open(tmp_path / str(number))
        Publisher(objects).anchor(number, tensors)
        following = SyncLoader(engine, Subscriber(objects, **like))
        elsewhere = SyncLoader(engine, Subscriber(objects), shape=model.config)
        if number == 3:
            with pytest.raises(LoadRefusedError, match=r"another architecture: it lacks .*enorm"):
                await following.load(number)
        else:
            await following.load(number)
            await elsewhere.load(number)
            assert engine.version == number
