"""The output of a command on its way to one reader."""

import asyncio
import codecs
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable

from ostinato.sandbox.base import OnOutput, Process
from ostinato.sandbox.protocol.frames import CHUNK
from ostinato.sandbox.protocol.output import OutputTail


class OutputStream:
    """A queue of output that a transport feeds and one reader takes.

    `on_taken` is called with the number of bytes that the reader took, so that the transport can send more.
    The transport has to bound what it feeds ahead of the reader; the queue itself has no bound. The last
    `keep` bytes of all output stay in `tail`, for the command's result.
    """

    def __init__(self, keep: int, on_taken: Callable[[int], None]) -> None:
        self.tail = OutputTail(keep)
        self._on_taken = on_taken
        self._chunks: deque[bytearray] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._has_reader = False
        self._error: Exception | None = None

    def feed(self, data: bytes) -> None:
        """Add output. Small pieces are joined: a thousand of one byte would need forty times the memory."""
        self.tail.add(data)
        if self._chunks and len(self._chunks[-1]) + len(data) <= CHUNK:
            self._chunks[-1] += data
        else:
            self._chunks.append(bytearray(data))
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Note that nothing more comes; an `error` is raised to the reader behind the rest of the output."""
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield chunks until the end."""
        self._has_reader = True
        try:
            while (chunk := await self._next()) is not None:
                yield chunk
        finally:
            self._has_reader = False
            self._changed.set()

    async def drain(self) -> None:
        """Wait for the end, and take the output as long as no reader does."""
        while not self._ended:
            if self._has_reader:
                self._changed.clear()
                await self._changed.wait()
            else:
                await self._next()

    async def _next(self) -> bytes | None:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._on_taken(len(chunk))
        return bytes(chunk)


async def follow(process: Process, on_output: OnOutput) -> None:
    """Pass a command's output as text to `on_output` until its end.

    The command is killed when `on_output` fails or this call is cancelled.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    try:
        async for data in process.output():
            on_output(decoder.decode(data))
    except BaseException:
        await process.signal(signal.SIGKILL)
        raise
