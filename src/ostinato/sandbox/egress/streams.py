"""The two directions of a connection, and how one is read again from its start."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from ostinato.sandbox.egress.http import MAX_HEAD
from ostinato.sandbox.egress.meter import PIECE

LINGER_S = 1.0
HANDSHAKE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Both directions of a stream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def close(writer: asyncio.StreamWriter) -> None:
    """Hang up; what is still to be written gets a second."""
    writer.close()
    try:
        async with asyncio.timeout(LINGER_S):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        return


@asynccontextmanager
async def reread(ends: Ends, start: bytes, context: ssl.SSLContext | None) -> AsyncIterator[Ends]:
    """`ends` with `start`, which was read from it already, before the rest; with a `context` it is the
    server's side of TLS. Through a socket pair, since neither streams nor `ssl` take anything back.

    Raises ssl.SSLError, TimeoutError when there is no agreement.
    """
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    ways = [
        asyncio.create_task(_pump(ends.reader, writer, start)),
        asyncio.create_task(_pump(reader, ends.writer)),
    ]
    try:
        again = await _accept(theirs, context)
        try:
            yield again
        finally:
            await close(again.writer)
            await asyncio.wait(ways[1:], timeout=LINGER_S)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await close(writer)


async def _accept(sock: socket.socket, context: ssl.SSLContext | None) -> Ends:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_HEAD)
    protocol = asyncio.StreamReaderProtocol(reader)
    patience = HANDSHAKE_S if context is not None else None
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=context, ssl_handshake_timeout=patience
    )
    return Ends(reader=reader, writer=asyncio.StreamWriter(transport, protocol, reader, loop))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes = b"") -> None:
    """Until either side has ended, which the other is told."""
    with suppress(OSError):
        piece = start or await reader.read(PIECE)
        while piece:
            writer.write(piece)
            await writer.drain()
            piece = await reader.read(PIECE)
        writer.write_eof()
