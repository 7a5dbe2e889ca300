"""Pages that a process wrote in a private mapping are saved, and loaded into another process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.vm.qemu.memory import GuestMemory, SavedPages

PAGE, PAGES = 4096, 32
SCRIPT = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    ram = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
for page in eval(sys.argv[2]):
    ram[page * 4096] = 1 + page
print("ready", flush=True)
sys.stdin.readline()
print(ram[:].hex(), flush=True)
sys.stdin.readline()
"""


@contextmanager
def mapped(ram: Path, pages: list[int]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(ram), str(pages)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def content(process: subprocess.Popen[str]) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return bytes.fromhex(process.stdout.readline())


def save(
    process: subprocess.Popen[str], ram: Path, target: Path, ground: SavedPages | None = None
) -> SavedPages:
    GuestMemory.of(process.pid, ram).save(target, ground)
    return SavedPages.open(target)


@given(pages=st.lists(st.integers(0, PAGES - 1), unique=True))
def test_written_pages_arrive_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, pages: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("memory")
    ram = folder / "ram"
    ram.write_bytes(bytes(PAGE * PAGES))
    with mapped(ram, pages) as source, mapped(ram, []) as target:
        saved = save(source, ram, folder / "pages")
        GuestMemory.of(target.pid, ram).load(saved)
        assert saved.numbers.tolist() == sorted(pages)
        assert content(target) == content(source)
    assert ram.read_bytes() == bytes(PAGE * PAGES)


def test_only_pages_that_differ_from_the_ground_are_saved(tmp_path: Path) -> None:
    """Page 1 is as in the ground, 2 as in the file, 3 and 4 are new, 5 was written without a change."""
    ram = tmp_path / "ram"
    ram.write_bytes(bytes(PAGE * 5) + b"\6" + bytes(PAGE * (PAGES - 5) - 1))
    with mapped(ram, [1, 2, 3]) as first, mapped(ram, [1, 3, 4, 5]) as second, mapped(ram, []) as third:
        ground = save(first, ram, tmp_path / "ground")
        with open(f"/proc/{second.pid}/mem", "wb", buffering=0) as written:
            start = GuestMemory.of(second.pid, ram).start
            for page, byte in ((2, 0), (3, 9)):
                written.seek(start + page * PAGE)
                written.write(bytes([byte]))
        (tmp_path / "ground").unlink()
        assert save(second, ram, tmp_path / "whole").numbers.tolist() == [1, 3, 4]
        saved = save(second, ram, tmp_path / "pages", ground)
        assert saved.numbers.tolist() == [2, 3, 4]
        GuestMemory.of(third.pid, ram).load(ground)
        GuestMemory.of(third.pid, ram).load(saved)
        assert content(third) == content(second)


def test_a_ground_is_linked_and_copied_when_it_was_deleted(tmp_path: Path) -> None:
    ram = tmp_path / "ram"
    ram.write_bytes(bytes(PAGE * PAGES))
    with mapped(ram, [7, 8]) as process:
        ground = save(process, ram, tmp_path / "ground")
    ground.link_to(tmp_path / "link")
    ground.path.unlink()
    ground.link_to(tmp_path / "copy")
    link, copy = SavedPages.open(tmp_path / "link"), SavedPages.open(tmp_path / "copy")
    assert ground.same(link)
    assert not ground.same(copy)
    assert copy.numbers.tolist() == [7, 8]
    assert (copy.content == ground.content).all()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff" * 8,
        b"\1" + bytes(7),
        bytes(PAGE) + b"\xff" * 8 + b"\1" + bytes(7),
        bytes(2 * PAGE + 16) + b"\2" + bytes(7),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: bytes) -> None:
    ram = tmp_path / "ram"
    ram.write_bytes(bytes(PAGE * PAGES))
    (tmp_path / "pages").write_bytes(damage)
    with mapped(ram, []) as target, pytest.raises(SandboxError, match=r"damaged|cut short"):
        GuestMemory.of(target.pid, ram).load(SavedPages.open(tmp_path / "pages"))
