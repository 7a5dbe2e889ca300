"""What makes the forks of a process cheap that forks all day.

`threading`, `random` and `logging` each ask Python to call them in every child. In a process without threads
only the random numbers matter, yet the calls write to some 200 pages, each of which the kernel must then
copy: more than half of what a fork costs. `hold` comes before those modules are loaded, `release` in a child
that runs other people's code, whose own forks behave as ever. `gather` comes when everything is loaded.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from ostinato.sandbox.linux import syscalls

_LARGE_PAGE = 1 << 21

_original = os.register_at_fork
_held: list[dict[str, Callable[[], object]]] = []


def hold() -> None:
    """Note from now on who wants to be called at a fork, and call nobody."""
    os.register_at_fork = lambda **calls: _held.append(calls)


def release() -> None:
    """Let every fork of this process, and of its children, be what Python makes it; new random numbers.

    The rest of what was held back is for locks that a thread might have held: there was none.
    """
    os.register_at_fork = _original
    for calls in _held:
        _original(**calls)
    _held.clear()
    import random  # not before `hold`

    random.seed()


def gather() -> None:
    """Move what this process has written into large pages, where the kernel can (Linux 6.1).

    A fork then copies one entry for two MiB, not 512. What a child writes is still copied by 4 KiB.
    """
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        written = [line.split() for line in maps if " rw-p " in line]
    for region in (fields[0] for fields in written if fields[4] == "0"):
        start, end = (int(address, 16) for address in region.split("-"))
        first, last = -(-start // _LARGE_PAGE), end // _LARGE_PAGE
        with suppress(OSError):  # it costs speed alone: an older kernel, or no memory in one piece
            syscalls.collapse(first * _LARGE_PAGE, max(last - first, 0) * _LARGE_PAGE)
