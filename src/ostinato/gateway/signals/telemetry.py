"""The endpoints by which clients report what became of the model's work: `/feedback`, `/v1/events`,
`/v1/logs`.

    line or record ─► Event ─► known before? whose session? ─► events, signals ─► one commit ─► answer

A reply means that the events are committed. A line that cannot be accepted is named and the others are
accepted; a repeated line is known by its id. A signal needs a recorded session, and a client may report
before its first turn is recorded. So the first time that events of a recorded session arrive, those stored
earlier are read again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ostinato.gateway.access.identity import owned
from ostinato.gateway.access.keys import KeyRing
from ostinato.gateway.access.limits import KeyLimits
from ostinato.gateway.body import encode, parse_json, read_body
from ostinato.gateway.conversation_cache import ConversationCache, check_owner, may_use, owner_of
from ostinato.gateway.errors import ApiError, unavailable
from ostinato.gateway.metrics import Metrics
from ostinato.gateway.offload import offload
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.signals.endings import SessionEndings
from ostinato.gateway.signals.events import RefusedLine, parse_lines, signals_of
from ostinato.gateway.signals.feedback import Feedback, parse_feedback
from ostinato.gateway.signals.otlp import event_of, records
from ostinato.store import KeyChangedError, PurgedError, Store, StoreError
from ostinato.types import ApiKey, Event, Role, Session, Signal, SignalKind

MOST_CAUGHT_UP = 10_000
MULTI_STATUS = 207


class TelemetrySources(Protocol):
    """The parts of a gateway that these endpoints use."""

    store: Store
    keys: KeyRing
    recorder: Recorder
    conversations: ConversationCache
    endings: SessionEndings
    metrics: Metrics
    max_body_bytes: int


Handler = Callable[[Request, ApiKey, bytes], Awaitable[Response]]


def telemetry_routes(gateway: TelemetrySources) -> list[Route]:
    telemetry, limits = Telemetry(gateway), KeyLimits()

    def limited(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint with the limits of its key, which are counted apart from those of model
        calls."""

        async def endpoint(request: Request) -> Response:
            key = await gateway.keys.authenticate(request.headers, Role.FEEDBACK)
            with limits.admitted(key):
                return await handler(request, key, await read_body(request, gateway.max_body_bytes))

        return endpoint

    return [
        Route("/feedback", limited(telemetry.feedback), methods=["POST"]),
        Route("/v1/events", limited(telemetry.events), methods=["POST"]),
        Route("/v1/logs", limited(telemetry.logs), methods=["POST"]),
    ]


class Telemetry:
    """The handlers of the three endpoints. There is one instance for each gateway."""

    def __init__(self, gateway: TelemetrySources) -> None:
        self._gateway = gateway
        self._caught_up: OrderedDict[str, None] = OrderedDict()
        """Sessions whose early events have become signals."""

    async def feedback(self, _: Request, key: ApiKey, body: bytes) -> Response:
        feedback = await self._about(await offload(len(body), lambda: parse_feedback(parse_json(body))), key)
        await self._check(feedback, key)
        signal = feedback.signal
        if not feedback.dryrun:
            await self._commit([signal], _tags_event(feedback, key), key)
            if signal.kind is SignalKind.ENDING:
                self._gateway.conversations.let_go(signal.session_id)
        return encode({"id": signal.id, "feedback_id": signal.id})

    async def events(self, _: Request, key: ApiKey, body: bytes) -> Response:
        parsed = await offload(len(body), lambda: list(parse_lines(body, key)))
        good = [each for each in parsed if not isinstance(each, RefusedLine)]
        refused = [each for each in parsed if isinstance(each, RefusedLine)]
        accepted, conflicts = await self._accept(good, key)
        refused = sorted([*refused, *conflicts], key=lambda each: each.line)
        self._count(taken=accepted, refused=len(refused))
        errors = [{"line": each.line, "message": each.message} for each in refused]
        status = 200 if not errors else MULTI_STATUS if accepted else 422
        response = encode(
            {"accepted": accepted, "errors": errors} | (_all_refused(errors) if status == 422 else {})
        )
        response.status_code = status
        return response

    async def logs(self, request: Request, key: ApiKey, body: bytes) -> Response:
        """Collect OTLP/HTTP logs. The response has the encoding of the request."""
        content_type = request.headers.get("content-type", "application/json")
        now = time.time()

        def read() -> tuple[int, list[Event]]:
            parsed = records(body, content_type)
            return len(parsed), [event for each in parsed if (event := event_of(each, key, now)) is not None]

        received, events = await offload(len(body), read)
        accepted, refused = await self._accept(list(enumerate(events, start=1)), key)
        self._count(taken=accepted, refused=len(refused), ignored=received - len(events))
        if content_type.startswith("application/json"):
            return encode({"partialSuccess": _partial_success(refused)})
        return Response(_partial_success_protobuf(refused), media_type="application/x-protobuf")

    async def _about(self, feedback: Feedback, key: ApiKey) -> Feedback:
        """Return the feedback about the user's own session of that name, under an id that nobody else has."""
        signal = feedback.signal
        session_id = await self._own(signal.session_id, key)
        before = await asyncio.to_thread(self._gateway.store.signal, signal.id)
        other = None if before is None else await self._gateway.conversations.session(before.session_id)
        is_taken = other is not None and not may_use(other, key)
        id = owned(signal.id, key) if is_taken else signal.id
        return replace(feedback, signal=replace(signal, session_id=session_id, id=id))

    async def _own(self, session_id: str, key: ApiKey) -> str:
        """Return the id of the user's own session where two users have one of this name; else the name."""
        named = await self._gateway.conversations.named(session_id, key)
        if named != session_id and await self._gateway.conversations.session(named) is None:
            return session_id
        return named

    async def _check(self, feedback: Feedback, key: ApiKey) -> None:
        """Raise ApiError 404 for a session or turn that is not recorded, 403 for another's, 409 for a
        used id."""
        signal = feedback.signal
        session = await self._gateway.conversations.session(signal.session_id)
        if session is None:
            raise _unknown(f"unknown session {signal.session_id!r}", "session_id")
        check_owner(session, key)
        store = self._gateway.store
        turn = f"{signal.session_id}/{signal.turn}"
        if signal.turn is not None and not await asyncio.to_thread(store.has_turn, turn):
            raise _unknown(f"unknown turn {turn!r}", "turn")
        before = await asyncio.to_thread(store.signal, signal.id)
        if before is not None and _content(before) != _content(signal):
            message = f"feedback {signal.id!r} was given before and said something else: use another id"
            raise ApiError(409, message, code="feedback_conflict", param="id")

    async def _accept(self, lines: Sequence[tuple[int, Event]], key: ApiKey) -> tuple[int, list[RefusedLine]]:
        """Commit the events that may be recorded; return their number and the refused lines.

        An event that was recorded before counts as accepted.
        """
        refused: list[RefusedLine] = []
        before = await self._known(lines)
        renamed = await self._with_own_names(lines, before, key)
        if renamed is not lines:
            lines, before = renamed, await self._known(renamed)
        sessions = {event.session_id for _, event in lines if event.session_id is not None}
        known = {id: await self._gateway.conversations.session(id) for id in sessions}
        purged = await asyncio.to_thread(self._gateway.store.purged, sessions)
        accepted: list[Event] = []
        for line, event in lines:
            why = _id_conflict(event, before) or _session_conflict(event, known, purged, key)
            if why is None:
                accepted.append(event)
            else:
                refused.append(RefusedLine(line=line, message=why))
        if accepted:
            recorded = {id: session for id, session in known.items() if session is not None}
            await self._commit(await self._signals(accepted, recorded), accepted, key)
            await self._end([event for event in accepted if event.session_id in recorded])
        return len(accepted), refused

    async def _known(self, lines: Sequence[tuple[int, Event]]) -> Mapping[str, Event]:
        """Return the events that were recorded before under the ids of these."""
        return await asyncio.to_thread(self._gateway.store.known_events, [event.id for _, event in lines])

    async def _with_own_names(
        self, lines: Sequence[tuple[int, Event]], before: Mapping[str, Event], key: ApiKey
    ) -> Sequence[tuple[int, Event]]:
        """Return the events about the user's own sessions, under ids that nobody else has taken.

        It returns `lines` itself where that changes nothing.
        """
        names = {event.session_id for _, event in lines if event.session_id is not None}
        own = {name: await self._own(name, key) for name in names}
        taken = {id for id, event in before.items() if not may_use(event, key)}
        if not taken and all(name == id for name, id in own.items()):
            return lines
        return [
            (
                line,
                replace(
                    event,
                    id=owned(event.id, key) if event.id in taken else event.id,
                    session_id=event.session_id and own[event.session_id],
                ),
            )
            for line, event in lines
        ]

    async def _signals(self, events: Sequence[Event], recorded: Mapping[str, Session]) -> list[Signal]:
        """Return the signals in `events`, and in events that came before their session was recorded."""
        early: list[Event] = []
        for id in {event.session_id for event in events if event.session_id in recorded}:
            if id is not None and id not in self._caught_up:
                stored = await asyncio.to_thread(self._gateway.store.events, id)
                early += [event for event in stored if owner_of(event) == owner_of(recorded[id])]
                self._caught_up[id] = None
        while len(self._caught_up) > MOST_CAUGHT_UP:
            self._caught_up.popitem(last=False)
        about, now = [event for event in (*early, *events) if event.session_id in recorded], time.time()
        return [signal for event in about for signal in signals_of(event, now)]

    async def _end(self, events: Iterable[Event]) -> None:
        """End the sessions whose agents left without an ending, and drop those that reported one."""
        for event in events:
            if event.name != "session.end" or event.session_id is None:
                continue
            if signals_of(event, event.observed_at):
                self._gateway.conversations.let_go(event.session_id)
            else:
                await self._gateway.endings.agent_left(event.session_id, event.observed_at)

    async def _commit(self, signals: Sequence[Signal], events: Sequence[Event], key: ApiKey) -> None:
        try:
            await asyncio.shield(self._gateway.recorder.submit(signals=signals, events=events, key=key))
        except PurgedError:
            raise
        except KeyChangedError as error:
            raise self._gateway.keys.changed(key, error) from error
        except StoreError as error:
            raise unavailable(f"it could not be recorded: {error}", "not_recorded") from error

    def _count(self, **outcomes: int) -> None:
        for outcome, n in outcomes.items():
            self._gateway.metrics.telemetry(outcome, n)


def _id_conflict(event: Event, before: Mapping[str, Event]) -> str | None:
    """Return why the id cannot be used; None when it is new, or the event is the same again."""
    known = before.get(event.id)
    if known is None or _subject(known) == _subject(event):
        return None
    return f"id {event.id!r} was used before for something else"


def _subject(event: Event) -> tuple[str | None, ...]:
    return event.user, event.organisation, event.name, event.session_id


def _session_conflict(
    event: Event, known: dict[str, Session | None], purged: set[str], key: ApiKey
) -> str | None:
    """Return why an event is refused; None when it is accepted."""
    if event.session_id is None:
        return None
    if event.session_id in purged:
        return f"session {event.session_id!r} was purged"
    session = known[event.session_id]
    if session is None:
        return None
    try:
        check_owner(session, key)
    except ApiError as error:
        return error.message
    return None


def _content(signal: Signal) -> tuple[object, ...]:
    return signal.session_id, signal.kind, signal.value, signal.turn, signal.edit


def _tags_event(feedback: Feedback, key: ApiKey) -> list[Event]:
    """Return the event that keeps the tags of a feedback, if it has any."""
    if not feedback.tags:
        return []
    signal = feedback.signal
    return [
        Event(
            id=f"tags/{signal.id}",
            name="feedback.tags",
            user=key.user,
            organisation=key.organisation,
            observed_at=signal.observed_at,
            session_id=signal.session_id,
            turn=signal.turn,
            attributes=dict(feedback.tags),
        )
    ]


def _partial_success(wrong: Sequence[RefusedLine]) -> dict[str, Any]:
    return {"rejectedLogRecords": len(wrong), "errorMessage": wrong[0].message} if wrong else {}


def _partial_success_protobuf(wrong: Sequence[RefusedLine]) -> bytes:
    """Encode an ExportLogsServiceResponse: empty, or a partial success with a count and a message."""
    if not wrong:
        return b""
    message = wrong[0].message.encode()[:100]
    inner = b"\x08" + _varint(len(wrong)) + b"\x12" + _varint(len(message)) + message
    return b"\x0a" + _varint(len(inner)) + inner


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _all_refused(errors: Sequence[Any]) -> dict[str, Any]:
    message = errors[0]["message"] if errors else "the body has no line"
    return ApiError(422, f"no line could be taken: {message}", code="invalid_events").body()


def _unknown(message: str, param: str) -> ApiError:
    return ApiError(404, message, code=f"unknown_{param.removesuffix('_id')}", param=param)
