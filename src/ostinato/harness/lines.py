"""Lines from a terminal or pipe, awaited without a thread, so that leaving never waits for a thread."""

import asyncio
import os
from typing import IO


class Lines:
    """The lines of one stream; a process without standard input has none."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream
        self._held = b""

    async def next(self) -> str | None:
        """Return the next line without its end; None when there are no more."""
        while b"\n" not in self._held:
            data = await self._read()
            if not data:
                rest, self._held = self._held, b""
                return rest.decode(errors="replace") if rest else None
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line.decode(errors="replace").removesuffix("\r")

    async def _read(self) -> bytes:
        if self._stream is None:
            return b""
        loop, descriptor = asyncio.get_running_loop(), self._stream.fileno()
        ready = asyncio.Event()
        try:
            loop.add_reader(descriptor, ready.set)
        except PermissionError:  # a file on disk: reading it never waits
            return os.read(descriptor, 65536)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        return os.read(descriptor, 65536)
