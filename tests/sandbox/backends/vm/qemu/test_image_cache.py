"""Images that processes share are made once, and not removed while they are used."""

import asyncio
from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.vm.qemu.image_cache import WHOLE, ImageLock


def make(claim: ImageLock) -> None:
    part = claim.begin()
    (part / WHOLE).write_text("one")
    claim.finish(part)


async def test_a_second_process_waits_for_the_first_and_uses_its_image(tmp_path: Path) -> None:
    first, second = ImageLock(tmp_path / "key"), ImageLock(tmp_path / "key")
    assert not first.share()
    assert not first.own()
    waiting = asyncio.create_task(asyncio.to_thread(second.share))
    make(first)
    assert not waiting.done()
    assert first.share()
    assert await waiting
    for each in (first, second):
        each.release()


async def test_the_oldest_images_are_removed_unless_they_are_used(tmp_path: Path) -> None:
    claims = [ImageLock(tmp_path / f"key{number}") for number in range(6)]
    for number, claim in enumerate(claims):
        claim.own()
        make(claim)
        claim.share()
        if number:  # the first stays in use
            claim.release()
    found = {path.parent.name for path in tmp_path.glob(f"*/{WHOLE}")}
    assert found == {"key0", "key3", "key4", "key5"}
    claims[0].release()


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match="name a state directory"):
        ImageLock(tmp_path / "file" / "key")
