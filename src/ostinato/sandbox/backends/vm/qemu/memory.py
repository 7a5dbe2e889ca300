"""The pages of a guest's memory that differ from its template's: out of a stopped QEMU, into another.

A clone maps the image's memory file privately, so what it wrote are the mapping's anonymous pages:
/proc/PID/pagemap tells them from the file's (bit 61; Documentation/admin-guide/mm/pagemap of Linux). Many
hold what they held before, as a count does that went up and down again: those are left out.

A machine may stand on more than the image: on `ground`, the pages of the machine that it was loaded as. It is
saved by what differs from these, and loaded by both.

    file = the pages' bytes | u64 number of each, ascending | u64 how many
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
"""Pages that are held in memory at a time."""
Numbers = NDArray[np.uint64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedPages:
    """What `save` wrote; stays readable when the file is deleted."""

    path: Path
    identity: tuple[int, int]
    """Device and inode: a file that is another name of this one has the same."""
    numbers: Numbers
    content: Bytes
    """(pages, bytes of a page)."""

    @classmethod
    def open(cls, path: Path, known: "SavedPages | None" = None) -> "SavedPages":
        """The `known` ones, if that is their file; raises OSError, SandboxError for one that is not whole."""
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

    def give(self, target: Path) -> None:
        """Another name of the file, where that can be, else a copy of it."""
        try:
            os.link(self.path, target)
        except OSError:  # on another file system, or deleted meanwhile
            with target.open("wb", buffering=0) as file:
                _write(file.fileno(), self.content.reshape(-1))
                _write(file.fileno(), _table(self.numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestMemory:
    """Where the QEMU of process `pid` has mapped the file `ram`."""

    pid: int
    ram: Path
    start: int
    size: int

    @classmethod
    def of(cls, pid: int, ram: Path) -> "GuestMemory":
        """Raises OSError, SandboxError when it has not mapped it."""
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(str(ram)):
                low, high = (int(each, 16) for each in line.split()[0].split("-"))
                return cls(pid=pid, ram=ram, start=low, size=high - low)
        raise SandboxError(f"process {pid} has not mapped {ram}")

    def save(self, target: Path, ground: SavedPages | None) -> None:
        """Write what it has otherwise than the file and the `ground` above it.

        Raises OSError, SandboxError.
        """
        written, before = self._written(), _mapped(self.ram).reshape(-1, _PAGE)
        kept = [np.empty(0, _NUMBER)]
        with self._open(os.O_RDONLY) as memory, target.open("wb", buffering=0) as file:
            for at in range(0, len(written), _PIECE):
                numbers = written[at : at + _PIECE]
                found = self._read(memory, numbers)
                expected = _expected(numbers, before, ground)
                differ = (found.view(_NUMBER) != expected.view(_NUMBER)).any(axis=1)
                kept.append(numbers[differ])
                _write(file.fileno(), found[differ].reshape(-1))
            _write(file.fileno(), _table(np.concatenate(kept)))

    def load(self, pages: SavedPages) -> None:
        """Have those pages; raises OSError, SandboxError."""
        if len(pages.numbers) and int(pages.numbers[-1]) >= self.size // _PAGE:
            raise SandboxError(f"{pages.path} is damaged: take the snapshot again")
        with self._open(os.O_WRONLY) as memory:
            data = pages.content.reshape(-1).data
            for low, high in _runs(pages.numbers):
                part = data[low * _PAGE : high * _PAGE]
                if os.pwrite(memory, part, self._at(pages.numbers[low])) != len(part):
                    raise SandboxError(f"process {self.pid} did not take the pages of {pages.path}")

    def _read(self, memory: int, numbers: Numbers) -> Bytes:
        found = np.empty((len(numbers), _PAGE), np.uint8)
        for low, high in _runs(numbers):
            part = found[low:high]
            if os.preadv(memory, [part.data], self._at(numbers[low])) != part.nbytes:
                raise SandboxError(f"the memory of process {self.pid} cannot be read")
        return found

    def _at(self, number: np.uint64) -> int:
        return self.start + int(number) * _PAGE

    def _written(self) -> Numbers:
        """The private pages."""
        table, first, count = f"/proc/{self.pid}/pagemap", self.start // _PAGE, self.size // _PAGE
        with open(table, "rb", buffering=0) as file:  # noqa: PTH123
            entries = np.frombuffer(os.pread(file.fileno(), count * 8, first * 8), np.uint64)
        there = (entries & (_PRESENT | _SWAPPED)) != 0
        return np.flatnonzero(there & ((entries & _OF_A_FILE) == 0)).astype(_NUMBER)

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
    """What those pages held when the machine was loaded."""
    found: Bytes = before[numbers]
    if ground is not None:
        _, ours, theirs = np.intersect1d(numbers, ground.numbers, assume_unique=True, return_indices=True)
        found[ours] = ground.content[theirs]
    return found


def _write(file: int, content: Bytes) -> None:
    """Raises OSError when not all of it could be written."""
    data = content.data
    while data:
        data = data[os.write(file, data) :]


def _table(numbers: Numbers) -> Bytes:
    """The end of a file with those pages."""
    return np.append(numbers, np.array([len(numbers)], _NUMBER)).view(np.uint8)


def _runs(numbers: Numbers) -> Iterator[tuple[int, int]]:
    """First and last index, exclusive, of each run of neighbours."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    edges = [0, *map(int, breaks), len(numbers)]
    return ((low, high) for low, high in itertools.pairwise(edges) if low < high)
