"""Keeps the library's own chores away from the forks of a process that forks all day.

`threading`, `random` and `logging` each ask Python to call them in every child. In a process without threads
only the random numbers matter, yet the calls write to some 200 pages, each of which the kernel must then
copy: more than half of what a fork costs. `hold` comes before those modules are loaded, `release` in a child
that runs other people's code, whose own forks behave as ever.
"""

import os
from collections.abc import Callable

_original = os.register_at_fork
_held: list[dict[str, Callable[[], object]]] = []


def hold() -> None:
    """Note from now on who wants to be called at a fork, and call nobody."""
    os.register_at_fork = lambda **calls: _held.append(calls)


def release() -> None:
    """Let every fork of this process, and of its children, be what Python makes it; new random numbers."""
    os.register_at_fork = _original
    for calls in _held:
        _original(**calls)
        if "after_in_child" in calls:
            calls["after_in_child"]()
    _held.clear()
