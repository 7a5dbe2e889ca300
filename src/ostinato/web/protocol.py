"""An HTTP protocol with limits on heads, bodies and connections, so that no client can use up memory or time.

uvicorn's own protocol limits none of them, and its parser copies an unfinished header at each read, which is
quadratic in the header's length. Requests are refused here before their key is checked, so the limits hold
for strangers.
"""

import asyncio
import resource
import socket
from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 32 * 2**10
"""The most bytes of a request line with its headers, and between two pieces of a body (trailers)."""
MOST_FIELDS = 128
"""The most headers of one request, with its trailers: small ones cost fifty times their length."""
MOST_PIPELINED = 8
"""The most requests on a connection that may wait for the response to the one before."""
HEAD_S = 10.0
"""The most time between the first and the last byte of a head."""
BODY_S = 30.0
LEAST_BODY_BYTES = 30 * 2**10
"""The bytes of an unfinished body that must arrive in each `BODY_S`: 1 KiB per second."""
MOST_CONNECTIONS = 1_024
"""Beyond this number the connection that has waited longest for its client is closed."""
MOST_REQUESTS = 1_024
"""The most requests under way; others get 503."""
STATUS = {
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

_waiting: WeakKeyDictionary[Any, "OrderedDict[Guarded, None]"] = WeakKeyDictionary()
"""The connections of each server that wait for their client, not for a response; the oldest wait first."""


class TooMuchError(Exception):
    """A request exceeds a limit; this is raised inside the parser, which ends the request."""


class Guarded(HttpToolsProtocol):
    """uvicorn's protocol with the limits of this module. Give it to `uvicorn.Config(http=Guarded)`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting_for_client = _waiting.setdefault(self.server_state, OrderedDict())
        self._unread = 0
        """Bytes that no callback has taken: of an unfinished head, or between two pieces of a body."""
        self._in_body = False
        self._body_bytes = 0
        self._fields = 0
        self._timer: asyncio.TimerHandle | None = None
        self._clock = ""
        self._status = 400

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_for_client[self] = None
        if len(self._waiting_for_client) > MOST_CONNECTIONS:
            longest, _ = self._waiting_for_client.popitem(last=False)
            longest.transport.abort()
        self._start_clock("idle", self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting_for_client.pop(self, None)
        self._start_clock("", 0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser no more than the limit at once, so that it never holds more than the limit."""
        while data and not self.transport.is_closing():
            room = MOST_HEAD_BYTES - self._unread
            piece, data = data[:room], data[room:]
            self._unread += len(piece)
            super().data_received(piece)
            if self._unread >= MOST_HEAD_BYTES:
                self._refuse(431)
        if not self.transport.is_closing():
            self._watch_client()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields, self._unread = 0, max(1, self._unread)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            self._status = 431
            raise TooMuchError(f"more than {MOST_FIELDS} headers")
        if not self._in_body:  # headers after a body are trailers, which no server here reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self._status = 503
            raise TooMuchError(f"more than {MOST_PIPELINED} requests wait")
        self._unread, self._in_body, self._body_bytes = 0, True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread, self._in_body = 0, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch_client()

    def send_400_response(self, msg: str) -> None:
        """Respond when the parser gave up, for a limit of ours or because the request is not HTTP."""
        if self._status == 400:
            super().send_400_response(msg)
        else:
            self._refuse(self._status)

    def _watch_client(self) -> None:
        """Start the clock for the head or body that the client has begun, and note if we wait for it."""
        if self._in_body:
            self._start_clock("body", BODY_S)
        elif self._unread:
            self._start_clock("head", HEAD_S)
        else:
            self._start_clock("", 0)
        responding = self.cycle is not None and not self.cycle.response_complete
        if responding and not self._in_body:
            self._waiting_for_client.pop(self, None)
        else:
            self._waiting_for_client.setdefault(self, None)

    def _start_clock(self, what: str, seconds: float) -> None:
        """Start the clock for `what`, unless it runs already."""
        if what == self._clock:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._clock, self._timer = what, None
        if what:
            self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close the connection, except for a body that arrives fast enough or that we are not ready to read.

        Once the response was sent, the rest of a body is late however fast it arrives.
        """
        what, self._clock, self._timer = self._clock, "", None
        responded = self.cycle is not None and self.cycle.response_complete
        arrives = self._body_bytes >= LEAST_BODY_BYTES and not responded
        if what == "body" and (arrives or self.flow.read_paused):
            self._body_bytes = 0
            self._start_clock("body", BODY_S)
        elif what == "idle":
            self.transport.close()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        """Close the connection; send an error response first, unless that would cut into another response."""
        if self.transport.is_closing():
            return
        begun = self.cycle is not None and self.cycle.response_started
        if not self.pipeline and (not begun or self.cycle.response_complete):
            line = b"HTTP/1.1 %d %s\r\n" % (status, STATUS[status])
            self.transport.write(line + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


LIMITS: dict[str, Any] = {"http": Guarded, "limit_concurrency": MOST_CONNECTIONS + MOST_REQUESTS}
"""Arguments of `uvicorn.Config`. It counts all connections: those with a request, and the most that wait."""


def allow_connections() -> None:
    """Raise this process's limit of open files to the number that this module needs, where allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * (MOST_CONNECTIONS + MOST_REQUESTS)
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket for `uvicorn.Server`. Raises OSError that names the address."""
    try:
        listener = socket.create_server((host, port), backlog=backlog)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener
