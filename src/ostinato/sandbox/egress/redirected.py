"""A connection that was turned to the proxy on its way (see `gate`): its first bytes say what it is."""

import asyncio
from typing import cast

from ostinato.sandbox.egress import transparent
from ostinato.sandbox.egress.proxy_connection import IDLE_S, Connection, Terms, Visit
from ostinato.sandbox.egress.resolver import DNS_PORT, MAX_MESSAGE, Names
from ostinato.sandbox.egress.streams import Ends


class Questions(asyncio.DatagramProtocol):
    """Answers for names, one a datagram."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # the loop's own class says less

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if answer := self._names.answer(data[:MAX_MESSAGE]):
            self._transport.sendto(answer, address)


class Direct(Visit):
    """A `Visit` of a program that knows of no proxy: it is told nothing that the server would not say."""

    def __init__(self, seen: Connection, inside: Ends, terms: Terms, names: Names) -> None:
        super().__init__(seen, inside, terms)
        self._names = names
        self._answering = True

    async def _pass(self) -> None:
        seen = self._seen
        seen.method = "TCP"
        address, seen.port = transparent.aim(self._inside.writer.get_extra_info("socket"))
        if seen.port == DNS_PORT:
            seen.method = ""  # no connection: what is refused of it is noted by its name
            await self._answer_names()
            return
        seen.host = address
        seen.host = self._names.host(address)
        if self._rules.inspects(seen.host, seen.port):
            await self._inspect()
        else:
            await self._pass_on(await self._connect())

    async def _answer_names(self) -> None:
        """Questions over TCP, each behind its length (RFC 1035, section 4.2.2)."""
        reader, writer = self._inside.reader, self._inside.writer
        while True:
            async with asyncio.timeout(IDLE_S):
                size = int.from_bytes(await reader.readexactly(2), "big")
                answer = self._names.answer(await reader.readexactly(size))
            if not answer:
                return
            writer.write(len(answer).to_bytes(2, "big") + answer)
            await writer.drain()
