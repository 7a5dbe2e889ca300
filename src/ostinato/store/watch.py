"""Waking up when something is created below a key: at once in a folder of this machine, else after a while.

A bucket cannot call anybody, and what another machine writes to a shared folder is not told either. So a wait
always ends by itself, and whoever waits looks again.
"""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

CREATED = 0x100 | 0x80
"""IN_CREATE and IN_MOVED_TO of Linux' inotify: an object appears by a link or by being renamed."""
EVENT_BYTES = 1 << 16


class Watch:
    """Wakes one waiter on one event loop. `folder` need not exist yet; None where there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._created = asyncio.Event()
        self._descriptor = -1 if folder is None else _opened()
        self._watched = False

    async def wait(self, seconds: float) -> None:
        """Until something was created since the last call ended, or for `seconds`."""
        self._watch()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._created.wait(), seconds)
        self._created.clear()

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _watch(self) -> None:
        """Begins once the folder is there."""
        if self._watched or self._descriptor < 0:
            return
        self._watched = _added(self._descriptor, os.fsencode(str(self._folder)))
        if self._watched:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
            self._created.set()  # it may have been created before anybody watched

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, EVENT_BYTES)
        self._created.set()


def _opened() -> int:
    """A descriptor of inotify; negative where the system has none, or gives no more."""
    open_ = getattr(ctypes.CDLL(None), "inotify_init1", None)
    return -1 if open_ is None else int(open_(os.O_NONBLOCK | os.O_CLOEXEC))


def _added(descriptor: int, folder: bytes) -> bool:
    return int(ctypes.CDLL(None).inotify_add_watch(descriptor, folder, CREATED)) >= 0
