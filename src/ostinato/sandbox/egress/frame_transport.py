"""The route out of a sandbox with its own kernel. None of its sockets can be held outside, so the connections
of its programs arrive as frames (see `sandbox.guest.proxy_forwarder`) and become transports for the proxy.

    proxy_forwarder ──opened──► FrameConnections ──► FrameTransport ──► Proxy
                    ──data, end──►              │ reading is paused: received bytes stay, no more are accepted
                    ◄──data, taken, close───────┘ the wire is full, or bytes are not taken: writing is paused
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import listener
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.egress.route import Route
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection
from ostinato.sandbox.protocol.frames import FrameError

MOST = 256
"""Connections that a guest holds at once, whatever its policy; more wait in its listening socket."""
_REFUSABLE = 16
"""Connections beyond the policy's limit that are accepted, so that they get a refusal."""
_HIGH, _LOW = 1 << 16, 1 << 14
"""Bytes waiting for the guest at which writing is paused, and goes on."""


class FrameRoute(Route):
    """A route over `wire` to a guest, which gets `forwarder_settings`; `aclose` at the end."""

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None, wire: AgentConnection) -> None:
        super().__init__(policy, sandbox, resolve)
        self._most = min(policy.connections + _REFUSABLE, MOST)
        self._guest = FrameConnections(wire, self._most, self.proxy.accept)
        wire.set_event_listener(self._guest)

    def forwarder_settings(self, own: Mapping[str, str]) -> dict[str, object]:
        """Return the settings of the guest's forwarder. Variables that commands already have, `own`, stay."""
        added = {name: value for name, value in self.environment().items() if name not in own}
        return {"address": (listener.HOST, listener.PORT), "most": self._most, "environment": added}

    async def aclose(self) -> None:
        self._guest.stop()
        await super().aclose()


class FrameConnections:
    """All connections of one guest; `accept` returns the protocol that serves one.

    A frame that no honest agent sends, such as a connection beyond `most`, is a FrameError.
    """

    def __init__(self, wire: AgentConnection, most: int, accept: Callable[[], asyncio.Protocol]) -> None:
        self.wire = wire
        self._most = most
        self._accept = accept
        self._connections: dict[int, FrameTransport] = {}
        self.stopped = False

    def on_event(self, header: Mapping[str, Any], body: bytes) -> None:
        number, event = _natural(header, "stream"), header["event"]
        if event == "opened":
            self._open(number)
        elif number in self._connections:  # else we closed it while the frame was on its way
            self._connections[number].receive(event, header, body)

    def _open(self, number: int) -> None:
        if number in self._connections or len(self._connections) >= self._most:
            raise FrameError(f"connection {number} is more than allowed")
        if not self.stopped:
            self._connections[number] = FrameTransport(number, self, self._accept())

    def on_writable(self) -> None:
        """Let the connections send in turn: one that has sent moves to the end of the order."""
        for number in tuple(self._connections):
            if self.wire.writable:
                connection = self._connections[number] = self._connections.pop(number)
                connection.flush()

    def on_closed(self) -> None:
        """Lose all connections, because the guest is gone."""
        for connection in tuple(self._connections.values()):
            connection.lose(ConnectionResetError("the sandbox is gone"))

    def stop(self) -> None:
        """Send nothing to the guest from here on: connections that are closed end at once."""
        self.stopped = True

    def forget(self, number: int) -> None:
        self._connections.pop(number, None)


class FrameTransport(asyncio.Transport):
    """One connection. Its protocol learns of its end at once, the guest when the wire has room."""

    def __init__(self, number: int, guest: FrameConnections, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._number, self._guest, self._protocol = number, guest, protocol
        self._unread = bytearray()
        self._reading = True
        self._ahead = 0
        """Bytes that the guest sent and that we have not acknowledged."""
        self._taken = 0
        self._ended = self._end_delivered = False
        self._waiting = bytearray()
        self._room = frames.WINDOW
        self._paused = False
        self._last: deque[str] = deque()
        """Events to send after the data."""
        self._closing = self._lost = False
        protocol.connection_made(self)

    # from the guest

    def receive(self, event: object, header: Mapping[str, Any], body: bytes) -> None:
        """Handle a frame of the guest. Raises FrameError."""
        match event:
            case "data":
                self._receive_data(body)
            case "taken":
                self._room += _natural(header, "bytes")
                if self._room > frames.WINDOW:
                    raise FrameError(f"connection {self._number} acknowledged bytes that were not sent")
                self.flush()
            case "end":
                self._ended = True
                self._deliver()
            case "close":
                self.lose(ConnectionResetError("the program is gone"))
                self._guest.forget(self._number)
            case _:
                raise FrameError(f"connection {self._number} sent {event!r:.40}")

    def _receive_data(self, body: bytes) -> None:
        self._ahead += len(body)
        if not body or self._ended or self._ahead > frames.WINDOW:
            raise FrameError(f"connection {self._number} sent more than it may")
        if not self._closing:
            self._unread += body
            self._deliver()

    def _deliver(self) -> None:
        """Pass bytes on to the protocol while it reads."""
        while self._reading and self._unread and not self._closing:
            piece = bytes(self._unread[: frames.CHUNK])
            del self._unread[: frames.CHUNK]
            self._taken += len(piece)
            self._protocol.data_received(piece)
        if self._ended and not self._unread and not self._end_delivered and not self._closing:
            self._end_delivered = True
            if not self._protocol.eof_received():
                self.close()
        self.flush()

    # to the guest

    def flush(self) -> None:
        """Send pending frames, as far as the wire and the program have room."""
        while self._guest.wire.writable and self._send_next():
            pass
        if self._paused and len(self._waiting) <= _LOW and not self._lost:
            self._paused = False
            self._protocol.resume_writing()

    def _send_next(self) -> bool:
        """Send one frame; return False if there was none to send."""
        if self._taken:
            self._send("taken", bytes=self._taken)
            self._ahead -= self._taken
            self._taken = 0
        elif self._waiting and self._room:
            piece = bytes(self._waiting[: min(frames.CHUNK, self._room)])
            del self._waiting[: len(piece)]
            self._room -= len(piece)
            self._send("data", piece)
        elif self._last and not self._waiting:
            self._finish(self._last.popleft())
        else:
            return False
        return True

    def _send(self, event: str, body: bytes = b"", **more: int) -> None:
        header = {"id": 0, "op": "stream", "event": event, "stream": self._number, **more}
        self._guest.wire.send(header, body)

    def _finish(self, event: str) -> None:
        self._send(event)
        if event != "end":
            self._guest.forget(self._number)
            self.lose(None)

    # asyncio.Transport

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self._closing or self._last:
            return
        self._waiting += data
        self.flush()
        if len(self._waiting) > _HIGH and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._last and not self._closing:
            self._last.append("end")
            self.flush()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._stop_reading()
            self._last.append("close")
            self.flush()
            if self._guest.stopped:
                self.lose(None)

    def abort(self) -> None:
        self._stop_reading()
        self._waiting.clear()
        self._last = deque(["cut"])
        self.lose(None)
        self.flush()

    def _stop_reading(self) -> None:
        self._closing = True
        self._unread.clear()

    def lose(self, error: Exception | None) -> None:
        """Report the loss to the protocol, as the last call to it."""
        if not self._lost:
            self._stop_reading()
            self._lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


def _natural(header: Mapping[str, Any], name: str) -> int:
    value = header[name]
    if not isinstance(value, int) or value < 1:
        raise FrameError(f"{name} is {value!r:.40}")
    return value
