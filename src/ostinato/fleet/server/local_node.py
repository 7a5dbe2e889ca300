"""A node as a child process of the front: what a single machine needs, started anew when it dies."""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

from ostinato.fleet.scheduler.breaker import Breaker
from ostinato.fleet.server.access import open_access

log = logging.getLogger(__name__)
STOP_S = 15.0
HEALTHY_S = 30.0
"""A node that has lived so long was healthy: its next death counts as the first."""


class LocalNode:
    """The child listens on a socket that is ours, so that its address outlives it."""

    def __init__(self, state: Path, backend: str, templates: Path) -> None:
        open_access(state)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._command = [
            *(sys.executable, "-m", "ostinato", "sandbox", "node"),
            *("--state", str(state), "--backend", backend, "--templates", str(templates)),
            *("--fd", str(self._listener.fileno())),
        ]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.key = (state / "key").read_text()
        self._child: asyncio.subprocess.Process | None = None
        self._breaker = Breaker(time.monotonic, random.Random())

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def keep_alive(self) -> None:
        """Runs the child, again and again; cancel it to stop the child."""
        try:
            while True:
                begun = time.monotonic()
                await self._start()
                assert self._child is not None
                status = await self._child.wait()
                log.error("the node of this machine ended with status %s: it is started anew", status)
                if time.monotonic() - begun > HEALTHY_S:
                    self._breaker.succeeds()
                self._breaker.tries()
                self._breaker.fails()
                await asyncio.sleep(self._breaker.wait_s())
        finally:
            await self._stop()

    async def _start(self) -> None:
        """In a session of its own: a Ctrl-C at the front reaches it through us, in order."""
        self._child = await asyncio.create_subprocess_exec(
            *self._command,
            pass_fds=[self._listener.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _stop(self) -> None:
        if self._child is None or self._child.returncode is not None:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._child.wait(), STOP_S)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    def close(self) -> None:
        self._listener.close()


def inherited(descriptor: int) -> socket.socket:
    """The listening socket that a front has handed down."""
    listener = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    listener.setblocking(False)
    return listener
