"""A load of HTTP requests that costs little CPU: connections stay open, and bodies are encoded before.

`closed_loop` keeps a number of requests under way and returns the rate; `open_loop` sends at a rate, whatever
comes back, and measures latencies from the due time of each request, so that a stall counts for all that
waited.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httptools

PATIENCE_S = 30.0


class ResponseError(Exception):
    """A status other than 200, or a connection that was closed."""


class Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._response: asyncio.Future[bytes] | None = None
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._closed = True
        self._settle(ResponseError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        body = b"".join(self._body)
        self._settle(body if status == 200 else ResponseError(f"status {status}: {body[:300]!r}"))

    def close(self) -> None:
        self._transport.close()

    async def send(self, request: bytes) -> bytes:
        """Return the body of the response. Raises ResponseError or TimeoutError."""
        if self._closed:
            raise ResponseError("the connection was closed")
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._response, PATIENCE_S)

    def _settle(self, result: bytes | ResponseError) -> None:
        if self._response is None or self._response.done():
            return
        if isinstance(result, bytes):
            self._response.set_result(result)
        else:
            self._response.set_exception(result)


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(count)]
    try:
        yield [connection for _, connection in made]
    finally:
        for _, connection in made:
            connection.close()


def request_stream(bodies: Sequence[bytes], key: str) -> Iterator[bytes]:
    """Yield requests, session after session, each session through all of `bodies`."""
    while True:
        session = uuid.uuid4().hex
        for body in bodies:
            yield request(body, key, session)


def request(body: bytes, key: str, session: str) -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
    more = f"X-Session-Id: {session}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + more.encode() + body


async def closed_loop(
    port: int, streams: Callable[[], Iterator[bytes]], *, at_once: int, seconds: float
) -> float:
    """Return requests per second, with `at_once` under way all the time."""
    done, started = 0, time.perf_counter()

    async def one(connection: Connection) -> None:
        nonlocal done
        for request_bytes in streams():
            await connection.send(request_bytes)
            done += 1
            if time.perf_counter() - started > seconds:
                return

    async with connections(port, at_once) as free:
        await asyncio.gather(*map(one, free))
    return done / (time.perf_counter() - started)


async def open_loop(
    port: int, streams: Callable[[], Iterator[bytes]], *, rate: float, seconds: float, at_once: int = 64
) -> list[float]:
    """Return latencies in ms of requests due at even distances, `rate` per second."""
    count, latencies = int(rate * seconds), list[float]()
    async with connections(port, min(at_once, count)) as free:
        idle: asyncio.LifoQueue[tuple[Connection, Iterator[bytes]]] = asyncio.LifoQueue()
        for connection in free:
            idle.put_nowait((connection, streams()))

        async def one(connection: Connection, requests: Iterator[bytes], due: float) -> None:
            await connection.send(next(requests))
            latencies.append(1e3 * (time.perf_counter() - due))
            idle.put_nowait((connection, requests))

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for i in range(count):
                due = started + i / rate
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                group.create_task(one(*await idle.get(), due))
    return latencies


async def latency(connection: Connection, request_bytes: bytes) -> float:
    """Return the milliseconds of one request."""
    started = time.perf_counter()
    await connection.send(request_bytes)
    return 1e3 * (time.perf_counter() - started)


async def reach(port: int, request_bytes: bytes, patience_s: float) -> None:
    """Wait until a request succeeds. Raises the last ResponseError or OSError when the time is up."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            async with connections(port, 1) as (connection,):
                await connection.send(request_bytes)
                return
        except (ResponseError, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
