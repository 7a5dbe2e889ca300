"""The backend's end of the connection to an agent: many requests at a time, each with a deadline."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.sandbox.base import (
    ChangesError,
    EndedWithinError,
    MachineRefusesError,
    SandboxError,
    SandboxPathError,
)
from ostinato.sandbox.protocol import frames

Response = frames.Frame
OnEvent = Callable[[dict[str, Any], bytes], None]
_ERRORS: Mapping[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(FileNotFoundError, IsADirectoryError, NotADirectoryError),
        *(SandboxError, SandboxPathError, ChangesError, EndedWithinError, MachineRefusesError),
    )
}


@dataclass(slots=True, kw_only=True)
class PendingRequest:
    """A request that has no response yet."""

    number: int
    response: "asyncio.Future[Response]"
    on_event: OnEvent | None
    within_s: float
    """The deadline, in seconds from now; 0: none yet."""
    max_body: int
    """The most bytes that the body of the response may have."""
    max_event: int
    """The most bytes that the body of a frame before the response may have."""
    timer: asyncio.TimerHandle | None = None


class ConnectionLostError(SandboxError):
    """The connection ended although this side did not close it."""


class ResponseTimeoutError(SandboxError):
    """The sandbox did not respond in time."""


class AgentConnection(asyncio.Protocol):
    """A connection that pairs each request with the agent's response.

    After a lost connection or a missed deadline the sandbox is gone: every further call raises SandboxError.
    """

    def __init__(self) -> None:
        self._reader = frames.FrameReader(max_header=frames.SMALL, max_body=self._max_body)
        self._transport: asyncio.WriteTransport | None = None
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        self._end_reason: str | None = None
        self._error: type[SandboxError] = SandboxError
        self._ready: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._ready = asyncio.get_running_loop().create_future()
        self._pending[0] = PendingRequest(
            number=0, response=self._ready, on_event=None, within_s=0, max_body=frames.SMALL, max_event=0
        )

    async def wait_until_ready(self, within_s: float) -> None:
        """Wait for the frame that the agent sends first; raises SandboxError with the reason in it."""
        if self._ready is None:
            raise SandboxError("the sandbox is not connected")
        pending = self._pending.get(0)
        if pending is not None:
            self._start_timer(pending, within_s)
        _checked(await self._ready)

    async def request(
        self, header: Mapping[str, Any], body: bytes = b"", *, within_s: float, max_body: int = frames.SMALL
    ) -> Response:
        """Send a request and wait for its response, whose body may have `max_body` bytes.

        A longer body ends the sandbox. Raises the error that the agent responds with, and SandboxError when
        the sandbox is gone. When this call is cancelled the response is dropped.
        """
        return await self._wait(self.send_request(header, body, within_s=within_s, max_body=max_body))

    async def request_events(
        self, header: Mapping[str, Any], on_event: OnEvent, *, within_s: float, max_event: int
    ) -> Response:
        """Send a request, pass the frames before its response to `on_event`; otherwise as `request`."""
        pending = self.send_request(header, within_s=within_s, on_event=on_event, max_event=max_event)
        return await self._wait(pending)

    async def _wait(self, pending: PendingRequest) -> Response:
        try:
            return _checked(await pending.response)
        except asyncio.CancelledError:
            self._forget(pending.number)
            raise

    def send_request(
        self,
        header: Mapping[str, Any],
        body: bytes = b"",
        *,
        within_s: float,
        on_event: OnEvent | None = None,
        max_body: int = frames.SMALL,
        max_event: int = frames.CHUNK,
    ) -> PendingRequest:
        """Send a request and return at once; `response` waits for what it returns."""
        if self._end_reason is not None or self._transport is None:
            raise self._error(self._end_reason or "the sandbox is not connected")
        pending = PendingRequest(
            number=next(self._numbers),
            response=asyncio.get_running_loop().create_future(),
            on_event=on_event,
            within_s=within_s,
            max_body=max_body,
            max_event=max_event,
        )
        self._pending[pending.number] = pending
        self._start_timer(pending, within_s)
        self.send({"id": pending.number, **header}, body)
        return pending

    async def response(self, pending: PendingRequest) -> Response:
        """Wait for the response; the call may be cancelled and made again."""
        return _checked(await asyncio.shield(pending.response))

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame that has no response; nothing is sent when the sandbox is gone."""
        if self._end_reason is None and self._transport is not None:
            self._transport.write(frames.pack(header, body))

    def _start_timer(self, pending: PendingRequest, within_s: float) -> None:
        reason = "the sandbox did not respond in time and was ended: create another"
        loop = asyncio.get_running_loop()
        pending.timer = loop.call_later(within_s, self.end, reason, ResponseTimeoutError)

    def _forget(self, number: int) -> PendingRequest | None:
        pending = self._pending.pop(number, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()
        return pending

    def pause(self) -> None:
        """Stop the deadlines of all pending requests until `resume`, which starts them anew."""
        for pending in self._pending.values():
            if pending.timer is not None:
                pending.timer.cancel()
                pending.timer = None

    def resume(self) -> None:
        for pending in self._pending.values():
            if pending.timer is None and pending.within_s:  # without: nothing waits for the first frame
                self._start_timer(pending, pending.within_s)

    async def close(self, reason: str) -> None:
        """Call `end`, then let the event loop close the connection."""
        self.end(reason)
        await asyncio.sleep(0)

    def end(self, reason: str, kind: type[SandboxError] = SandboxError) -> None:
        """Hang up: the agent exits, and everything in the sandbox with it."""
        if self._end_reason is None:
            self._end_reason, self._error = reason, kind
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for number in tuple(self._pending):
            pending = self._forget(number)
            if pending is not None and not pending.response.done():
                pending.response.set_exception(kind(self._end_reason))
                pending.response.exception()  # marked as seen: only a caller that waits has to handle it

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (frame := self._reader.next()) is not None:
                self._dispatch(*frame)
        except (frames.FrameError, LookupError, TypeError, ValueError) as error:
            self.end(f"the sandbox's agent does not speak the protocol ({error}): create another")

    def connection_lost(self, _: Exception | None) -> None:
        if self._transport is not None and self._transport.is_closing():
            self._transport = None  # a pipe's transport must not be aborted a second time
        self.end("the sandbox died (its agent or the zygote was killed): create another", ConnectionLostError)

    def _max_body(self, header: dict[str, Any]) -> int | None:
        """Return the bound for a body (see `frames.MaxBody`); None drops a frame that nothing waits for."""
        pending = self._pending.get(header["id"])
        if pending is None or ("event" in header and pending.on_event is None):
            return None
        return pending.max_event if "event" in header else pending.max_body

    def _dispatch(self, header: dict[str, Any], body: bytes) -> None:
        pending = self._pending.get(header["id"])
        if pending is None:
            return  # its request was cancelled
        if "event" not in header:
            self._forget(pending.number)
            if not pending.response.done():  # else cancelled, and its waiter has yet to run
                pending.response.set_result((header, body))
        elif pending.on_event is not None:
            pending.on_event(header, body)


def _checked(response: Response) -> Response:
    header = response[0]
    if "error" in header:
        kind = _ERRORS.get(header["error"], SandboxError)
        raise kind(header["message"])
    return response
