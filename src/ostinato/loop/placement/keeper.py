"""The keeper of one service, in an actor on a node of a Ray cluster: it starts children as a laptop does.

The child is killed when the actor's process ends, so nothing outlives an actor that Ray has ended. It is
killed too when the conductor, which asks every few seconds, has not asked for long: then this node hung, or
was cut off, and the service has been started elsewhere.
"""

import asyncio
import logging
import signal
import time

from ostinato.loop.placement.base import ServiceCommand
from ostinato.loop.placement.local import LocalPlace

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds between two looks at the time of the last question."""


class ServiceKeeper:
    """Keeps one child. Its calls run in one event loop, beside each other.

    The child is killed `silent_s` seconds after the last question, from the first one on.
    """

    def __init__(self, silent_s: float) -> None:
        self._place = LocalPlace(dies_by=signal.SIGKILL)
        self._silent_s = silent_s
        self._asked: float | None = None
        self._watch: asyncio.Task[None] | None = None

    async def ping(self) -> None:
        self._asked = time.monotonic()

    async def start(self, command: ServiceCommand) -> int:
        self._asked = None  # while the service gets ready, nobody asks
        await self._place.start(command)
        if self._watch is None:
            self._watch = asyncio.create_task(self._kill_when_forgotten())
        return self._place.pid

    async def _kill_when_forgotten(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._asked is not None and time.monotonic() - self._asked > self._silent_s:
                log.warning("nobody asked for %.0f s: the service is ended", self._silent_s)
                self._asked = None
                self._place.kill()

    async def line(self) -> bytes:
        line = await self._place.line()
        self._asked = time.monotonic()  # it is ready, and from now on somebody asks
        return line

    async def ended(self) -> int:
        return await self._place.ended()

    async def kill(self) -> None:
        self._place.kill()

    async def stop(self) -> None:
        await self._place.stop()

    async def leave(self) -> None:
        """Kill the child, if one runs, and watch over it no longer."""
        if self._watch is not None:
            self._watch.cancel()
            self._place.kill()
