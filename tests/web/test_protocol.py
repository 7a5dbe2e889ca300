"""Heads, trailers, pipelines, connections and time that a stranger can take from a server are limited."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ostinato.web import protocol
from ostinato.web.protocol import LIMITS, MOST_FIELDS, MOST_HEAD_BYTES, MOST_PIPELINED

KEPT = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
GET = KEPT + b"Connection: close\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
HELD = b"GET /held HTTP/1.1\r\nHost: x\r\n"
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


async def echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse({"bytes": len(body), "headers": len(request.headers)})


async def deaf(_: Request) -> Response:
    """Respond without reading the body, as a refusal does."""
    return Response(status_code=401)


async def healthz(_: Request) -> Response:
    return Response("ok")


async def held(_: Request) -> Response:
    await asyncio.sleep(0.3)
    return Response("late")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    routes = [
        Route("/echo", echo, methods=["POST"]),
        Route("/deaf", deaf, methods=["POST"]),
        Route("/healthz", healthz),
        Route("/held", held),
    ]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", lifespan="off", **LIMITS)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def say(port: int, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Send `pieces` and return everything that the server sends until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def write() -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)

    writing, told = asyncio.create_task(write()), b""
    with suppress(ConnectionResetError):
        while piece := await asyncio.wait_for(reader.read(65536), 20):
            told += piece
    writing.cancel()
    writer.close()
    return told


def head(size: int) -> bytes:
    """Return a whole head of exactly `size` bytes."""
    return GET + b"A: " + b"a" * (size - len(GET) - 7) + b"\r\n\r\n"


async def test_a_head_at_the_limit_is_read_and_one_beyond_is_not(port: int) -> None:
    assert (await say(port, head(MOST_HEAD_BYTES - 1))).startswith(b"HTTP/1.1 200")
    assert (await say(port, head(MOST_HEAD_BYTES + 1))).startswith(b"HTTP/1.1 431")
    assert (await say(port, GET + b"A: ", *[b"a" * 5_000] * 8, pause_s=0.001)).startswith(b"HTTP/1.1 431")


async def test_the_number_of_headers_is_limited(port: int) -> None:
    assert (await say(port, GET + b"a: b\r\n" * (MOST_FIELDS - 2) + b"\r\n")).startswith(b"HTTP/1.1 200")
    assert (await say(port, GET + b"a: b\r\n" * MOST_FIELDS + b"\r\n")).startswith(b"HTTP/1.1 431")


async def test_the_request_line_is_limited(port: int) -> None:
    assert (await say(port, b"GET /" + b"a" * MOST_HEAD_BYTES)).startswith(b"HTTP/1.1 431")
    assert (await say(port, b"\r\n" * MOST_HEAD_BYTES)).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("trailer", [b"A: " + b"a" * 2 * MOST_HEAD_BYTES, b"a: b\r\n" * 2 * MOST_FIELDS])
async def test_trailers_are_limited(port: int, trailer: bytes) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
    assert (await say(port, chunked + b"A: b\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert (await say(port, chunked + trailer)).startswith(b"HTTP/1.1 431")


async def test_a_body_in_many_pieces_is_whole(port: int) -> None:
    sized = POST + b"Content-Length: 1000000\r\n\r\n"
    assert b'"bytes":1000000' in await say(port, sized, *[b"x" * 50_000] * 20)
    chunks = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n"
    assert b'"bytes":30000' in await say(port, chunks)


async def test_pipelined_requests_are_limited(port: int) -> None:
    few = await say(port, (KEPT + b"\r\n") * (MOST_PIPELINED - 1) + GET + b"\r\n")
    assert few.count(b"HTTP/1.1 200") == MOST_PIPELINED
    many = await say(port, HELD + b"\r\n" + (KEPT + b"\r\n") * 1_000)
    assert many.count(b"HTTP/1.1 200") <= 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    monkeypatch.setattr(protocol, "BODY_S", 0.3)


@pytest.mark.parametrize("begun", [b"G", GET, b"\r\n", KEPT + b"\r\n" + KEPT])
async def test_a_head_that_is_not_finished_is_closed(impatient, port: int, begun: bytes) -> None:
    assert (await say(port, begun)).endswith(LATE)


async def test_a_head_that_drips_is_closed(impatient, port: int) -> None:
    drops = [b"a: b\r\n"] * 40
    assert b"HTTP/1.1 408" in await say(port, GET, *drops, pause_s=0.02)


@pytest.mark.parametrize("path", [b"/echo", b"/deaf"])
async def test_a_body_that_drips_is_closed(impatient, port: int, path: bytes) -> None:
    begun = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    assert b"HTTP/1.1 408" in await say(port, begun, *[b"x"] * 40, pause_s=0.02)


async def test_a_body_that_arrives_is_not_hurried(impatient, port: int) -> None:
    begun = POST + b"Content-Length: 800000\r\n\r\n"
    assert b'"bytes":800000' in await say(port, begun, *[b"x" * 20_000] * 40, pause_s=0.02)


async def test_a_slow_response_is_waited_for(impatient, port: int) -> None:
    assert b"late" in await say(port, HELD + b"Connection: close\r\n\r\n")


async def test_the_longest_waiting_connection_is_closed(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 20)
    working = asyncio.create_task(say(port, HELD + b"Connection: close\r\n\r\n"))
    await asyncio.sleep(0.05)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
    assert (await say(port, GET + b"\r\n")).startswith(b"HTTP/1.1 200")
    assert b"late" in await working
    gone = [reader for reader, _ in idle[:10] if reader.at_eof() or reader.exception()]
    assert len(gone) == 10 and not any(reader.at_eof() for reader, _ in idle[15:])
    for _, writer in idle:
        writer.close()
