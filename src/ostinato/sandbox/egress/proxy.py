"""Serves a sandbox's connections, bounds how many there are, and keeps the record of each."""

import asyncio
import logging
import socket
import time
from collections import deque

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http
from ostinato.sandbox.egress.authority import Authority
from ostinato.sandbox.egress.meter import Meter
from ostinato.sandbox.egress.policy import Resolve, Rules
from ostinato.sandbox.egress.proxy_connection import Connection, Terms, Visit
from ostinato.sandbox.egress.redirected import Direct, Questions
from ostinato.sandbox.egress.resolver import DNS_PORT, Names
from ostinato.sandbox.egress.streams import Ends, close

log = logging.getLogger(__name__)
KEPT = 1000
"""Records that are kept; the log has all."""


class Proxy:
    """The proxy of one sandbox: `serve` it on a listening socket or let it `accept`, `aclose` it at the end.

    Raises SandboxError for a policy that cannot be read.
    """

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self.authority = Authority(sandbox) if policy.inspect else None
        """Whose certificates stand for the hosts that are inspected."""
        rules = Rules(policy, resolve)
        self._terms = Terms(policy=policy, rules=rules, meter=Meter(policy), authority=self.authority)
        self._names = Names(rules.names, self._note_name)
        self._questions: asyncio.DatagramTransport | None = None
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

    def accept(self) -> asyncio.Protocol:
        """Serves one connection, over whatever transport it is given."""
        reader = asyncio.StreamReader(limit=http.MAX_HEAD)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    async def serve_turned(self, door: socket.socket, asked: socket.socket) -> None:
        """Accept connections that were meant for others, and questions for names (see `gate`)."""
        loop = asyncio.get_running_loop()
        self._servers.append(await asyncio.start_server(self._accept_turned, sock=door, limit=http.MAX_HEAD))
        self._questions, _ = await loop.create_datagram_endpoint(lambda: Questions(self._names), sock=asked)

    async def aclose(self) -> None:
        """Stop listening and cut what is open."""
        for server in self._servers:
            server.close()
        if self._questions is not None:
            self._questions.close()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen, inside = self._seen(), Ends(reader=reader, writer=writer)
        await self._serve(Visit(seen, inside, self._terms), seen, writer)

    async def _accept_turned(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen, inside = self._seen(), Ends(reader=reader, writer=writer)
        await self._serve(Direct(seen, inside, self._terms, self._names), seen, writer)

    def _seen(self) -> Connection:
        return Connection(sandbox=self._sandbox, began=time.time())

    async def _serve(self, visit: Visit, seen: Connection, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        start = time.monotonic()
        try:
            await self._visit(visit)
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

    def _note_name(self, name: str) -> None:
        seen = self._seen()
        seen.method, seen.host, seen.port = "DNS", name[:253], DNS_PORT
        seen.refused = "there is no rule for this name: add it to the policy's `allow`"
        self._note(seen)

    def _note(self, seen: Connection) -> None:
        if seen.method:  # else it was opened and closed without a word
            self.connections.append(seen)
            log.info("egress %s", seen)
