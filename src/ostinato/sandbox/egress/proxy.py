"""The proxy of a sandbox: it serves connections, limits their number and keeps a record of each."""

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
from ostinato.sandbox.egress.proxy_connection import ConnectionRecord, ProxyConnection, ProxySettings
from ostinato.sandbox.egress.redirected import NameServer, RedirectedConnection
from ostinato.sandbox.egress.resolver import DNS_PORT, SandboxNames
from ostinato.sandbox.egress.streams import Stream, close

log = logging.getLogger(__name__)
MOST_RECORDS = 1000
"""Records in memory; the log has all."""


class Proxy:
    """The proxy of one sandbox: `serve` a listening socket or `accept` connections, and `aclose` at the end.

    Raises SandboxError for a policy that cannot be read.
    """

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self.authority = Authority(sandbox) if policy.inspect else None
        """The authority whose certificates stand for the inspected hosts."""
        rules = Rules(policy, resolve)
        self._settings = ProxySettings(
            policy=policy, rules=rules, meter=Meter(policy), authority=self.authority
        )
        self._names = SandboxNames(rules.has_rule_for, self._note_name)
        self._name_server: asyncio.DatagramTransport | None = None
        self._servers: list[asyncio.Server] = []
        self._running: set[asyncio.Task[None]] = set()
        self.connections: deque[ConnectionRecord] = deque(maxlen=MOST_RECORDS)
        """The latest records, oldest first; each is added when its connection has ended."""

    async def serve(self, listener: socket.socket) -> None:
        """Serve a listening stream socket, TCP or Unix, of any network namespace."""
        if listener.family == socket.AF_UNIX:
            server = await asyncio.start_unix_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        else:
            server = await asyncio.start_server(self._accept, sock=listener, limit=http.MAX_HEAD)
        self._servers.append(server)

    def accept(self) -> asyncio.Protocol:
        """Return the protocol that serves one connection over any transport."""
        reader = asyncio.StreamReader(limit=http.MAX_HEAD)
        return asyncio.StreamReaderProtocol(reader, self._accept)

    async def serve_redirected(self, listener: socket.socket, names: socket.socket) -> None:
        """Serve redirected connections and DNS queries (see `transparent`)."""
        loop = asyncio.get_running_loop()
        self._servers.append(
            await asyncio.start_server(self._accept_redirected, sock=listener, limit=http.MAX_HEAD)
        )
        self._name_server, _ = await loop.create_datagram_endpoint(
            lambda: NameServer(self._names), sock=names
        )

    async def aclose(self) -> None:
        """Stop listening and cut open connections."""
        for server in self._servers:
            server.close()
        if self._name_server is not None:
            self._name_server.close()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record, inside = self._new_record(), Stream(reader=reader, writer=writer)
        await self._serve(ProxyConnection(record, inside, self._settings), record, writer)

    async def _accept_redirected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record, inside = self._new_record(), Stream(reader=reader, writer=writer)
        await self._serve(RedirectedConnection(record, inside, self._settings, self._names), record, writer)

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
            record.refused = "the sandbox ended"  # not raised: no code awaits the task of a connection
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

    def _note_name(self, name: str) -> None:
        record = self._new_record()
        record.method, record.host, record.port = "DNS", name[:253], DNS_PORT
        record.refused = "there is no rule for this name: add it to the policy's `allow`"
        self._note(record)

    def _note(self, record: ConnectionRecord) -> None:
        if record.method:  # else it was closed before a request
            self.connections.append(record)
            log.info("egress %s", record)
