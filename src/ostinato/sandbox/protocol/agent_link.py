"""The agent's end of its connection: frames over two file descriptors, of one generation at a time."""

import os
import select
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ostinato.sandbox.protocol import frames

Act = Callable[[int], None]


class Link:
    """Reads requests from one descriptor, writes answers to another (the same one, for a socket)."""

    def __init__(self, incoming: int, outgoing: int, generation: str) -> None:
        self.incoming = incoming
        self.generation = generation
        self._outgoing = outgoing
        self._reader = frames.Reader()
        self.open = True

    def receive(self) -> Iterator[frames.Frame]:
        """The requests that have arrived, of this generation or beginning another; sets `open` at the end.

        One at a time: what precedes a `hello` is answered in the old generation.
        """
        data = self._read()
        self.open = bool(data)
        self._reader.feed(data)
        while (frame := self._reader.next()) is not None:
            header = frame[0]
            if header.get("op") == "hello":
                self.generation = header["generation"]
            if header.get("generation") == self.generation:
                yield frame

    def _read(self) -> bytes:
        try:
            return os.read(self.incoming, frames.CHUNK)
        except ConnectionError:
            return b""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Waits while the other side does not read; when it is gone, `open` is False from then on."""
        view = memoryview(frames.pack({**header, "generation": self.generation}, body))
        try:
            while view:
                view = view[os.write(self._outgoing, view) :]
        except (BrokenPipeError, ConnectionError):
            self.open = False


class Watch:
    """Who is called when a descriptor is ready."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._acts: dict[int, Act] = {}

    def add(self, fd: int, events: int, act: Act) -> None:
        self._poll.register(fd, events)
        self._acts[fd] = act

    def remove(self, fd: int) -> None:
        if self._acts.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def turn(self, patience_s: float | None) -> None:
        """Wait for whatever comes first, then call all that are ready."""
        for fd, events in self._poll.poll(None if patience_s is None else patience_s * 1000):
            act = self._acts.get(fd)
            if act is not None:  # an earlier one of this turn may have taken it away
                act(events)
