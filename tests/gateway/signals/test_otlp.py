"""OTLP logs as Claude Code and Codex send them, in both encodings."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.errors import ApiError
from ostinato.gateway.signals.otlp import LogRecord, event_of, records
from ostinato.types import ApiKey

ADA = ApiKey(hash="1", user="ada", organisation="acme", consent=True)
SESSION = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
CLAUDE = {
    "body": "claude_code.tool_decision",
    "event.name": "tool_decision",
    "session.id": SESSION,
    "user.email": "ada@acme.test",
    "decision": "reject",
    "source": "user_reject",
    "tool_name": "Edit",
    "event.sequence": 7,
}
CODEX = {
    "event.name": "codex.user_prompt",
    "conversation.id": SESSION,
    "prompt": "use sk-" + "a1B2" * 8,
    "prompt_length": "12",
    "user.account_id": "u1",
}


def any_value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(each) for each in value]}}
    return {"stringValue": value}


def as_json(*logs: dict[str, Any], nanos: int = 1_700_000_000_000_000_000) -> bytes:
    told = []
    for log in logs:
        pairs = [{"key": k, "value": any_value(v)} for k, v in log.items() if k != "body"]
        body = {"body": any_value(log["body"])} if "body" in log else {}
        told.append({"timeUnixNano": str(nanos), "attributes": pairs} | body)
    scopes = [{"scope": {"name": "s"}, "logRecords": told}]
    return json.dumps({"resourceLogs": [{"resource": {}, "scopeLogs": scopes}]}).encode()


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def any_bytes(value: object) -> bytes:
    if isinstance(value, bool):
        return varint(2 << 3) + varint(value)
    if isinstance(value, int):
        return varint(3 << 3) + varint(value % 2**64)
    if isinstance(value, float):
        return varint(4 << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, list):
        return sized(5, b"".join(sized(1, any_bytes(each)) for each in value))
    return sized(1, str(value).encode())


def as_protobuf(*logs: dict[str, Any], nanos: int = 1_700_000_000_000_000_000) -> bytes:
    told = b""
    for log in logs:
        pairs = b"".join(
            sized(6, sized(1, k.encode()) + sized(2, any_bytes(v))) for k, v in log.items() if k != "body"
        )
        body = sized(5, any_bytes(log["body"])) if "body" in log else b""
        time = varint(1 << 3 | 1) + struct.pack("<Q", nanos)
        told += sized(2, time + varint(2 << 3) + varint(9) + pairs + body)
    return sized(1, sized(1, b"") + sized(2, told))


ENCODINGS = [(as_json, "application/json; charset=utf-8"), (as_protobuf, "application/x-protobuf")]


@pytest.mark.parametrize(("encode", "kind"), ENCODINGS)
def test_both_encodings_say_the_same(encode: Any, kind: str) -> None:
    claude, codex = (event_of(record, ADA, 1.8e9) for record in records(encode(CLAUDE, CODEX), kind))
    assert claude is not None and codex is not None
    assert (claude.name, claude.session_id, claude.observed_at) == ("tool.decision", SESSION, 1.7e9)
    assert claude.attributes == {
        "decision": "reject",
        "source": "user_reject",
        "tool_name": "Edit",
        "event.sequence": 7,
    }
    assert (codex.name, codex.session_id) == ("user.prompt", SESSION)
    assert codex.attributes == {"prompt": "use [redacted api_key]", "prompt_length": "12"}


def test_the_same_record_is_the_same_event() -> None:
    (first,), (again,) = (records(encode(CLAUDE), kind) for encode, kind in ENCODINGS)
    (later,) = records(as_json(CLAUDE, nanos=5), "application/json")
    ids = [event_of(record, ADA, now).id for now, record in enumerate((first, again, later))]  # type: ignore[union-attr]
    assert ids[0] == ids[1] != ids[2]
    other = event_of(first, ApiKey(hash="2", user="bob"), 0.0)
    assert other is not None and other.id != ids[0]


def test_a_record_of_an_unknown_name_is_ignored() -> None:
    (record,) = records(
        as_json({"event.name": "codex.sse_event", "conversation.id": SESSION}), "application/json"
    )
    assert event_of(record, ADA, 0.0) is None


def test_a_failed_tool_has_an_error_type() -> None:
    log = {"event.name": "codex.tool_result", "success": "false", "tool_name": "shell"}
    (record,) = records(as_json(log), "application/json")
    event = event_of(record, ADA, 0.0)
    assert event is not None and event.attributes["error.type"] == "tool_failed" and event.session_id is None


def test_a_session_that_is_not_unique_is_its_users() -> None:
    ada, bob = (
        event_of(LogRecord(name="codex.user_prompt", attributes={"conversation.id": "app"}), key, 0.0)
        for key in (ADA, ApiKey(hash="2", user="bob"))
    )
    assert ada is not None and bob is not None
    assert ada.session_id != bob.session_id


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"resourceLogs": 5}', "application/json", 400),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": ["x"]}]}]}', "application/json", 400),
        (b"\x0a\x7f\x01", "application/x-protobuf", 400),
        (b"\x0b", "application/x-protobuf", 400),
        (b"\xff" * 30, "application/x-protobuf", 400),
        (b"", "application/grpc", 415),
    ],
)
def test_a_body_that_is_no_export_is_refused(body: bytes, kind: str, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        records(body, kind)
    assert caught.value.status == status


@given(st.binary(max_size=300))
def test_any_protobuf_is_read_or_refused(body: bytes) -> None:
    try:
        [event_of(record, ADA, 0.0) for record in records(body, "application/x-protobuf")]
    except ApiError as error:
        assert error.status == 400  # noqa: PT017


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_broken_byte_is_read_or_refused(at: int, byte: int) -> None:
    body = bytearray(as_protobuf(CLAUDE, CODEX | {"n": [1, -5, 2.5, True]}))
    body[at % len(body)] = byte
    try:
        [event_of(record, ADA, 0.0) for record in records(bytes(body), "application/x-protobuf")]
    except ApiError as error:
        assert error.status == 400  # noqa: PT017
