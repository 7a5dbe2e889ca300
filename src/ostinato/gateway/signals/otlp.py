"""OpenTelemetry logs over HTTP, as JSON or protobuf: the records of Claude Code and Codex, as events.

Only the fields named here are read. Records of another name are counted and ignored. Attributes that
identify a person are ignored too, since the key does that. A record has no id, so its event's id is a
digest of it: a record that is sent twice is kept once.

Protobuf is decoded by hand, because the library has no limit on what it builds: a body of 8 MB of empty
records takes it 540 MB, and this decoder nothing beyond the body.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ostinato.gateway.access.identity import scoped
from ostinato.gateway.errors import ApiError
from ostinato.gateway.signals.events import A_DAY_S, ID, projected
from ostinato.types import ApiKey, Event
from ostinato.web.values import TooManyValuesError, parse_values

NAMES = {
    "claude_code.user_prompt": "user.prompt",
    "claude_code.tool_decision": "tool.decision",
    "claude_code.tool_result": "tool.call",
    "claude_code.api_request": "gen_ai.client.inference.operation.details",
    "claude_code.api_error": "client.error",
    "codex.conversation_starts": "session.start",
    "codex.user_prompt": "user.prompt",
    "codex.tool_decision": "tool.decision",
    "codex.tool_result": "tool.call",
}
KEPT = {
    "arguments",
    "attempt",
    "cache_creation_tokens",
    "cache_read_tokens",
    "call_id",
    "cost_usd",
    "decision",
    "decision_source",
    "decision_type",
    "duration_ms",
    "error",
    "event.sequence",
    "input_tokens",
    "model",
    "output",
    "output_tokens",
    "prompt",
    "prompt_length",
    "source",
    "status_code",
    "success",
    "tool_name",
    "tool_parameters",
}
SESSION = ("session.id", "conversation.id")
DEEPEST = 16
MOST_RECORDS = 10_000
MOST_FIELDS = 200_000
"""Fields of a request in protobuf: an empty one takes two bytes there and hundreds of bytes in memory."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(slots=True)
class LogRecord:
    """One log record, from either encoding."""

    nanos: int = 0
    name: str = ""
    body: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)


def records(body: bytes, content_type: str) -> list[LogRecord]:
    """Return the records of an export request.

    Raise ApiError 400 when it is none, 413 for too many records, 415 for another encoding.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in {"application/json", "application/x-protobuf"}:
        raise ApiError(
            415, "send OTLP as application/json or application/x-protobuf", code="unsupported_encoding"
        )
    try:
        read = _from_json(parse_values(body)) if kind == "application/json" else _from_protobuf(body)
        parsed = list(islice(read, MOST_RECORDS + 1))
    except TooManyValuesError as error:
        raise ApiError(413, str(error), code="body_too_large") from None
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error, IndexError) as error:
        raise ApiError(400, f"not an OTLP logs request: {error}", code="invalid_otlp") from None
    if len(parsed) > MOST_RECORDS:
        message = f"a request may have {MOST_RECORDS} log records: send the others in the next"
        raise ApiError(413, message, code="body_too_large")
    return parsed


def event_of(record: LogRecord, key: ApiKey, now: float) -> Event | None:
    """Return the event in a record; None for a record whose name is unknown."""
    facts = record.attributes
    name = NAMES.get(record.name) or NAMES.get(_name(record))
    if name is None:
        return None
    session = next(
        (facts[each] for each in SESSION if isinstance(facts.get(each), str) and facts[each]), None
    )
    kept = {each: facts[each] for each in sorted(KEPT & facts.keys())}
    if name == "tool.call" and str(facts.get("success", "true")).lower() == "false":
        kept["error.type"] = "tool_failed"
    return Event(
        id=_digest(record, key),
        name=name,
        user=key.user,
        organisation=key.organisation,
        observed_at=record.nanos / 1e9 if 0 < record.nanos <= (now + A_DAY_S) * 1e9 else now,
        session_id=_session(session, key),
        attributes=projected(kept, with_text=key.consent),
    )


def _name(record: LogRecord) -> str:
    """Return a record's name; empty when it is unknown.

    Claude Code writes the whole name as the body and the end of it as an attribute, Codex the whole as an
    attribute.
    """
    for name in (record.attributes.get("event.name"), record.body):
        if isinstance(name, str) and (name in NAMES or f"claude_code.{name}" in NAMES):
            return name if name in NAMES else f"claude_code.{name}"
    return ""


def _session(name: str | None, key: ApiKey) -> str | None:
    if name is None or len(name) > 200:
        return None
    session = scoped(name, key)
    return session if ID.fullmatch(session) else None


def _digest(record: LogRecord, key: ApiKey) -> str:
    facts = [key.organisation, key.user, record.nanos, record.name, record.body, record.attributes]
    return "otlp/" + hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _from_json(value: Any) -> Iterator[LogRecord]:
    for resource in value.get("resourceLogs") or ():
        for scope in resource.get("scopeLogs") or ():
            for entry in scope.get("logRecords") or ():
                yield LogRecord(
                    nanos=int(entry.get("timeUnixNano") or entry.get("observedTimeUnixNano") or 0),
                    name=str(entry.get("eventName") or ""),
                    body=_json_value(entry.get("body"), 0),
                    attributes=_json_pairs(entry.get("attributes"), 0),
                )


def _json_pairs(pairs: Any, depth: int) -> dict[str, Any]:
    return {str(pair["key"]): _json_value(pair.get("value"), depth) for pair in pairs or () if "key" in pair}


def _json_value(value: Any, depth: int) -> Any:
    if not isinstance(value, Mapping) or not value or depth > DEEPEST:
        return None
    kind, content = next(iter(value.items()))
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        return [_json_value(each, depth + 1) for each in content.get("values") or ()]
    if kind == "kvlistValue":
        return _json_pairs(content.get("values"), depth + 1)
    return content if kind in {"stringValue", "boolValue", "doubleValue"} else None


def _from_protobuf(body: bytes) -> Iterator[LogRecord]:
    """Read a request by the field numbers of opentelemetry/proto/logs/v1/logs.proto."""
    left = [MOST_FIELDS]
    for resource in _messages(body, 1, left):
        for scope in _messages(resource, 2, left):
            for record in _messages(scope, 2, left):
                yield _record(record, left)


def _record(data: bytes, left: list[int]) -> LogRecord:
    record, observed = LogRecord(), 0
    for number, wire, value in _fields(data, left):
        if number == 1 and wire == FIXED64:
            record.nanos = int(value)
        elif number == 11 and wire == FIXED64:
            observed = int(value)
        elif number == 5 and wire == BYTES:
            record.body = _value(value, 0, left)
        elif number == 6 and wire == BYTES:
            record.attributes |= _pair(value, 0, left)
        elif number == 12 and wire == BYTES:
            record.name = value.decode()
    record.nanos = record.nanos or observed
    return record


def _pair(data: bytes, depth: int, left: list[int]) -> dict[str, Any]:
    key, value = "", None
    for number, wire, content in _fields(data, left):
        if number == 1 and wire == BYTES:
            key = content.decode()
        elif number == 2 and wire == BYTES:
            value = _value(content, depth, left)
    return {key: value}


def _value(data: bytes, depth: int, left: list[int]) -> Any:
    value: Any = None
    for number, wire, content in _fields(data, left):
        if number == 1 and wire == BYTES:
            value = content.decode()
        elif number == 2 and wire == VARINT:
            value = bool(content)
        elif number == 3 and wire == VARINT:
            value = content - 2**64 if content >= 2**63 else content
        elif number == 4 and wire == FIXED64:
            (number_,) = struct.unpack("<d", content.to_bytes(8, "little"))
            value = number_ if abs(number_) < 1e300 else None
        elif number == 5 and wire == BYTES and depth < DEEPEST:
            value = [_value(each, depth + 1, left) for each in _messages(content, 1, left)]
        elif number == 6 and wire == BYTES and depth < DEEPEST:
            pairs = [_pair(each, depth + 1, left) for each in _messages(content, 1, left)]
            value = {name: each for pair in pairs for name, each in pair.items()}
    return value


def _messages(data: bytes, wanted: int, left: list[int]) -> Iterator[bytes]:
    return (value for number, wire, value in _fields(data, left) if number == wanted and wire == BYTES)


def _fields(data: bytes, left: list[int]) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, wire type and value of each field: an int, or the bytes of a field with a length.

    `left` holds the number of fields that the whole request may still have.
    """
    at = 0
    while at < len(data):
        left[0] -= 1
        if left[0] < 0:
            raise TooManyValuesError(f"the request holds more than {MOST_FIELDS} fields: send less at once")
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, wire, value
            continue
        if wire == BYTES:
            size, at = _varint(data, at)
        elif wire in {FIXED64, FIXED32}:
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the message is cut")
        content = data[at : at + size]
        yield tag >> 3, wire, content if wire == BYTES else int.from_bytes(content, "little")
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value & (2**64 - 1), at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
