"""What a process has written of a file that it maps privately, saved and given to another one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.sandbox import SandboxError
from ostinato.sandbox.qemu import memory

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


@settings(max_examples=5, deadline=None)
@given(pages=st.lists(st.integers(0, PAGES - 1), unique=True))
def test_written_pages_arrive_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, pages: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("memory")
    ram = folder / "ram"
    ram.write_bytes(bytes(PAGE * PAGES))
    with mapped(ram, pages) as source, mapped(ram, []) as target:
        memory.save(source.pid, ram, folder / "pages")
        memory.load(target.pid, ram, folder / "pages")
        assert (folder / "pages").stat().st_size < len(pages) * (PAGE + 16) + 9
        assert content(target) == content(source)
    assert ram.read_bytes() == bytes(PAGE * PAGES)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 8, b"\1" + bytes(7), b"\1" + bytes(7) + b"\1" + bytes(15)])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: bytes) -> None:
    ram = tmp_path / "ram"
    ram.write_bytes(bytes(PAGE * PAGES))
    (tmp_path / "pages").write_bytes(damage)
    with mapped(ram, []) as target, pytest.raises(SandboxError, match=r"damaged|cut short"):
        memory.load(target.pid, ram, tmp_path / "pages")
