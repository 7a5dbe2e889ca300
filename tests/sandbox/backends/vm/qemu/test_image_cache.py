"""Images that several processes share: made once, not removed while they are used."""

import asyncio
from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.vm.qemu.image_cache import WHOLE, ImageLock


def make(claim: ImageLock) -> None:
    part = claim.begin()
    (part / WHOLE).write_text("one")
    claim.finish(part)


async def test_who_comes_second_waits_for_the_first_and_uses_its_image(tmp_path: Path) -> None:
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


async def test_the_oldest_images_go_but_those_in_use(tmp_path: Path) -> None:
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


def test_where_nothing_can_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match="name a state directory"):
        ImageLock(tmp_path / "file" / "key")
