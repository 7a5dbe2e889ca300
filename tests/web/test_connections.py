"""Connections before a server that sends what a test says, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.web import connections as module
from ostinato.web.connections import AwayError, Connection, Connections

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


class RawServer:
    """Responds to each request with the pieces in `sends`, and closes the connection after None."""

    def __init__(self) -> None:
        self.sends: Sequence[bytes | None] = (WHOLE,)
        self.heard: list[bytes] = []
        self.connections = self.open = 0
        self.gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        await self._serve(reader, writer)
        writer.close()
        self.open -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.heard.append(head + await reader.readexactly(length))
            for piece in self.sends:
                if piece is None:
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        self.gone.set()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@pytest.fixture
async def server() -> RawServer:
    return RawServer()


@pytest.fixture
async def url(server: RawServer) -> AsyncIterator[str]:
    async with await asyncio.start_server(server, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        while server.open:
            await asyncio.sleep(0.001)


@pytest.fixture
async def connections(url: str) -> AsyncIterator[Connections]:
    made = Connections({"X-Secret": "s"})
    yield made
    made.close()


class Unheard(asyncio.Transport):
    """A transport that sends what it is given nowhere."""

    def write(self, data: object) -> None: ...

    def abort(self) -> None: ...


@given(whole=st.sampled_from((WHOLE, CHUNKED)), cuts=st.lists(st.integers(0, len(CHUNKED)), max_size=6))
def test_a_response_may_arrive_in_any_pieces(whole: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]

    async def received() -> bytes:
        connection = Connection()
        connection.connection_made(Unheard())
        for _ in range(2):  # on one connection
            sent = asyncio.ensure_future(connection.send(b""))
            await asyncio.sleep(0)
            for start, end in pairwise(edges):
                connection.data_received(whole[start:end])
            await sent
            parts = [part async for part in connection.body()]
            assert connection.status == 200 and connection.is_free
        return b"".join(parts)

    assert asyncio.run(received()) == b"hello"


async def test_a_request_says_what_it_is(connections: Connections, server: RawServer, url: str) -> None:
    async with connections.open(f"{url}/base/", "/generate", b"{}") as response:
        await response.read()
    async with connections.open(f"{url}/base/", "/healthz") as response:
        await response.read()
    host = url.removeprefix("http://").encode()
    rest = b"Host: " + host + b"\r\nX-Secret: s\r\nContent-Length: %d\r\n\r\n"
    assert server.heard == [
        b"POST /base/generate HTTP/1.1\r\n" + rest % 2 + b"{}",
        b"GET /base/healthz HTTP/1.1\r\n" + rest % 0,
    ]


@pytest.mark.parametrize(
    ("sends", "why"),
    [
        ((None,), "connection was closed"),
        ((WHOLE[:-1], None), "connection was closed"),
        ((CHUNKED[:-5], None), "connection was closed"),
        ((b"SSH-2.0-OpenSSH\r\n",), "not HTTP"),
    ],
)
async def test_a_response_that_breaks_off_is_an_server_that_is_away(
    connections: Connections,
    server: RawServer,
    url: str,
    sends: Sequence[bytes | None],
    why: str,
) -> None:
    server.sends = sends
    with pytest.raises(AwayError, match=why):
        async with connections.open(url, "/generate", b"{}") as response:
            await response.read()
    server.sends = (WHOLE,)
    async with connections.open(url, "/generate", b"{}") as response:
        assert await response.read() == b"hello"
    assert server.connections == 2


async def test_a_silent_server_is_away(
    connections: Connections, server: RawServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    server.sends = (WHOLE[:-1],)
    with pytest.raises(AwayError, match="no byte for"):
        async with connections.open(url, "/generate", b"{}") as response:
            await response.read()


async def test_an_server_that_nobody_serves_is_away(connections: Connections) -> None:
    with pytest.raises(AwayError, match="no connection to"):
        async with connections.open("http://127.0.0.1:1", "/generate", b"{}"):
            pass


async def test_giving_up_closes_the_connection(connections: Connections, server: RawServer, url: str) -> None:
    server.sends = (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",)
    async with connections.open(url, "/generate", b"{}"):
        pass
    await asyncio.wait_for(server.gone.wait(), 300)


async def test_a_connection_that_the_server_closed_is_not_used_again(
    connections: Connections, server: RawServer, url: str
) -> None:
    server.sends = (WHOLE, None)
    for _ in range(3):
        async with connections.open(url, "/generate", b"{}") as response:
            assert await response.read() == b"hello"
        await asyncio.sleep(0.05)
    assert server.connections == 3
