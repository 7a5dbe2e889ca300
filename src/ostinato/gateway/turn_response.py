"""The ASGI response to a model call: sends the answer, and stops the work when the client leaves."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, nullcontext
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from ostinato.gateway.dialects.base import Answer, Dialect, ReplyEvents, headers_of
from ostinato.gateway.errors import ApiError, stopping
from ostinato.gateway.metrics import Metrics
from ostinato.gateway.tokens.text_stream import TextStream
from ostinato.gateway.turns import ModelCall, Plan, Turns
from ostinato.types import Completion

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
PING_S = 10.0
"""Seconds of silence after which a stream sends a ping, so that nobody takes it for dead."""


class TurnResponse:
    """The response to one request. A client that leaves cancels it, which frees the engine's slot."""

    def __init__(self, turns: Turns, call: ModelCall, dialect: Dialect, metrics: Metrics) -> None:
        self._turns = turns
        self._call = call
        self._dialect = dialect
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.current_task()
        assert work is not None
        watch = asyncio.create_task(_disconnected(receive))
        watch.add_done_callback(lambda watch: watch.cancelled() or work.cancel())
        sender = _Sender(send)
        try:
            await self._answer(sender)
        except asyncio.CancelledError:
            work.uncancel()
            if watch.done():
                self._metrics.cancelled()
            else:  # the server is stopping, and the client is still there
                await sender.refuse(stopping(), self._dialect)
        finally:
            watch.cancel()

    async def _answer(self, sender: "_Sender") -> None:
        """Make the turns of a client that numbers them one after another; others may overlap."""
        conversation = self._call.conversation
        conversation.waiting += 1
        order = nullcontext() if self._call.identity.turn is None else conversation.order
        try:
            async with order, self._turns.turn(self._call) as plan:
                await (self._streamed if self._call.chat.stream else self._whole)(plan, sender)
        except ApiError as error:
            await sender.refuse(error, self._dialect)
        finally:
            conversation.waiting -= 1

    async def _whole(self, plan: Plan | Answer, sender: "_Sender") -> None:
        if isinstance(plan, Plan):
            answer = await self._finish(plan, await self._turns.generate(self._call, plan))
        else:
            answer = plan
        body = self._dialect.whole(self._call.chat, answer)
        await sender.start(200, JSON | headers_of(answer.turn) | {"content-length": str(len(body))})
        await sender.body(body, last=True)

    async def _streamed(self, plan: Plan | Answer, sender: "_Sender") -> None:
        if isinstance(plan, Plan):
            await self._stream(plan, sender)
            return
        turn = plan.turn
        events = self._events(turn.id, turn.started_at, len(turn.prompt_ids))
        await sender.start(200, EVENTS | headers_of(turn))
        await sender.body(events.first() + events.last(plan, ""), last=True)

    async def _stream(self, plan: Plan, sender: "_Sender") -> None:
        request = plan.request
        events = self._events(request.request_id, plan.started_at, len(request.prompt_ids))
        text = TextStream(self._turns.renderer, self._call.chat.stop)
        self._call.timing.wait_for_engine()
        async with aclosing(self._turns.stream(self._call, plan)) as sampled, _Pings(sender):
            async for event in sampled:
                begun = b"" if sender.started else await self._begin(plan, sender, events)
                if isinstance(event, Completion):
                    answer = await self._finish(plan, event)
                    await sender.body(begun + events.last(answer, text.sent), last=True)
                    return
                piece = text.add([token.id for token in event])
                if begun or piece:
                    await sender.body(begun + (events.text(piece) if piece else b""))

    async def _begin(self, plan: Plan, sender: "_Sender", events: ReplyEvents) -> bytes:
        """Send the headers; return the first event, to be sent together with the first token."""
        self._call.timing.engine_replied()
        await sender.stream(EVENTS | _headers_of(plan), events)
        return events.first()

    async def _finish(self, plan: Plan, completion: Completion) -> Answer:
        answer = await self._turns.finish(self._call, plan, completion)
        self._metrics.recorded(answer.turn, self._dialect.name, plan.position.how)
        return answer

    def _events(self, turn_id: str, started_at: float, prompt_tokens: int) -> ReplyEvents:
        return self._dialect.events(self._call.chat, turn_id, started_at, prompt_tokens)


class _Sender:
    """Sends a response in pieces. Until it has started, an error can still have its own status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._events: ReplyEvents | None = None
        self.started = False
        self.quiet = True
        """True while nothing has been sent since this was last set."""

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def stream(self, headers: Mapping[str, str], events: ReplyEvents) -> None:
        await self.start(200, headers)
        self._events = events

    async def body(self, data: bytes, *, last: bool = False) -> None:
        self.quiet = False
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def ping(self) -> None:
        if self._events is not None:
            await self.body(self._events.ping)

    async def refuse(self, error: ApiError, dialect: Dialect) -> None:
        if self._events is not None:
            await self.body(self._events.failed(error), last=True)
        else:
            await self.start(error.status, JSON | error.headers)
            await self.body(dialect.error(error), last=True)


class _Pings:
    """A context in which a silent stream is kept alive with pings."""

    def __init__(self, sender: _Sender) -> None:
        self._sender = sender
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_: Any) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._sender.quiet = True
            await asyncio.sleep(PING_S)
            if self._sender.quiet:
                await self._sender.ping()


def _headers_of(plan: Plan) -> dict[str, str]:
    return {
        "x-ostinato-session": plan.request.session_id,
        "x-ostinato-turn": str(plan.index),
        "x-ostinato-arm": plan.arm.name,
        "x-ostinato-version": str(plan.arm.version),
    }


async def _disconnected(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
