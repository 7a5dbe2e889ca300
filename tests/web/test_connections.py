"""Connections before a server that sends what a test says, byte by byte."""

import asyncio
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.web import connections as module
from ostinato.web.connections import AwayError, Connection, Connections

PATIENCE_S = 300.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
WHOLE = HEAD % 5 + b"hello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nhi")
"""


class RawServer:
    """Responds to each request with the pieces in `sends`, and closes the connection after None."""

    def __init__(self) -> None:
        self.sends: Sequence[bytes | None] = (WHOLE,)
        self.heard: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()
        """Set when a client closed a connection that the server would have kept."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.heard.append(head + await reader.readexactly(length))
            for piece in self.sends:
                if piece is None:
                    return
                writer.write(piece)
        self.closed.set()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def ask(connections: Connections, url: str) -> bytes:
    async with asyncio.timeout(PATIENCE_S), connections.open(url, "/generate", b"{}") as response:
        return await response.read()


@pytest.fixture
def server() -> RawServer:
    return RawServer()


@pytest.fixture
async def url(server: RawServer) -> AsyncIterator[str]:
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.fixture
async def connections(url: str) -> AsyncIterator[Connections]:
    made = Connections({"X-Secret": "s"})
    yield made
    made.close()


class Nowhere(asyncio.Transport):
    """A transport of a connection that a test feeds by hand."""

    def write(self, data: object) -> None: ...

    def abort(self) -> None: ...


@given(whole=st.sampled_from((WHOLE, CHUNKED)), cuts=st.lists(st.integers(0, len(CHUNKED)), max_size=6))
def test_a_response_may_arrive_in_any_pieces(whole: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]

    async def received() -> list[bytes]:
        connection, bodies = Connection(), []
        connection.connection_made(Nowhere())
        for _ in range(2):
            sent = asyncio.ensure_future(connection.send(b""))
            await asyncio.sleep(0)
            for start, end in pairwise(edges):
                assert not connection.is_free
                connection.data_received(whole[start:end])
            await sent
            assert connection.status == 200 and connection.is_free
            bodies.append(b"".join([part async for part in connection.body()]))
        return bodies

    assert asyncio.run(received()) == [b"hello", b"hello"]


async def test_requests_share_a_connection_and_say_what_they_are(
    connections: Connections, server: RawServer, url: str
) -> None:
    server.sends = (CHUNKED,)
    assert await ask(connections, f"{url}/base/") == b"hello"
    async with connections.open(f"{url}/base/", "/healthz") as response:
        assert await response.read() == b"hello"
    host = url.removeprefix("http://").encode()
    rest = b"Host: " + host + b"\r\nX-Secret: s\r\nContent-Length: %d\r\n\r\n"
    assert server.heard == [
        b"POST /base/generate HTTP/1.1\r\n" + rest % 2 + b"{}",
        b"GET /base/healthz HTTP/1.1\r\n" + rest % 0,
    ]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("sends", "why"),
    [
        ((None,), "connection was closed"),
        ((WHOLE[:-1], None), "connection was closed"),
        ((CHUNKED[:-9], None), "connection was closed"),
        ((b"HTTP/1.1 200 OK\r\n\r\nhello", None), "connection was closed"),
        ((b"SSH-2.0-OpenSSH\r\n",), "not HTTP"),
        ((HEAD.replace(b"%d", b"-1"),), "not HTTP"),
    ],
    ids=["no head", "short body", "no last chunk", "no length", "another protocol", "a negative length"],
)
async def test_a_response_that_breaks_off_means_that_the_server_is_away(
    connections: Connections, server: RawServer, url: str, sends: Sequence[bytes | None], why: str
) -> None:
    server.sends = sends
    with pytest.raises(AwayError, match=why):
        await ask(connections, url)
    server.sends = (WHOLE,)
    assert await ask(connections, url) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("sends", [(), (WHOLE[:-1],)], ids=["no head", "half a body"])
async def test_a_silent_server_is_away(
    connections: Connections,
    server: RawServer,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    sends: Sequence[bytes],
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.05)
    server.sends = sends
    with pytest.raises(AwayError, match="no byte for"):
        await ask(connections, url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:70000", "http://["])
async def test_a_server_that_cannot_be_reached_is_away(url: str) -> None:
    with pytest.raises(AwayError, match="no connection to"):
        await ask(Connections({}), url)


async def test_a_killed_server_is_away_in_the_middle_of_a_response() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        async with asyncio.timeout(PATIENCE_S), Connections({}).open(url, "/generate", b"{}") as response:
            parts = response.body()
            assert await anext(parts) == b"hi"
            process.send_signal(signal.SIGKILL)
            with pytest.raises(AwayError, match="connection was closed"):
                await anext(parts)


@pytest.mark.parametrize("sends", [(HEAD % 9 + b"hi",), ()], ids=["in a body", "before the head"])
async def test_giving_up_closes_the_connection(
    connections: Connections, server: RawServer, url: str, sends: Sequence[bytes]
) -> None:
    server.sends = sends
    given_up = asyncio.ensure_future(ask(connections, url))
    async with asyncio.timeout(PATIENCE_S):
        while not server.heard:
            await asyncio.sleep(0)
        given_up.cancel()
        await server.closed.wait()
    server.sends = (WHOLE,)
    assert await ask(connections, url) == b"hello"


@pytest.mark.parametrize(
    "sends",
    [(WHOLE, None), (LAST,), (WHOLE + WHOLE,), (WHOLE, b"HTTP/1.1 200 OK\r\n")],
    ids=["closed by the server", "announced to close", "two responses", "the beginning of another"],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(
    connections: Connections, server: RawServer, url: str, sends: Sequence[bytes | None]
) -> None:
    server.sends = sends
    async with asyncio.timeout(PATIENCE_S), connections.open(url, "/generate", b"{}") as response:
        assert await response.read() == b"hello"
        while response.is_free:
            await asyncio.sleep(0)
    assert await ask(connections, url) == b"hello"
    assert server.connections == 2


async def test_a_connection_that_lay_idle_is_not_used_again(
    connections: Connections, server: RawServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    for _ in range(2):
        assert await ask(connections, url) == b"hello"
    assert server.connections == 2
    await asyncio.wait_for(server.closed.wait(), PATIENCE_S)


async def test_a_certificate_is_checked(
    server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl: the server of this test needs a certificate")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=engine", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with await asyncio.start_server(server, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        connections = Connections({})
        with pytest.raises(AwayError, match="certificate verify failed"):
            await ask(connections, f"https://localhost:{port}")
        trusting = ssl.create_default_context(cafile=certificate)
        monkeypatch.setattr(module, "_tls", lambda: trusting)
        for _ in range(2):
            assert await ask(connections, f"https://localhost:{port}") == b"hello"
        with pytest.raises(AwayError, match="certificate is not valid for"):
            await ask(connections, f"https://127.0.0.1:{port}")
        assert len(server.heard) == 2 and server.connections == 1
        connections.close()
