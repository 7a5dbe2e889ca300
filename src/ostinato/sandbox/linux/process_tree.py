"""The resources that a process and all its descendants use."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ostinato.sandbox.linux.processes import resident_bytes

_TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process, none when it has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        lists = [Path(f"/proc/{pid}/task/{thread}/children").read_text().split() for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for each in lists for child in each]


def usage(pid: int) -> tuple[float, int]:
    """Return the CPU seconds so far and the bytes resident now of a process and its descendants.

    A page that n processes share counts as a part of n for each. A process that has ended counts nothing.
    """
    members = list(_members(pid))
    return sum(_cpu_s(each) for each in members), sum(resident_bytes(each) for each in members)


def _members(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _members(child)


def _cpu_s(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICKS  # its own and of children it waited for
    return 0.0
