"""Carries connections of programs in a virtual machine to the egress proxy outside.

Programs connect to a proxy address on the guest's own loopback. Their data travels as frames (see
`sandbox.protocol.frames`) to the backend, where `egress.frame_transport` gives it to the proxy.

    program ──127.0.0.1:3128──► ProxyForwarder ──frames: opened, data, end──► backend
            ◄───────────────────               ◄──frames: data, taken, close──

Neither side is ever ahead of the other by more than `frames.WINDOW` bytes for each connection.
"""

import itertools
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import Poller

_BACKLOG = 64
_RESET = struct.pack("ii", 1, 0)
"""The SO_LINGER with which `close` resets the connection."""
Send = Callable[[Mapping[str, Any], bytes], None]


@dataclass(slots=True, kw_only=True)
class ForwardedConnection:
    """A program's connection."""

    number: int
    socket: socket.socket
    credit: int = frames.WINDOW
    """Bytes that may be sent to the backend before it takes some of them."""
    unwritten: bytearray = field(default_factory=bytearray)
    """Data from the backend that the program has not taken yet."""
    program_ended: bool = False
    """True when the program sends no more data."""
    backend_ended: bool = False
    """True when the backend sends no more data."""
    closing: bool = False
    """True when the backend has closed the connection behind `unwritten`."""

    @property
    def readable(self) -> bool:
        """True when data of the program may be read and sent on."""
        return self.credit > 0 and not self.program_ended and not self.closing


class ProxyForwarder:
    """All forwarded connections; `ca_file` is the open file of certificates that programs trust."""

    def __init__(self, poller: Poller, send: Send, ca_file: int) -> None:
        self._poller = poller
        self._send = send
        self._ca_file = ca_file
        self._listener: socket.socket | None = None
        self._max_connections = 0
        self._environment: Mapping[str, str] = {}
        self._connections: dict[int, ForwardedConnection] = {}
        self._numbers = itertools.count(1)

    def trust(self, data: bytes) -> None:
        """Append certificates that programs trust; `reset` removes all of them."""
        frames.write_all(self._ca_file, data)

    def open(self, door: Mapping[str, Any]) -> None:
        """Accept programs at `door["address"]`, at most `door["most"]` at a time.

        Commands get `door["environment"]`. Raises OSError, SandboxError.
        """
        self._remove_environment()
        if self._listener is None:
            self._listener = _listen(*door["address"])
        self._max_connections, self._environment = door["most"], door["environment"]
        os.environ.update(self._environment)
        self._poll_listener()

    def shut(self) -> None:
        """Stop listening: programs that wait to be accepted are turned away."""
        self._remove_environment()
        if self._listener is not None:
            self._poller.remove(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _remove_environment(self) -> None:
        for name in self._environment:
            os.environ.pop(name, None)
        self._environment = {}

    def reset(self) -> None:
        """Reset all connections, whose backend is gone; new ones wait until `open` or `shut`."""
        for connection in tuple(self._connections.values()):
            self._reset(connection)
        if self._listener is not None:
            self._poller.remove(self._listener.fileno())
        os.ftruncate(self._ca_file, 0)

    def receive(self, request: Mapping[str, Any], body: bytes) -> None:
        """Handle the backend's frame for one connection, if that still exists."""
        connection = self._connections.get(request["stream"])
        if connection is None:
            return
        match request["event"]:
            case "data":
                connection.unwritten += body
            case "taken":
                connection.credit += request["bytes"]
            case "end":
                connection.backend_ended = True
            case "close":
                connection.closing = True
            case "cut":
                self._reset(connection)
                return
        self._write(connection)

    def _poll_listener(self) -> None:
        """Wait for the next program while there is room for another connection."""
        if self._listener is None or not self._max_connections:
            return
        if len(self._connections) < self._max_connections:
            self._poller.add(self._listener.fileno(), select.POLLIN, self._accept)
        else:
            self._poller.remove(self._listener.fileno())

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # the program has hung up already
            return
        accepted.setblocking(False)
        connection = ForwardedConnection(number=next(self._numbers), socket=accepted)
        self._connections[connection.number] = connection
        self._send_event(connection, "opened")
        self._poll(connection)
        self._poll_listener()

    def _send_event(
        self, connection: ForwardedConnection, event: str, body: bytes = b"", **more: int
    ) -> None:
        self._send({"id": 0, "event": event, "stream": connection.number, **more}, body)

    def _poll(self, connection: ForwardedConnection) -> None:
        """Poll the connection for what can be done next."""
        events = select.POLLIN if connection.readable else 0
        events |= select.POLLOUT if connection.unwritten else 0
        if events:
            self._poller.add(connection.socket.fileno(), events, partial(self._on_ready, connection))
        else:  # polled all the same, it would report its end again and again
            self._poller.remove(connection.socket.fileno())

    def _on_ready(self, connection: ForwardedConnection, events: int) -> None:
        """Write what the program takes, then send on what it has written."""
        if connection.unwritten and events & ~select.POLLIN:
            self._write(connection)
        is_open = connection.number in self._connections
        if not (is_open and connection.readable and events & ~select.POLLOUT):
            return
        try:
            data = connection.socket.recv(min(frames.CHUNK, connection.credit))
        except BlockingIOError:
            return
        except OSError:
            self._lose(connection)
            return
        connection.credit -= len(data)
        connection.program_ended = not data
        self._send_event(connection, "data" if data else "end", data)
        self._poll(connection)

    def _write(self, connection: ForwardedConnection) -> None:
        """Write as much as the program takes now, and behind the last byte end or close the connection."""
        try:
            count = connection.socket.send(connection.unwritten) if connection.unwritten else 0
        except BlockingIOError:
            count = 0
        except OSError:
            self._lose(connection)
            return
        del connection.unwritten[:count]
        if count:
            self._send_event(connection, "taken", bytes=count)
        if connection.closing and not connection.unwritten:
            self._forget(connection)
            return
        if connection.backend_ended and not connection.unwritten:
            with suppress(OSError):  # the program is gone: the next read notices that
                connection.socket.shutdown(socket.SHUT_WR)
        self._poll(connection)

    def _lose(self, connection: ForwardedConnection) -> None:
        self._send_event(connection, "close")
        self._forget(connection)

    def _reset(self, connection: ForwardedConnection) -> None:
        with suppress(OSError):
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._forget(connection)

    def _forget(self, connection: ForwardedConnection) -> None:
        self._poller.remove(connection.socket.fileno())
        connection.socket.close()
        del self._connections[connection.number]
        self._poll_listener()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SandboxError(f"the guest cannot listen for the proxy at {host}:{port}: {error}") from error
    return listener
