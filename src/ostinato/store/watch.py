"""Waiting until an object is created below a key: a folder of this machine reports that at once.

A bucket reports nothing, and neither does a shared folder that another machine writes to. So a wait always
ends by itself, and the caller looks again.
"""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

CREATED = 0x100 | 0x80
"""IN_CREATE and IN_MOVED_TO of Linux's inotify: an object appears by a link or by a rename."""
EVENT_BYTES = 1 << 16


class Watch:
    """Wakes one waiting task of one event loop.

    `folder` need not exist yet; it is None for stores that are no folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._created = asyncio.Event()
        self._descriptor = -1 if folder is None else _opened()
        self._watched = False

    async def wait(self, seconds: float) -> None:
        """Wait until something has been created since the last call ended, or for `seconds`.

        `asyncio.wait_for` would swallow a cancellation that meets an event which is set already.
        """
        self._watch()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._created.wait()
        self._created.clear()

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _watch(self) -> None:
        """Begin to watch the folder once it exists."""
        if self._watched or self._descriptor < 0:
            return
        self._watched = _added(self._descriptor, os.fsencode(str(self._folder)))
        if self._watched:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
            self._created.set()  # an object may have been created before the watch began

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, EVENT_BYTES)
        self._created.set()


def _opened() -> int:
    """Return a descriptor of inotify; negative where the system has no inotify, or no descriptor left."""
    open_ = getattr(ctypes.CDLL(None), "inotify_init1", None)
    return -1 if open_ is None else int(open_(os.O_NONBLOCK | os.O_CLOEXEC))


def _added(descriptor: int, folder: bytes) -> bool:
    return int(ctypes.CDLL(None).inotify_add_watch(descriptor, folder, CREATED)) >= 0
