"""Serves a sandbox's connections, bounds how many there are, and keeps the record of each."""

import asyncio
import logging
import socket
import time
from collections import deque

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http
from ostinato.sandbox.egress.meter import Meter
from ostinato.sandbox.egress.policy import Resolve, Rules
from ostinato.sandbox.egress.visit import Connection, Ends, Visit, close

log = logging.getLogger(__name__)
KEPT = 1000
"""Records that are kept; the log has all."""


class Proxy:
    """The proxy of one sandbox: `serve` it on a listening socket, `aclose` it at the end.

    Raises SandboxError for a policy that cannot be read.
    """

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._rules = Rules(policy, resolve)
        self._meter = Meter(policy)
        self._servers: list[asyncio.Server] = []
        self._running: set[asyncio.Task[None]] = set()
        self.connections: deque[Connection] = deque(maxlen=KEPT)
        """The latest, oldest first; each is added when it has ended."""

    async def serve(self, listener: socket.socket) -> None:
        """Accept from a listening stream socket, TCP or Unix, in whatever network it was opened."""
        if listener.family == socket.AF_UNIX:
            server = await asyncio.start_unix_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        else:
            server = await asyncio.start_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        self._servers.append(server)

    async def aclose(self) -> None:
        """Stop listening and cut what is open."""
        for server in self._servers:
            server.close()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        seen, start = Connection(sandbox=self._sandbox, began=time.time()), time.monotonic()
        try:
            await self._visit(
                Visit(seen, Ends(reader=reader, writer=writer), self._policy, self._rules, self._meter)
            )
        except asyncio.CancelledError:
            seen.refused = "the sandbox ended"  # not raised on: nobody waits for a connection's task
        finally:
            self._running.discard(task)
            seen.seconds = time.monotonic() - start
            self._note(seen)
            await close(writer)

    async def _visit(self, visit: Visit) -> None:
        most = self._policy.connections
        if len(self._running) > most:
            await visit.refuse(f"more than {most} connections at once: the policy's cap")
        else:
            await visit.run()

    def _note(self, seen: Connection) -> None:
        if seen.method:  # else it was opened and closed without a word
            self.connections.append(seen)
            log.info("egress %s", seen)
