"""The gateway's own HTTP to engines: connections are kept, cut answers are told from whole ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ostinato.gateway.engine_http import MOST_UNREAD, EngineGoneError, EngineHttp

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Peer], Awaitable[str]]]:
    """Serves connections as a test says; gives the address."""
    servers: list[asyncio.Server] = []

    async def start(peer: Peer) -> str:
        servers.append(await asyncio.start_server(peer, "127.0.0.1"))
        return f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}/generate"

    yield start
    for server in servers:
        server.close()


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    http = EngineHttp()
    yield http
    http.close()


async def asked(reader: asyncio.StreamReader) -> bytes:
    """The body of the next request; b"" when there is none."""
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))


async def test_connections_are_kept(serve, http: EngineHttp) -> None:
    bodies: list[list[bytes]] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        bodies.append(mine)
        while not reader.at_eof():
            try:
                mine.append(await asked(reader))
            except asyncio.IncompleteReadError:
                break
            writer.write(OK if len(mine) < 3 else OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        writer.close()

    url = await serve(peer)
    for number in range(5):
        async with http.post(url, b"%d" % number) as answer:
            assert (answer.status, await answer.read()) == (200, b"ok")
    assert bodies == [[b"0", b"1", b"2"], [b"3", b"4"]]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH\r\n",
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    ],
)
async def test_an_answer_that_is_cut_is_no_answer(serve, http: EngineHttp, sent: bytes) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(sent)
        writer.close()

    with pytest.raises(EngineGoneError):
        async with http.post(await serve(peer), b"{}") as answer:
            await answer.read()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://", "nowhere", "http://127.0.0.1:x/generate"])
async def test_where_no_engine_is(http: EngineHttp, url: str) -> None:
    with pytest.raises(EngineGoneError, match=f"no engine at {url}: "):
        async with http.post(url, b"{}"):
            pass


async def test_leaving_early_closes_the_connection(serve, http: EngineHttp) -> None:
    left = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        await reader.read()
        left.set()
        writer.close()

    async with http.post(await serve(peer), b"{}") as answer:
        async for piece in answer.pieces():
            assert piece == b"ok"
            break
    await asyncio.wait_for(left.wait(), 60)


async def test_a_slow_reader_holds_the_engine_back_and_loses_nothing(serve, http: EngineHttp) -> None:
    block = bytes(2**16)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (256 * len(block)))
        for _ in range(256):
            writer.write(block)
            await writer.drain()
        writer.close()

    size = 0
    async with http.post(await serve(peer), b"{}") as answer:
        while answer._unread < MOST_UNREAD:
            await asyncio.sleep(0.01)
        async for piece in answer.pieces():
            size += len(piece)
    assert size == 256 * len(block)
