"""The proxy of a sandbox: it serves connections, limits their number and keeps a record of each."""

import asyncio
import logging
import socket
import time
from collections import Counter, deque

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http
from ostinato.sandbox.egress.meter import Meter
from ostinato.sandbox.egress.policy import Resolve, Rules
from ostinato.sandbox.egress.proxy_connection import ConnectionRecord, ProxyConnection, ProxySettings
from ostinato.sandbox.egress.streams import Stream, close

log = logging.getLogger(__name__)
ENDED = "the sandbox ended"
MOST_RECORDS = 1000
"""Records in memory; the log has all."""


class Proxy:
    """The proxy of one sandbox: `serve` a listening socket, and `aclose` at the end.

    Raises SandboxError for a policy that cannot be read.
    """

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._settings = ProxySettings(policy=policy, rules=Rules(policy, resolve), meter=Meter(policy))
        self._servers: list[asyncio.Server] = []
        self._running: set[asyncio.Task[None]] = set()
        self.connections: deque[ConnectionRecord] = deque(maxlen=MOST_RECORDS)
        """The latest records, oldest first; each is added when its connection has ended."""
        self.refusals: Counter[str] = Counter()
        """The number of connections that were refused or cut, by host and port."""

    async def serve(self, listener: socket.socket) -> None:
        """Serve a listening stream socket, TCP or Unix, of any network namespace."""
        if listener.family == socket.AF_UNIX:
            server = await asyncio.start_unix_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        else:
            server = await asyncio.start_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        self._servers.append(server)

    async def aclose(self) -> None:
        """Stop listening and cut open connections."""
        for server in self._servers:
            server.close()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record, inside = self._new_record(), Stream(reader=reader, writer=writer)
        await self._serve(ProxyConnection(record, inside, self._settings), record, writer)

    def _new_record(self) -> ConnectionRecord:
        return ConnectionRecord(sandbox=self._sandbox, began=time.time())

    async def _serve(
        self, connection: ProxyConnection, record: ConnectionRecord, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        start = time.monotonic()
        try:
            await self._run_or_refuse(connection)
        except asyncio.CancelledError:
            record.refused = record.refused or ENDED  # not raised: no code awaits the task of a connection
        finally:
            self._running.discard(task)
            record.seconds = time.monotonic() - start
            self._note(record)
            await close(writer)

    async def _run_or_refuse(self, connection: ProxyConnection) -> None:
        most = self._policy.connections
        if len(self._running) > most:
            await connection.refuse(f"more than {most} connections at once: the policy's cap")
        else:
            await connection.run()

    def _note(self, record: ConnectionRecord) -> None:
        if record.method:  # else it was closed before a request
            if record.refused is not None and record.refused != ENDED:
                self.refusals[f"{record.host}:{record.port}" if record.host else "no host"] += 1
            self.connections.append(record)
            log.info("egress %s", record)
