"""Copies the pages of a guest's memory that differ from its template's, from one stopped QEMU to another.

A clone maps the image's memory file privately, so the pages that it wrote are the mapping's anonymous pages.
/proc/PID/pagemap distinguishes them from the file's (bit 61; Documentation/admin-guide/mm/pagemap of Linux).
Pages that were written but have their old content again, as after a counter went up and down, are left out.

A machine that was loaded from a saved one has, above the image, the pages of that one, here called `ground`.
It is saved as the pages that differ from image and ground, and loaded with both.

    file = the pages' bytes | u64 number of each, ascending | u64 count
"""

import itertools
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ostinato.sandbox.base import SandboxError

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _SWAPPED, _OF_A_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
_NUMBER = np.dtype("<u8")
_PIECE = 1024
"""The number of pages that are in this process' memory at a time."""
Numbers = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedPages:
    """The pages that `save` wrote; they stay readable when the file is deleted."""

    path: Path
    identity: tuple[int, int]
    """Device and inode, which are the same under another name of the file."""
    numbers: Numbers
    content: Bytes
    """(pages, bytes of a page)."""

    @classmethod
    def open(cls, path: Path, known: "SavedPages | None" = None) -> "SavedPages":
        """Return the pages in a file, or `known` if it is theirs.

        Raises OSError, and SandboxError for a file that is not complete.
        """
        state = path.stat()
        if known is not None and known.identity == (state.st_dev, state.st_ino):
            return known
        if state.st_size < _NUMBER.itemsize:
            raise SandboxError(f"{path} is cut short: take the snapshot again")
        whole = _mapped(path)
        count = int(whole[-_NUMBER.itemsize :].view(_NUMBER)[0])
        if count * (_PAGE + _NUMBER.itemsize) + _NUMBER.itemsize != len(whole):
            raise SandboxError(f"{path} is damaged: take the snapshot again")
        numbers = whole[count * _PAGE : -_NUMBER.itemsize].view(_NUMBER)
        if (numbers[1:] <= numbers[:-1]).any():
            raise SandboxError(f"{path} is damaged: take the snapshot again")
        content = whole[: count * _PAGE].reshape(count, _PAGE)
        return cls(path=path, identity=(state.st_dev, state.st_ino), numbers=numbers, content=content)

    def same(self, other: "SavedPages | None") -> bool:
        return other is not None and self.identity == other.identity

    def link_to(self, target: Path) -> None:
        """Give the file another name, or make a copy of it where that is impossible."""
        try:
            os.link(self.path, target)
        except OSError:  # on another file system, or deleted meanwhile
            with target.open("wb", buffering=0) as file:
                _write(file.fileno(), self.content.reshape(-1))
                _write(file.fileno(), _table(self.numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestMemory:
    """The memory of the guest of process `pid`, a mapping of the file `ram`."""

    pid: int
    ram: Path
    start: int
    size: int

    @classmethod
    def of(cls, pid: int, ram: Path) -> "GuestMemory":
        """Find the mapping of `ram` in a process; raises OSError, SandboxError when there is none."""
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(str(ram)):
                low, high = (int(each, 16) for each in line.split()[0].split("-"))
                return cls(pid=pid, ram=ram, start=low, size=high - low)
        raise SandboxError(f"process {pid} has not mapped {ram}")

    def save(self, target: Path, ground: SavedPages | None) -> None:
        """Write the pages that differ from the image's memory file and the `ground` above it.

        Raises OSError, SandboxError.
        """
        written, before = self._written(), _mapped(self.ram).reshape(-1, _PAGE)
        saved = [np.empty(0, _NUMBER)]
        with self._open(os.O_RDONLY) as memory, target.open("wb", buffering=0) as file:
            for at in range(0, len(written), _PIECE):
                numbers = written[at : at + _PIECE]
                content = self._read(memory, numbers)
                expected = _expected(numbers, before, ground)
                differ = (content.view(_NUMBER) != expected.view(_NUMBER)).any(axis=1)
                saved.append(numbers[differ])
                _write(file.fileno(), content[differ].reshape(-1))
            _write(file.fileno(), _table(np.concatenate(saved)))

    def load(self, pages: SavedPages) -> None:
        """Write those pages into the guest's memory; raises OSError, SandboxError."""
        if len(pages.numbers) and int(pages.numbers[-1]) >= self.size // _PAGE:
            raise SandboxError(f"{pages.path} is damaged: take the snapshot again")
        with self._open(os.O_WRONLY) as memory:
            data = pages.content.reshape(-1).data
            for low, high in _runs(pages.numbers):
                part = data[low * _PAGE : high * _PAGE]
                if os.pwrite(memory, part, self._at(pages.numbers[low])) != len(part):
                    raise SandboxError(f"process {self.pid} did not take the pages of {pages.path}")

    def _read(self, memory: int, numbers: Numbers) -> Bytes:
        content = np.empty((len(numbers), _PAGE), np.uint8)
        for low, high in _runs(numbers):
            part = content[low:high]
            if os.preadv(memory, [part.data], self._at(numbers[low])) != part.nbytes:
                raise SandboxError(f"the memory of process {self.pid} cannot be read")
        return content

    def _at(self, number: np.uint64) -> int:
        return self.start + int(number) * _PAGE

    def _written(self) -> Numbers:
        """Return the numbers of the pages that were written, which are the private ones."""
        table, first, count = f"/proc/{self.pid}/pagemap", self.start // _PAGE, self.size // _PAGE
        with open(table, "rb", buffering=0) as file:  # noqa: PTH123
            entries = np.frombuffer(os.pread(file.fileno(), count * 8, first * 8), np.uint64)
        exists = (entries & (_PRESENT | _SWAPPED)) != 0
        return np.flatnonzero(exists & ((entries & _OF_A_FILE) == 0)).astype(_NUMBER)

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        memory = os.open(f"/proc/{self.pid}/mem", flags | os.O_CLOEXEC)
        try:
            yield memory
        finally:
            os.close(memory)


def _mapped(path: Path) -> Bytes:
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)


def _expected(numbers: Numbers, before: Bytes, ground: SavedPages | None) -> Bytes:
    """Return the content that those pages had when the machine was loaded."""
    content: Bytes = before[numbers]
    if ground is not None:
        _, ours, theirs = np.intersect1d(numbers, ground.numbers, assume_unique=True, return_indices=True)
        content[ours] = ground.content[theirs]
    return content


def _write(file: int, content: Bytes) -> None:
    """Write all bytes; raises OSError when that fails."""
    data = content.data
    while data:
        data = data[os.write(file, data) :]


def _table(numbers: Numbers) -> Bytes:
    """Return the end of a file with those pages: their numbers and the count."""
    return np.append(numbers, np.array([len(numbers)], _NUMBER)).view(np.uint8)


def _runs(numbers: Numbers) -> Iterator[tuple[int, int]]:
    """Return the first and the last index, exclusive, of each run of consecutive numbers."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    edges = [0, *map(int, breaks), len(numbers)]
    return ((low, high) for low, high in itertools.pairwise(edges) if low < high)
