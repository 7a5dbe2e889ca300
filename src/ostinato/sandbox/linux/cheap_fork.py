"""Makes the forks of the zygote, which forks for every sandbox, cheap.

`threading`, `random` and `logging` each ask Python to call them in every child. In a process without threads
only the random numbers matter, yet these calls write to some 200 pages, each of which the kernel must then
copy: more than half of the cost of a fork. So `defer_fork_hooks` is called before those modules are loaded,
and `restore_fork_hooks` in a child that runs other people's code, so that the child's own forks behave as
usual. `use_large_pages` is called once everything is loaded.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from ostinato.sandbox.linux import syscalls

_LARGE_PAGE = 1 << 21

_original = os.register_at_fork
_deferred: list[dict[str, Callable[[], object]]] = []


def defer_fork_hooks() -> None:
    """Collect the functions that modules register for forks from now on, and call none of them."""
    os.register_at_fork = lambda **hooks: _deferred.append(hooks)


def restore_fork_hooks() -> None:
    """Register the collected functions, for forks of this process and its children, and seed `random` anew.

    The seed is all that this fork itself needs of them: the others renew locks that a thread might have held,
    and there was no thread.
    """
    os.register_at_fork = _original
    for hooks in _deferred:
        _original(**hooks)
    _deferred.clear()
    import random  # not before `defer_fork_hooks`

    random.seed()


def use_large_pages() -> None:
    """Move the memory that this process has written into large pages, where the kernel can (Linux 6.1).

    A fork then copies one page table entry for two MiB instead of 512. A page that a child writes to is still
    copied by itself, with its 4 KiB.
    """
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        written = [line.split() for line in maps if " rw-p " in line]
    for region in (fields[0] for fields in written if fields[4] == "0"):
        start, end = (int(address, 16) for address in region.split("-"))
        first, last = -(-start // _LARGE_PAGE), end // _LARGE_PAGE
        with suppress(OSError):  # only speed is lost: an older kernel, or no free memory in one piece
            syscalls.collapse(first * _LARGE_PAGE, max(last - first, 0) * _LARGE_PAGE)
