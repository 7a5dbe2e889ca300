"""The pages of a guest's memory that differ from its template's: out of a stopped QEMU, into another.

A clone maps the template's memory file privately, so what it wrote are the mapping's anonymous pages:
/proc/PID/pagemap tells them from the file's (bit 61; Documentation/admin-guide/mm/pagemap of Linux).

    file = u64 number of runs | (u64 offset, u64 length) each | the runs' bytes, one after another
"""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ostinato.sandbox.base import SandboxError

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _SWAPPED, _OF_A_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
_RUN = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
_PIECE = 1 << 22
Run = tuple[int, int]
Read = Callable[[int], bytes]


def save(pid: int, ram: Path, target: Path) -> None:
    """Write what QEMU, process `pid`, has changed of the memory file `ram`; raises OSError, SandboxError."""
    start, size = _mapping(pid, ram)
    runs = _written(pid, start, size)
    with _memory(pid, os.O_RDONLY) as memory, target.open("wb", buffering=0) as file:
        file.write(_COUNT.pack(len(runs)) + b"".join(_RUN.pack(*run) for run in runs))
        for offset, length in runs:
            for at in range(offset, offset + length, _PIECE):
                piece = os.pread(memory, min(_PIECE, offset + length - at), start + at)
                if file.write(piece) != len(piece):
                    raise OSError(f"{target} is cut short: is the disk full?")


def load(pid: int, ram: Path, source: Path) -> None:
    """Write what `save` wrote into another QEMU that maps the same file; raises OSError, SandboxError."""
    start, size = _mapping(pid, ram)
    with _memory(pid, os.O_WRONLY) as memory, source.open("rb") as file:
        for offset, length in _runs(file.read(_COUNT.size), file.read, size):
            data = file.read(length)
            if len(data) != length or os.pwrite(memory, data, start + offset) != length:
                raise SandboxError(f"{source} is damaged: take the snapshot again")


def _runs(count: bytes, read: Read, size: int) -> list[Run]:
    if len(count) != _COUNT.size:
        raise SandboxError("the saved memory is cut short: take the snapshot again")
    (number,) = _COUNT.unpack(count)
    table = read(number * _RUN.size) if number <= size // _PAGE else b""
    runs = list(_RUN.iter_unpack(table)) if len(table) == number * _RUN.size else [(size, _PAGE)]
    if any(offset % _PAGE or offset + length > size for offset, length in runs):
        raise SandboxError("the saved memory is damaged: take the snapshot again")
    return runs


def _mapping(pid: int, ram: Path) -> tuple[int, int]:
    """Address and size of the file in that process."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(str(ram)):
            low, _, high = line.split()[0].partition("-")
            return int(low, 16), int(high, 16) - int(low, 16)
    raise SandboxError(f"process {pid} has not mapped {ram}")


def _written(pid: int, start: int, size: int) -> list[Run]:
    """(offset, length) of each run of private pages, in bytes."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:  # noqa: PTH123
        entries = np.frombuffer(os.pread(file.fileno(), size // _PAGE * 8, start // _PAGE * 8), np.uint64)
    there = (entries & (_PRESENT | _SWAPPED)) != 0
    pages = np.flatnonzero(there & ((entries & _OF_A_FILE) == 0))
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]) * _PAGE, len(run) * _PAGE) for run in np.split(pages, breaks) if len(run)]


@contextmanager
def _memory(pid: int, flags: int) -> Iterator[int]:
    memory = os.open(f"/proc/{pid}/mem", flags | os.O_CLOEXEC)
    try:
        yield memory
    finally:
        os.close(memory)
