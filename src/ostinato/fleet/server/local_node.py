"""A node as a child process of the front, for a fleet of one machine. It is started anew when it dies."""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

from ostinato.fleet.scheduler.circuit_breaker import CircuitBreaker
from ostinato.fleet.server.access import open_access

log = logging.getLogger(__name__)
STOP_S = 15.0
HEALTHY_S = 30.0
"""A node that has lived this long was healthy: its next death counts as the first."""


class LocalNode:
    """A node whose listening socket belongs to this process, so that its address outlives the child."""

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
        self._breaker = CircuitBreaker(time.monotonic, random.Random())

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def keep_alive(self) -> None:
        """Run the child process, again after each death; cancel this to stop the child."""
        try:
            while True:
                start = time.monotonic()
                await self._start()
                assert self._child is not None
                status = await self._child.wait()
                log.error("the node of this machine ended with status %s: it is started anew", status)
                if time.monotonic() - start > HEALTHY_S:
                    self._breaker.record_success()
                self._breaker.record_try()
                self._breaker.record_failure()
                await asyncio.sleep(self._breaker.wait_s())
        finally:
            await self._stop()

    async def _start(self) -> None:
        """Start the child in its own session, so that after a Ctrl-C the front stops it in order."""
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
    """Return the listening socket that a front has passed down."""
    listener = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    listener.setblocking(False)
    return listener
