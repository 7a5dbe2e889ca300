"""A wait ends when an object is created, or by itself."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ostinato.store import Objects, Watch

LONG_S = 60.0


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    found = Objects.open(tmp_path).watch("weights/versions")
    yield found
    found.close()


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no inotify")
@pytest.mark.parametrize("before", [True, False], ids=["a folder that is there", "one that is not"])
async def test_a_new_object_ends_the_wait(tmp_path: Path, watch: Watch, before: bool) -> None:
    objects = Objects.open(tmp_path)
    if before:
        objects.create("weights/versions/0.json", b"")
        await watch.wait(LONG_S)  # the first wait does not know what came before it
        await watch.wait(0.01)
    waiting = asyncio.create_task(_until_there(watch, objects))
    await asyncio.sleep(0)
    await asyncio.to_thread(objects.create, "weights/versions/1.json", b"")
    await asyncio.wait_for(waiting, LONG_S / 2)


async def _until_there(watch: Watch, objects: Objects) -> None:
    while not objects.exists("weights/versions/1.json"):
        await watch.wait(LONG_S if objects.list("weights") else 0.01)


async def test_a_store_that_reports_nothing_is_waited_for(tmp_path: Path) -> None:
    for watch in (Objects.open("memory://").watch("a"), Objects.open(tmp_path).watch("nowhere")):
        await asyncio.wait_for(watch.wait(0.01), LONG_S)
        watch.close()
        watch.close()
