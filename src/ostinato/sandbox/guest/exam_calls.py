"""Carries an exam's calls between the judge and the worker through the agent of a container."""

import os
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.sandbox.protocol.agent_link import Poller
from ostinato.sandbox.protocol.frames import CHUNK

Send = Callable[[Mapping[str, Any], bytes], None]


class ExamCalls:
    """The worker at the other end of `sock`, as a command's output and input under the request's `number`.

    No more than `window` bytes of its output are sent without another credit. Input that it does not read is
    kept: the backend sends no more than a window at a time. Neither ever makes the agent wait.
    """

    def __init__(self, number: int, sock: socket.socket, window: int, poller: Poller, send: Send) -> None:
        self.number = number
        self._sock = sock
        self._window = window
        self._poller = poller
        self._send = send
        self._input = bytearray()
        self._ended = False
        sock.setblocking(False)
        self._poll()

    def credit(self, count: int) -> None:
        """Allow `count` more bytes of output: the judge has read so many."""
        self._window += count
        self._poll()

    def feed(self, data: bytes) -> None:
        """Pass input from the judge on to the worker."""
        if self._ended:
            self._send_broken(len(data))
            return
        self._input += data
        self._write()

    def _send_broken(self, count: int) -> None:
        self._send({"id": self.number, "event": "taken", "bytes": count, "broken": True}, b"")

    def _poll(self) -> None:
        """Poll the socket for what can be done next."""
        if self._ended:
            return
        events = (select.POLLIN if self._window else 0) | (select.POLLOUT if self._input else 0)
        self._poller.remove(self._sock.fileno())
        if events:
            self._poller.add(self._sock.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if self._input and events & ~select.POLLIN:
            self._write()
        if self._window and events & ~select.POLLOUT and not self._ended:
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._sock.fileno(), min(CHUNK, self._window))
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._ended = True
            self._poller.remove(self._sock.fileno())
            self._sock.close()
            self._send({"id": self.number}, b"")
            return
        self._window -= len(data)
        self._send({"id": self.number, "event": "output"}, data)
        self._poll()

    def _write(self) -> None:
        """Write as much input as the worker takes now."""
        try:
            count = self._sock.send(self._input) if self._input else 0
        except BlockingIOError:
            count = 0
        except OSError:  # it reads no more; its output, and then its end, are still to be read
            self._send_broken(len(self._input))
            self._input.clear()
            self._poll()
            return
        del self._input[:count]
        if count:
            self._send({"id": self.number, "event": "taken", "bytes": count}, b"")
        self._poll()
