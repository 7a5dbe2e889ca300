"""At the door of a guest: programs connect to a proxy on the guest's own loopback, and what they say is
carried out as frames (see `frames`); the proxy is outside, behind the backend's end (`egress.carried`).

    program ──127.0.0.1:3128──► Porter ──frames: opened, data, end──► backend
            ◄───────────────────       ◄──frames: data, taken, close──

Neither side is ever ahead of the other by more than `frames.WINDOW` bytes a connection.
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
from ostinato.sandbox.protocol.agent_link import Watch

_BACKLOG = 64
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` reset the connection."""
Tell = Callable[[Mapping[str, Any], bytes], None]


@dataclass(slots=True, kw_only=True)
class Visitor:
    """A program's connection."""

    number: int
    socket: socket.socket
    credit: int = frames.WINDOW
    """How much more may be carried out before some of it is taken."""
    waiting: bytearray = field(default_factory=bytearray)
    """For the program."""
    silent: bool = False
    """The program says no more."""
    ending: bool = False
    """Nothing more comes for the program."""
    closing: bool = False
    """Nobody listens to it either."""


class Porter:
    """All of them. `trust`: a file, open to append to, in which programs look for whom to trust."""

    def __init__(self, watch: Watch, tell: Tell, trust: int) -> None:
        self._watch = watch
        self._tell = tell
        self._trust = trust
        self._door: socket.socket | None = None
        self._most = 0
        self._told: Mapping[str, str] = {}
        self._visitors: dict[int, Visitor] = {}
        self._numbers = itertools.count(1)

    def trust(self, data: bytes) -> None:
        """More of the certificates that programs are to trust; `cut` takes back what there was."""
        frames.write_all(self._trust, data)

    def open(self, door: Mapping[str, Any]) -> None:
        """Let programs in, at most `door["most"]` at a time. Raises OSError, SandboxError."""
        self._forget_told()
        if self._door is None:
            self._door = _listen(*door["address"])
        self._most, self._told = door["most"], door["environment"]
        os.environ.update(self._told)
        self._look_out()

    def shut(self) -> None:
        """There is no way out: whoever waits at the door is turned away."""
        self._forget_told()
        if self._door is not None:
            self._watch.remove(self._door.fileno())
            self._door.close()
            self._door = None

    def _forget_told(self) -> None:
        for name in self._told:
            os.environ.pop(name, None)
        self._told = {}

    def cut(self) -> None:
        """Whoever heard them is gone: all connections are reset, and new ones wait for `open` or `shut`."""
        for visitor in tuple(self._visitors.values()):
            self._reset(visitor)
        if self._door is not None:
            self._watch.remove(self._door.fileno())
        os.ftruncate(self._trust, 0)

    def hear(self, request: Mapping[str, Any], body: bytes) -> None:
        """What the backend says of one connection, if it is still there."""
        visitor = self._visitors.get(request["stream"])
        if visitor is None:
            return
        match request["event"]:
            case "data":
                visitor.waiting += body
            case "taken":
                visitor.credit += request["bytes"]
            case "end":
                visitor.ending = True
            case "close":
                visitor.closing = True
            case "cut":
                self._reset(visitor)
                return
        self._pour(visitor)

    def _look_out(self) -> None:
        """For the next, while there is room for one."""
        if self._door is None or not self._most:
            return
        if len(self._visitors) < self._most:
            self._watch.add(self._door.fileno(), select.POLLIN, self._admit)
        else:
            self._watch.remove(self._door.fileno())

    def _admit(self, _: int) -> None:
        assert self._door is not None
        try:
            connection, _ = self._door.accept()
        except OSError:  # it has left again
            return
        connection.setblocking(False)
        visitor = Visitor(number=next(self._numbers), socket=connection)
        self._visitors[visitor.number] = visitor
        self._say(visitor, "opened")
        self._attend(visitor)
        self._look_out()

    def _say(self, visitor: Visitor, event: str, body: bytes = b"", **more: int) -> None:
        self._tell({"id": 0, "event": event, "stream": visitor.number, **more}, body)

    def _attend(self, visitor: Visitor) -> None:
        """Wait for whatever can be done next."""
        wanted = select.POLLIN if self._hears(visitor) else 0
        wanted |= select.POLLOUT if visitor.waiting else 0
        if wanted:
            self._watch.add(visitor.socket.fileno(), wanted, partial(self._move, visitor))
        else:  # else its end would be told again and again
            self._watch.remove(visitor.socket.fileno())

    def _move(self, visitor: Visitor, events: int) -> None:
        if visitor.waiting and events & ~select.POLLIN:
            self._pour(visitor)
        if events & ~select.POLLOUT and self._hears(visitor):
            self._take(visitor)

    def _hears(self, visitor: Visitor) -> bool:
        there = visitor.number in self._visitors
        return there and visitor.credit > 0 and not visitor.silent and not visitor.closing

    def _take(self, visitor: Visitor) -> None:
        """Carry out what the program says."""
        try:
            data = visitor.socket.recv(min(frames.CHUNK, visitor.credit))
        except BlockingIOError:
            return
        except OSError:
            self._lose(visitor)
            return
        visitor.credit -= len(data)
        visitor.silent = not data
        self._say(visitor, "data" if data else "end", data)
        self._attend(visitor)

    def _pour(self, visitor: Visitor) -> None:
        """Give the program what it takes now."""
        try:
            count = visitor.socket.send(visitor.waiting) if visitor.waiting else 0
        except BlockingIOError:
            count = 0
        except OSError:
            self._lose(visitor)
            return
        del visitor.waiting[:count]
        if count:
            self._say(visitor, "taken", bytes=count)
        if visitor.closing and not visitor.waiting:
            self._forget(visitor)
            return
        if visitor.ending and not visitor.waiting:
            with suppress(OSError):  # it is gone: whoever reads from it hears of that
                visitor.socket.shutdown(socket.SHUT_WR)
        self._attend(visitor)

    def _lose(self, visitor: Visitor) -> None:
        self._say(visitor, "close")
        self._forget(visitor)

    def _reset(self, visitor: Visitor) -> None:
        with suppress(OSError):
            visitor.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._forget(visitor)

    def _forget(self, visitor: Visitor) -> None:
        self._watch.remove(visitor.socket.fileno())
        visitor.socket.close()
        del self._visitors[visitor.number]
        self._look_out()


def _listen(host: str, port: int) -> socket.socket:
    door = socket.socket()
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        door.listen(_BACKLOG)
        door.setblocking(False)
    except OSError as error:
        door.close()
        raise SandboxError(f"no door to the proxy at {host}:{port}: {error}") from error
    return door
