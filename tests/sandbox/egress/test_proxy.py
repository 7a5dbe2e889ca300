"""The requests that a program can send through its proxy, and the records of them.

Covers sandbox/egress/proxy_connection.py, sandbox/egress/http.py, sandbox/egress/streams.py and
sandbox/egress/tls_hello.py.
"""

import asyncio
import struct
from pathlib import Path

import pytest
from tests.sandbox.egress.conftest import Bench, proxying, serving

from ostinato.sandbox.base import Egress

LOOPBACK = ("127.0.0.0/8",)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nX-Kept: 1\r\n\r\nhi"


class Origin:
    """A server that remembers the requests and sends a fixed response."""

    def __init__(self, answer: bytes = OK) -> None:
        self.heard = b""
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        self.heard += await reader.read()
        writer.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def policy(port: int, **more: object) -> Egress:
    return Egress(allow=(f"good.test:{port}",), networks=LOOPBACK, **more)  # type: ignore[arg-type]


async def tunnel(bench: Bench, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await bench.open()
    writer.write(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    return reader, writer


async def test_a_request_is_forwarded_without_stripped_headers(place: Path) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        answer = await bench.ask(
            f"POST http://good.test:{port}/a?b=c HTTP/1.1\r\nHost: evil.test\r\nCookie: secret\r\n"
            "Authorization: Bearer secret\r\nConnection: X-Hop\r\nX-Hop: secret\r\n"
            "Proxy-Authorization: secret\r\nX-Fine: 1\r\nContent-Length: 4\r\n\r\nbody"
        )
    assert answer.endswith(b"hi")
    assert b"X-Kept: 1" in answer
    assert b"Set-Cookie" not in answer
    assert origin.heard.startswith(b"POST /a?b=c HTTP/1.1\r\n")
    assert f"Host: good.test:{port}\r\n".encode() in origin.heard
    assert origin.heard.endswith(b"\r\n\r\nbody")
    for gone in (b"secret", b"evil"):
        assert gone not in origin.heard
    (record,) = bench.proxy.connections
    assert (record.method, record.host, record.port, record.address, record.refused) == (
        "POST",
        "good.test",
        port,
        "127.0.0.1",
        None,
    )
    assert record.sent > 4
    assert record.received > 2


@pytest.mark.parametrize(
    "request_text",
    [
        "GET http://other.test/ HTTP/1.1\r\n\r\n",
        "GET http://good.test@other.test/ HTTP/1.1\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/1.1\r\n\r\n",
        "GET http://2130706433/ HTTP/1.1\r\n\r\n",
        "GET http://[::1]/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
        "GET https://good.test/ HTTP/1.1\r\n\r\n",
        "GET file:///etc/passwd HTTP/1.1\r\n\r\n",
        "CONNECT other.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT good.test HTTP/1.1\r\n\r\n",
        "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET http://good.test/ HTTP/1.1\r\n folded: x\r\n\r\n",
        "GET http://good.test/ HTTP/1.1\r\nno colon\r\n\r\n",
        "X" * 70_000,
    ],
)
async def test_a_request_that_is_not_allowed_is_refused_and_recorded(place: Path, request_text: str) -> None:
    async with proxying(place, policy(80)) as bench:
        answer = await bench.ask(request_text)
        assert answer.startswith(b"HTTP/1.1 403 Forbidden")
        await bench.proxy.aclose()


SMUGGLED = "GET /evil HTTP/1.1\r\nHost: good.test\r\nAuthorization: secret\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 0\r\n\r\n",
        "\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 90\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n0\r\n\r\n",
        "Content-Length : 0\r\n\r\n",
    ],
)
async def test_no_second_request_hides_behind_the_first(place: Path, framing: str) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        await bench.ask(f"POST http://good.test:{port}/ HTTP/1.1\r\n{framing}{SMUGGLED}")
    assert b"evil" not in origin.heard
    assert b"secret" not in origin.heard


async def test_chunks_pass(place: Path) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        await bench.ask(
            f"POST http://good.test:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            "3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
        )
    assert origin.heard.endswith(b"\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n")


async def test_interim_responses_are_dropped(place: Path) -> None:
    async with (
        serving(Origin(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)) as port,
        proxying(place, policy(port)) as bench,
    ):
        answer = await bench.ask(f"GET http://good.test:{port}/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_a_tunnel_carries_both_directions(place: Path) -> None:
    async with serving(echo) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        data = bytes(range(256)) * 4096
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data
        writer.close()
        await asyncio.sleep(0.05)
        (record,) = bench.proxy.connections
    assert (record.method, record.sent, record.received, record.refused) == (
        "CONNECT",
        len(data),
        len(data),
        None,
    )


async def test_a_server_may_speak_first(place: Path) -> None:
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello")
        await writer.drain()
        await reader.read()
        writer.close()

    async with serving(greets) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        assert await reader.readexactly(9) == b"220 hello"
        writer.close()


def client_hello(name: str) -> bytes:
    host = name.encode()
    entry = struct.pack(">HBH", len(host) + 3, 0, len(host)) + host
    extensions = struct.pack(">HHB", 23, 1, 0) + struct.pack(">HH", 0, len(entry)) + entry
    body = b"\x03\x03" + bytes(32) + b"\0" + struct.pack(">HH", 2, 0x1301) + b"\1\0"
    body += struct.pack(">H", len(extensions)) + extensions
    record = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(record)) + record


async def test_a_tunnel_to_the_host_of_its_greeting_is_passed_on_byte_for_byte(place: Path) -> None:
    async with serving(echo) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        data = client_hello("Good.Test")
        for piece in (data[:3], data[3:20], data[20:]):
            writer.write(piece)
            await asyncio.sleep(0.01)
        writer.write_eof()
        assert await reader.read() == data
        writer.close()


@pytest.mark.parametrize(
    "greeting", [client_hello("other.test"), client_hello("good.test")[:9] + b"\xff" * 200]
)
async def test_a_tunnel_with_another_host_in_its_greeting_is_cut(place: Path, greeting: bytes) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        writer.write(greeting)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await asyncio.sleep(0.05)
        assert bench.refused is not None
    assert origin.heard == b""


@pytest.mark.parametrize(("cap", "allowed"), [("sent_bytes", 1000), ("received_bytes", 1000)])
async def test_a_cap_holds_over_all_connections(place: Path, cap: str, allowed: int) -> None:
    async with serving(echo) as port, proxying(place, policy(port, **{cap: allowed})) as bench:
        for _ in range(2):
            reader, writer = await tunnel(bench, port)
            writer.write(bytes(600))
            writer.write_eof()
            await reader.read()
            writer.close()
            await asyncio.sleep(0.02)
        assert [record.refused is None for record in bench.proxy.connections] == [True, False]
        assert b"403" in await bench.ask(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n")


async def test_a_rate_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def counted(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    async with serving(echo) as port, proxying(place, policy(port, bytes_per_s=100_000)) as bench:
        reader, writer = await tunnel(bench, port)
        monkeypatch.setattr("ostinato.sandbox.egress.meter.asyncio.sleep", counted)
        writer.write(bytes(300_000))
        writer.write_eof()
        assert len(await reader.read()) == 300_000
        monkeypatch.undo()
        writer.close()
    assert max(waits) > 4.0  # 600,000 bytes both ways, one second's worth at once


async def test_the_number_of_connections_is_limited(place: Path) -> None:
    async with serving(echo) as port, proxying(place, policy(port, connections=1)) as bench:
        _, writer = await tunnel(bench, port)
        assert (await bench.ask(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 429")
        writer.close()


async def test_the_end_of_the_proxy_cuts_open_connections(place: Path) -> None:
    async with serving(echo) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        await bench.proxy.aclose()
        assert await reader.read() == b""
        writer.close()
        assert bench.refused == "the sandbox ended"


async def test_a_missing_server_is_reported(place: Path) -> None:
    async with serving(echo) as port:
        pass
    async with proxying(place, policy(port)) as bench:
        assert (await bench.ask(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 502")


async def through_a_tunnel(bench: Bench, port: int, *pieces: bytes) -> bytes:
    reader, writer = await tunnel(bench, port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    answer = await reader.read()
    writer.close()
    await asyncio.sleep(0.02)
    return answer


COOKIE = b"GET /x HTTP/1.1\r\nHost: good.test:%d\r\nCookie: secret\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
async def test_http_in_a_tunnel_is_stripped_however_it_is_cut(place: Path, size: int) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        text = COOKIE % port
        pieces = [text[start : start + size] for start in range(0, min(len(text), 20), size)]
        pieces.append(text[sum(map(len, pieces)) :])
        answer = await through_a_tunnel(bench, port, *pieces)
    assert answer.endswith(b"hi")
    assert b"Set-Cookie" not in answer
    assert origin.heard.startswith(b"GET /x HTTP/1.1\r\n")
    assert b"secret" not in origin.heard


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "get / HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
        "A-STRANGE-ONE * HTTP/1.1\r\nHost: other.test\r\nCookie: secret\r\n\r\n",
    ],
)
async def test_another_host_cannot_be_requested_in_a_tunnel(place: Path, text: str) -> None:
    origin = Origin()
    async with serving(origin) as port, proxying(place, policy(port)) as bench:
        await through_a_tunnel(bench, port, text[:1].encode(), text[1:].encode())
        assert bench.refused is not None
    assert b"secret" not in origin.heard


@pytest.mark.parametrize(
    "text", [b"SSH-2.0-x\r\n", b"EHLO me\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0\0\0", b"GETTING\n", b"a b c d"]
)
async def test_other_protocols_pass_unchanged(place: Path, text: bytes) -> None:
    async with serving(echo) as port, proxying(place, policy(port)) as bench:
        reader, writer = await tunnel(bench, port)
        for byte in text:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        writer.write_eof()
        assert await reader.read() == text
        writer.close()


ENDLESS = {
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: x\r\n" * 10_000,
    "interim answers": b"HTTP/1.1 103 Early\r\n\r\n" * 1000,
    "a line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000 + b"\r\n",
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_endless_response_is_cut_and_counted(place: Path, what: str) -> None:
    async with (
        serving(Origin(ENDLESS[what])) as port,
        proxying(place, policy(port)) as bench,
    ):
        await bench.ask(f"GET http://good.test:{port}/ HTTP/1.1\r\n\r\n")
        (record,) = bench.proxy.connections
    assert record.refused is not None
    assert "more than" in record.refused
    assert record.received > 400 or what == "a line"


async def test_dropped_bytes_count_against_the_cap(place: Path) -> None:
    chunk = b"1;" + b"x" * 1000 + b"\r\na\r\n"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 50 + b"0\r\n\r\n"
    async with (
        serving(Origin(answer)) as port,
        proxying(place, policy(port, received_bytes=20_000)) as bench,
    ):
        await bench.ask(f"GET http://good.test:{port}/ HTTP/1.1\r\n\r\n")
        assert "the policy's cap" in (bench.refused or "")
