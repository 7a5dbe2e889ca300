"""The ASGI side of an answer: sends it, and stops the work behind it when the client goes away."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from starlette.types import Message, Receive, Scope, Send

from ostinato.gateway.errors import ApiError
from ostinato.gateway.replies import Chunks, TextStream, body_of, headers_of
from ostinato.gateway.turns import Answer, Call, Plan, Turns
from ostinato.types import Completion

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


class Reply:
    """Answers one chat request. A client that leaves cancels it, which frees the engine's slot."""

    def __init__(self, turns: Turns, call: Call) -> None:
        self._turns = turns
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._streamed if self._call.chat.stream else self._whole
        work = asyncio.ensure_future(answer(_Sender(send)))
        watch = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if not work.done():
                work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled():
            work.result()

    async def _whole(self, sender: "_Sender") -> None:
        try:
            async with self._call.conversation.lock:
                plan = await self._turns.begin(self._call)
                if isinstance(plan, Plan):
                    answer = await self._turns.finish(self._call, plan, await self._turns.generate(plan))
                else:
                    answer = plan
        except ApiError as error:
            await sender.error(error)
            return
        await sender.start(200, JSON | headers_of(answer.turn))
        await sender.body(body_of(answer), last=True)

    async def _streamed(self, sender: "_Sender") -> None:
        try:
            async with self._call.conversation.lock:
                plan = await self._turns.begin(self._call)
                if isinstance(plan, Plan):
                    await self._stream(plan, sender)
                else:
                    await self._tell(plan, sender)
        except ApiError as error:
            await sender.error(error)

    async def _tell(self, answer: Answer, sender: "_Sender") -> None:
        chunks = self._chunks(answer.turn.id, answer.turn.started_at)
        await sender.start(200, EVENTS | headers_of(answer.turn))
        await sender.body(chunks.first() + chunks.last(answer, ""), last=True)

    async def _stream(self, plan: Plan, sender: "_Sender") -> None:
        chunks = self._chunks(plan.request.request_id, plan.started_at)
        text = TextStream(self._turns.renderer)
        async with aclosing(self._turns.stream(plan)) as events:
            async for event in events:
                if not sender.started:
                    await sender.start(200, EVENTS | _headers_of(plan))
                    await sender.body(chunks.first())
                if isinstance(event, Completion):
                    answer = await self._turns.finish(self._call, plan, event)
                    await sender.body(chunks.last(answer, text.said), last=True)
                elif piece := text.add((event.id,)):
                    await sender.body(chunks.text(piece))

    def _chunks(self, turn_id: str, started_at: float) -> Chunks:
        return Chunks(turn_id, started_at, include_usage=self._call.chat.include_usage)


class _Sender:
    """Sends a response in pieces and knows whether it began: until then an error can have its own status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def body(self, data: bytes, *, last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def error(self, error: ApiError) -> None:
        if self.started:
            await self.body(b"data: " + error.encoded() + b"\n\n", last=True)
        else:
            await self.start(error.status, JSON | error.headers)
            await self.body(error.encoded(), last=True)


def _headers_of(plan: Plan) -> dict[str, str]:
    return {
        "x-ostinato-session": plan.request.session_id,
        "x-ostinato-turn": str(plan.index),
        "x-ostinato-arm": plan.arm.name,
        "x-ostinato-version": str(plan.arm.version),
    }


async def _gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
