"""Output on its way from a command to its reader, in bounded memory."""

import asyncio
import codecs
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable

from ostinato.sandbox.base import OnOutput, Process
from ostinato.sandbox.protocol.frames import CHUNK
from ostinato.sandbox.protocol.output import Tail


class Stream:
    """What the transport feeds, one reader takes; `taken` hears how many bytes, so that more may come.

    The transport has to hold back what is not taken: this only keeps it. The last `keep` bytes of everything
    stay, for the command's result.
    """

    def __init__(self, keep: int, taken: Callable[[int], None]) -> None:
        self.tail = Tail(keep)
        self._taken = taken
        self._chunks: deque[bytearray] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._read = False
        self._error: Exception | None = None

    def feed(self, data: bytes) -> None:
        """Small pieces are joined: a thousand of one byte would weigh forty times that."""
        self.tail.add(data)
        if self._chunks and len(self._chunks[-1]) + len(data) <= CHUNK:
            self._chunks[-1] += data
        else:
            self._chunks.append(bytearray(data))
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; with an `error` the reader hears of it behind the rest."""
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    async def read(self) -> AsyncIterator[bytes]:
        """Chunks until the end."""
        self._read = True
        try:
            while (chunk := await self._next()) is not None:
                yield chunk
        finally:
            self._read = False
            self._changed.set()

    async def drain(self) -> None:
        """Until the end, taking what no reader takes."""
        while not self._ended:
            if self._read:
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
        self._taken(len(chunk))
        return bytes(chunk)


async def follow(process: Process, on_output: OnOutput) -> None:
    """Give a command's output to a listener as text, until its end; when the listener fails, or nobody waits
    any more, the command is killed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        async for data in process.output():
            on_output(decoder.decode(data))
    except BaseException:
        await process.signal(signal.SIGKILL)
        raise
