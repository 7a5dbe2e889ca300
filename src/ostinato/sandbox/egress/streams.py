"""Streams with both directions, and a way to read one again from its start."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from ostinato.sandbox.egress.http import MAX_HEAD
from ostinato.sandbox.egress.meter import PIECE

LINGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Both directions of a stream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a stream; pending bytes get LINGER_S to be written."""
    writer.close()
    try:
        async with asyncio.timeout(LINGER_S):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        return


@asynccontextmanager
async def replay(stream: Stream, start: bytes) -> AsyncIterator[Stream]:
    """Yield a stream of `start`, which was already read from `stream`, and then of the rest.

    It runs through a socket pair, since bytes cannot be put back into a stream.
    """
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    pumps = [
        asyncio.create_task(_pump(stream.reader, writer, start)),
        asyncio.create_task(_pump(reader, stream.writer)),
    ]
    try:
        replayed = await _opened(theirs)
        try:
            yield replayed
        finally:
            await close(replayed.writer)
            await asyncio.wait(pumps[1:], timeout=LINGER_S)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await close(writer)


async def _opened(sock: socket.socket) -> Stream:
    reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_HEAD)
    return Stream(reader=reader, writer=writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes = b"") -> None:
    """Copy until either side has ended, and pass the end on."""
    with suppress(OSError):
        piece = start or await reader.read(PIECE)
        while piece:
            writer.write(piece)
            await writer.drain()
            piece = await reader.read(PIECE)
        writer.write_eof()
