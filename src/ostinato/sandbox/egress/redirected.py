"""Connections and DNS queries that were redirected to the proxy (see `transparent`)."""

import asyncio
from typing import cast

from ostinato.sandbox.egress import transparent
from ostinato.sandbox.egress.proxy_connection import IDLE_S, ConnectionRecord, ProxyConnection, ProxySettings
from ostinato.sandbox.egress.resolver import DNS_PORT, MAX_MESSAGE, SandboxNames
from ostinato.sandbox.egress.streams import Stream


class NameServer(asyncio.DatagramProtocol):
    """A DNS server over UDP, one query a datagram."""

    def __init__(self, names: SandboxNames) -> None:
        self._names = names
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.DatagramTransport, transport
        )  # the loop's own class is typed more loosely

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if response := self._names.respond(data[:MAX_MESSAGE]):
            self._transport.sendto(response, address)


class RedirectedConnection(ProxyConnection):
    """A connection of a program that does not know the proxy: it only gets what the server would send."""

    def __init__(
        self, record: ConnectionRecord, inside: Stream, settings: ProxySettings, names: SandboxNames
    ) -> None:
        super().__init__(record, inside, settings)
        self._names = names
        self._responding = True

    async def _pass(self) -> None:
        record = self._record
        record.method = "TCP"
        address, record.port = transparent.original_destination(self._inside.writer.get_extra_info("socket"))
        if record.port == DNS_PORT:
            record.method = ""  # not a connection: each refused name gets a record of its own
            await self._serve_names()
            return
        record.host = address
        record.host = self._names.host(address)
        if self._rules.inspects(record.host, record.port):
            await self._inspect()
        else:
            await self._pass_on(await self._connect())

    async def _serve_names(self) -> None:
        """Respond to DNS queries over TCP, each behind its length (RFC 1035, section 4.2.2)."""
        reader, writer = self._inside.reader, self._inside.writer
        while True:
            async with asyncio.timeout(IDLE_S):
                size = int.from_bytes(await reader.readexactly(2), "big")
                response = self._names.respond(await reader.readexactly(size))
            if not response:
                return
            writer.write(len(response).to_bytes(2, "big") + response)
            await writer.drain()
