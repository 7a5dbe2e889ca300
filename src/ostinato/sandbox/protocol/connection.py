"""The backend's end of an agent's connection: many requests at a time, each with a deadline."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.sandbox.base import ChangesError, EndedWithinError, SandboxError, SandboxPathError
from ostinato.sandbox.protocol import frames

Answer = frames.Frame
Heard = Callable[[dict[str, Any], bytes], None]
_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(FileNotFoundError, IsADirectoryError, NotADirectoryError),
        *(SandboxError, SandboxPathError, ChangesError, EndedWithinError),
    )
}


@dataclass(slots=True, kw_only=True)
class Pending:
    """A request that is not answered yet."""

    number: int
    answer: "asyncio.Future[Answer]"
    heard: Heard | None
    within_s: float
    most: int
    """Bytes that the answer's body may have."""
    told: int
    """Bytes that the body of a frame before the answer may have."""
    timer: asyncio.TimerHandle | None = None


class LostError(SandboxError):
    """The connection ended, and nobody on our side wanted it to."""


class LateError(SandboxError):
    """The sandbox did not answer in time."""


class Aside(Protocol):
    """Who hears what an agent says without having been asked, behind its first frame."""

    def heard(self, header: Mapping[str, Any], body: bytes) -> None:
        """An event with id 0; raises FrameError for what no honest agent says, which ends the sandbox."""
        ...

    def free(self) -> None:
        """The wire takes more again."""
        ...

    def ended(self) -> None:
        """Nothing is heard any more."""
        ...


class Wire(asyncio.Protocol):
    """A connection that answers each `ask` with the agent's answer to it.

    After a lost connection or a missed deadline the sandbox is gone: every further call raises SandboxError.
    `seek`: skip what precedes the first frame (see `frames.Reader`).
    """

    def __init__(self, generation: str, *, seek: bool = False) -> None:
        self._generation = generation
        self._reader = frames.Reader(seek=seek, header=frames.SMALL, room=self._room)
        self._transport: asyncio.WriteTransport | None = None
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._held: list[bytes] | None = None
        self._full = False
        self._aside: Aside | None = None
        self._gone: str | None = None
        self._error: type[SandboxError] = SandboxError
        self._first: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._first = asyncio.get_running_loop().create_future()
        self._pending[0] = Pending(
            number=0, answer=self._first, heard=None, within_s=0, most=frames.SMALL, told=0
        )

    def attach(self, aside: Aside) -> None:
        self._aside = aside

    async def first(self, within_s: float) -> None:
        """Wait for the frame that the agent sends unasked; raises SandboxError with the reason it gives."""
        if self._first is None:
            raise SandboxError("the sandbox is not connected")
        pending = self._pending.get(0)
        if pending is not None:
            self._arm(pending, within_s)
        _checked(await self._first)

    async def hello(self, generation: str, within_s: float) -> None:
        """Begin another generation: what is still on its way in the old one is dropped."""
        self._generation = generation
        await self.ask({"op": "hello"}, within_s=within_s)

    async def ask(
        self,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        within_s: float,
        heard: Heard | None = None,
        most: int = frames.SMALL,
        told: int = frames.CHUNK,
    ) -> Answer:
        """Send a request, wait for its answer; `heard` is given the frames that come before it.

        `most`, `told`: bytes that the answer and each of those frames may have; more ends the sandbox. Raises
        what the agent raised, SandboxError when it is gone. Cancelled, the answer is dropped.
        """
        pending = self.begin(header, body, within_s=within_s, heard=heard, most=most, told=told)
        try:
            return _checked(await pending.answer)
        except asyncio.CancelledError:
            self._forget(pending.number)
            raise

    def begin(
        self,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        within_s: float,
        heard: Heard | None = None,
        most: int = frames.SMALL,
        told: int = frames.CHUNK,
    ) -> Pending:
        """Send a request; gives what `answer` waits for."""
        if self._gone is not None or self._transport is None:
            raise self._error(self._gone or "the sandbox is not connected")
        future = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        pending = Pending(number=number, answer=future, heard=heard, within_s=within_s, most=most, told=told)
        self._pending[pending.number] = pending
        self._arm(pending, within_s)
        self.send({"id": pending.number, **header}, body)
        return pending

    async def answer(self, pending: Pending) -> Answer:
        """May be awaited again after it was cancelled."""
        return _checked(await asyncio.shield(pending.answer))

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """A frame without an answer; nothing is sent when the sandbox is gone."""
        frame = frames.pack({**header, "generation": self._generation}, body)
        if self._held is not None:
            self._held.append(frame)
        elif self._gone is None and self._transport is not None:
            self._transport.write(frame)

    @property
    def free(self) -> bool:
        """Whether what is sent now leaves soon; what is sent all the same waits in memory."""
        return self._held is None and not self._full and self._transport is not None

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._tell_free()

    def _tell_free(self) -> None:
        if self._aside is not None and self.free:
            self._aside.free()

    def hold(self) -> None:
        """Keep back what is sent from now on, until `release`: the other side is to stand still."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        if self._gone is None and self._transport is not None:
            self._transport.writelines(held)
            self._tell_free()

    def _arm(self, pending: Pending, within_s: float) -> None:
        late = "the sandbox did not answer in time and was ended: create another"
        pending.timer = asyncio.get_running_loop().call_later(within_s, self.end, late, LateError)

    def _forget(self, number: int) -> Pending | None:
        pending = self._pending.pop(number, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()
        return pending

    def pause(self) -> None:
        """The deadlines of what is under way wait until `resume`, and begin anew then."""
        for pending in self._pending.values():
            if pending.timer is not None:
                pending.timer.cancel()
                pending.timer = None

    def resume(self) -> None:
        for pending in self._pending.values():
            if pending.timer is None and pending.within_s:  # without: nobody waits for the first frame
                self._arm(pending, pending.within_s)

    async def close(self, reason: str) -> None:
        """`end`, and give the event loop its turn to close the connection."""
        self.end(reason)
        await asyncio.sleep(0)

    def end(self, reason: str, kind: type[SandboxError] = SandboxError) -> None:
        """Hang up: the agent exits, and everything in the sandbox with it."""
        if self._gone is None:
            self._gone, self._error = reason, kind
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for number in tuple(self._pending):
            pending = self._forget(number)
            if pending is not None and not pending.answer.done():
                pending.answer.set_exception(kind(self._gone))
                pending.answer.exception()  # whoever waits hears of it, nobody else has to
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.ended()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._deliver()

    def connection_lost(self, _: Exception | None) -> None:
        if self._transport is not None and self._transport.is_closing():
            self._transport = None  # a pipe's must not be aborted once more
        self.end("the sandbox died (its agent or the zygote was killed): create another", LostError)

    def _deliver(self) -> None:
        try:
            while (frame := self._reader.next()) is not None:
                self._take(*frame)
        except (frames.FrameError, LookupError, TypeError, ValueError) as error:
            self.end(f"the sandbox's agent does not speak the protocol ({error}): create another")

    def _room(self, header: dict[str, Any]) -> int | None:
        """See `frames.Room`: what nobody waits for is not kept, what is waited for has its bound."""
        if header.get("generation") != self._generation:
            return None
        if header["id"] == 0 and "event" in header:
            return None if self._aside is None else frames.CHUNK
        pending = self._pending.get(header["id"])
        if pending is None or ("event" in header and pending.heard is None):
            return None
        return pending.told if "event" in header else pending.most

    def _take(self, header: dict[str, Any], body: bytes) -> None:
        pending = self._pending.get(header["id"])
        if header.get("generation") != self._generation:
            return
        if header["id"] == 0 and "event" in header:
            if self._aside is not None:
                self._aside.heard(header, body)
        elif pending is None:
            return  # nobody waits for it any more
        elif "event" not in header:
            self._forget(pending.number)
            pending.answer.set_result((header, body))
        elif pending.heard is not None:
            pending.heard(header, body)


def _checked(answer: Answer) -> Answer:
    header = answer[0]
    if "error" in header:
        kind = _ERRORS.get(header["error"], SandboxError)
        raise kind(header["message"])
    return answer
