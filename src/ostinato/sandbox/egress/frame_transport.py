"""A way out of a sandbox whose kernel is its own: no socket of it can be held outside, so what programs say
at its door comes as frames (see `sandbox.guest.proxy_forwarder`) and is given to the proxy as transports.

    porter ──opened──► Carrier ──► Carried, a transport ──► Proxy
           ──data, end──►              │ reading paused: what was said stays, and no more is taken
           ◄──data, taken, close───────┘ the wire full, or nothing taken: writing is paused
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import listener
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.egress.route import Way
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection
from ostinato.sandbox.protocol.frames import FrameError

MOST = 256
"""Connections that a guest holds at once, whatever its policy; more wait at its door."""
_REFUSABLE = 16
"""How many more than the policy allows come in, to be told so."""
_HIGH, _LOW = 1 << 16, 1 << 14
"""Bytes on their way in at which writing is paused, and goes on."""


class CarriedWay(Way):
    """Tell the guest at the other end of `wire` of its `door` and whom to trust, `aclose` at the end."""

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None, wire: AgentConnection) -> None:
        super().__init__(policy, sandbox, resolve)
        self._most = min(policy.connections + _REFUSABLE, MOST)
        self._carrier = Carrier(wire, self._most, self.proxy.accept)
        wire.set_event_listener(self._carrier)

    def door(self, own: Mapping[str, str]) -> dict[str, object]:
        """What a guest needs to open it; `own`: the environment that commands have, which stays."""
        told = {name: value for name, value in self.environment().items() if name not in own}
        return {"address": (listener.HOST, listener.PORT), "most": self._most, "environment": told}

    async def aclose(self) -> None:
        self._carrier.stop()
        await super().aclose()


class Carrier:
    """All connections of one guest, as an `EventListener`; `accept` gives what serves one.

    What no honest agent says, such as more than the `most` it was told, is a FrameError.
    """

    def __init__(self, wire: AgentConnection, most: int, accept: Callable[[], asyncio.Protocol]) -> None:
        self.wire = wire
        self._most = most
        self._accept = accept
        self._connections: dict[int, Carried] = {}
        self.stopped = False

    def on_event(self, header: Mapping[str, Any], body: bytes) -> None:
        number, event = _natural(header, "stream"), header["event"]
        if event == "opened":
            self._open(number)
        elif number in self._connections:  # else it was closed by us while that was on its way
            self._connections[number].hear(event, header, body)

    def _open(self, number: int) -> None:
        if number in self._connections or len(self._connections) >= self._most:
            raise FrameError(f"connection {number} is one too many")
        if not self.stopped:
            self._connections[number] = Carried(number, self, self._accept())

    def on_writable(self) -> None:
        """Let the next speak: whoever does is the last after that."""
        for number in tuple(self._connections):
            if self.wire.writable:
                connection = self._connections[number] = self._connections.pop(number)
                connection.flush()

    def on_closed(self) -> None:
        """The guest is gone."""
        for connection in tuple(self._connections.values()):
            connection.lose(ConnectionResetError("the sandbox is gone"))

    def stop(self) -> None:
        """From here on nothing is told to the guest: whatever is closed ends at once."""
        self.stopped = True

    def forget(self, number: int) -> None:
        self._connections.pop(number, None)


class Carried(asyncio.Transport):
    """One connection. Its protocol is told of its end as soon as nothing more can come; the guest, when the
    wire takes it."""

    def __init__(self, number: int, carrier: Carrier, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._number, self._carrier, self._protocol = number, carrier, protocol
        self._unread = bytearray()
        self._reading = True
        self._ahead = 0
        """Bytes that the guest sent and we have not said to have taken."""
        self._taken = 0
        self._silent = self._silence_told = False
        self._waiting = bytearray()
        self._room = frames.WINDOW
        self._paused = False
        self._last: deque[str] = deque()
        """What is to be said behind the data."""
        self._closing = self._lost = False
        protocol.connection_made(self)

    # from the guest

    def hear(self, event: object, header: Mapping[str, Any], body: bytes) -> None:
        """Raises FrameError."""
        match event:
            case "data":
                self._hear_data(body)
            case "taken":
                self._room += _natural(header, "bytes")
                if self._room > frames.WINDOW:
                    raise FrameError(f"connection {self._number} took what it was not given")
                self.flush()
            case "end":
                self._silent = True
                self._deliver()
            case "close":
                self.lose(ConnectionResetError("the program is gone"))
                self._carrier.forget(self._number)
            case _:
                raise FrameError(f"connection {self._number} says {event!r:.40}")

    def _hear_data(self, body: bytes) -> None:
        self._ahead += len(body)
        if not body or self._silent or self._ahead > frames.WINDOW:
            raise FrameError(f"connection {self._number} says more than it may")
        if not self._closing:
            self._unread += body
            self._deliver()

    def _deliver(self) -> None:
        """To the protocol, while it reads."""
        while self._reading and self._unread and not self._closing:
            piece = bytes(self._unread[: frames.CHUNK])
            del self._unread[: frames.CHUNK]
            self._taken += len(piece)
            self._protocol.data_received(piece)
        if self._silent and not self._unread and not self._silence_told and not self._closing:
            self._silence_told = True
            if not self._protocol.eof_received():
                self.close()
        self.flush()

    # to the guest

    def flush(self) -> None:
        """Say what there is to say, as far as the wire and the program take it."""
        while self._carrier.wire.writable and self._say():
            pass
        if self._paused and len(self._waiting) <= _LOW and not self._lost:
            self._paused = False
            self._protocol.resume_writing()

    def _say(self) -> bool:
        """One frame; answers whether there was one to be sent."""
        if self._taken:
            self._tell("taken", bytes=self._taken)
            self._ahead -= self._taken
            self._taken = 0
        elif self._waiting and self._room:
            piece = bytes(self._waiting[: min(frames.CHUNK, self._room)])
            del self._waiting[: len(piece)]
            self._room -= len(piece)
            self._tell("data", piece)
        elif self._last and not self._waiting:
            self._finish(self._last.popleft())
        else:
            return False
        return True

    def _tell(self, event: str, body: bytes = b"", **more: int) -> None:
        header = {"id": 0, "op": "stream", "event": event, "stream": self._number, **more}
        self._carrier.wire.send(header, body)

    def _finish(self, event: str) -> None:
        self._tell(event)
        if event != "end":
            self._carrier.forget(self._number)
            self.lose(None)

    # a transport's

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
            if self._carrier.stopped:
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
        """Nothing can be said to the protocol from here on but this."""
        if not self._lost:
            self._stop_reading()
            self._lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


def _natural(header: Mapping[str, Any], name: str) -> int:
    value = header[name]
    if not isinstance(value, int) or value < 1:
        raise FrameError(f"{name} is {value!r:.40}")
    return value
