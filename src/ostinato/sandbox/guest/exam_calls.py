"""What a judge asks and an exam's worker answers, on its way through the agent of a guest."""

import os
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.sandbox.protocol.agent_link import Watch
from ostinato.sandbox.protocol.frames import CHUNK

Tell = Callable[[Mapping[str, Any], bytes], None]


class Calls:
    """The worker at the other end of `sock`, as a command's output and input under the request's `number`.

    Of its answers no more than `window` bytes are told without another credit. What it does not read is kept:
    the backend gives it no more than a window at a time. Neither ever makes the agent wait.
    """

    def __init__(self, number: int, sock: socket.socket, window: int, watch: Watch, tell: Tell) -> None:
        self.number = number
        self._sock = sock
        self._window = window
        self._watch = watch
        self._tell = tell
        self._waiting = bytearray()
        self._ended = False
        sock.setblocking(False)
        self._attend()

    def credit(self, count: int) -> None:
        """The judge read so many bytes."""
        self._window += count
        self._attend()

    def feed(self, data: bytes) -> None:
        """What the judge asks."""
        if self._ended:
            self._refuse(len(data))
            return
        self._waiting += data
        self._pour()

    def _refuse(self, count: int) -> None:
        self._tell({"id": self.number, "event": "taken", "bytes": count, "broken": True}, b"")

    def _attend(self) -> None:
        """Wait for what can be done next."""
        if self._ended:
            return
        wanted = (select.POLLIN if self._window else 0) | (select.POLLOUT if self._waiting else 0)
        self._watch.remove(self._sock.fileno())
        if wanted:
            self._watch.add(self._sock.fileno(), wanted, self._move)

    def _move(self, events: int) -> None:
        if self._waiting and events & ~select.POLLIN:
            self._pour()
        if self._window and events & ~select.POLLOUT and not self._ended:
            self._hear()

    def _hear(self) -> None:
        try:
            data = os.read(self._sock.fileno(), min(CHUNK, self._window))
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._end()
            return
        self._window -= len(data)
        self._tell({"id": self.number, "event": "output"}, data)
        self._attend()

    def _pour(self) -> None:
        """Write what the worker takes now."""
        try:
            count = self._sock.send(self._waiting) if self._waiting else 0
        except BlockingIOError:
            count = 0
        except OSError:  # it reads no more: what it has said is still to be heard, and then its end
            self._refuse(len(self._waiting))
            self._waiting.clear()
            self._attend()
            return
        del self._waiting[:count]
        if count:
            self._tell({"id": self.number, "event": "taken", "bytes": count}, b"")
        self._attend()

    def _end(self) -> None:
        self._ended = True
        self._watch.remove(self._sock.fileno())
        self._sock.close()
        self._tell({"id": self.number}, b"")
