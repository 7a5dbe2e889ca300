"""The agent's end of its connection: frames over two file descriptors, and a poll loop."""

import os
import select
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ostinato.sandbox.protocol import frames

Callback = Callable[[int], None]


class AgentLink:
    """Reads requests from one descriptor and writes responses to another (for a socket the same one)."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self._outgoing = outgoing
        self._reader = frames.FrameReader()
        self.open = True

    def receive(self) -> Iterator[frames.Frame]:
        """Yield the requests that have arrived; at the end of the input `open` becomes False."""
        data = self._read()
        self.open = bool(data)
        self._reader.feed(data)
        while (frame := self._reader.next()) is not None:
            yield frame

    def _read(self) -> bytes:
        try:
            return os.read(self.incoming, frames.CHUNK)
        except ConnectionError:
            return b""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame, waiting while the other side does not read; once that is gone, `open` is False."""
        frame = frames.pack(header, body)
        try:
            frames.write_all(self._outgoing, frame)
        except (BrokenPipeError, ConnectionError):
            self.open = False


class Poller:
    """Calls a function when its file descriptor is ready: a loop without asyncio, which is slow to load."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callback] = {}

    def add(self, fd: int, events: int, callback: Callback) -> None:
        self._poll.register(fd, events)
        self._callbacks[fd] = callback

    def remove(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def poll_once(self, timeout_s: float | None) -> None:
        """Wait until at least one descriptor is ready, then call the functions of all that are."""
        for fd, events in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            callback = self._callbacks.get(fd)
            if callback is not None:  # an earlier callback may have removed it
                callback(events)
