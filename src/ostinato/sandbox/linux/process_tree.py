"""A process and all that descend from it: what they use of the machine."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Of all its threads; none when it has ended."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        found = [Path(f"/proc/{pid}/task/{task}/children").read_text().split() for task in tasks]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(each) for part in found for each in part]


def spent(pid: int) -> tuple[float, int]:
    """CPU seconds so far, and bytes resident now, shared pages counted by share; 0 for what has ended."""
    members = list(_members(pid))
    return sum(_cpu_s(each) for each in members), sum(_resident(each) for each in members)


def _members(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _members(child)


def _cpu_s(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICKS  # its own, and of children waited for
    return 0.0


def _resident(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0
