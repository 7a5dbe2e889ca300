"""What a client may say about a session, and its translation to a Signal. Late is fine, twice is harmless."""

import time
from collections.abc import Mapping
from typing import Any

from ostinato.gateway.errors import ApiError
from ostinato.types import Ending, Signal, SignalKind, new_id

TEXT_KINDS = {SignalKind.COMMENT, SignalKind.DEMONSTRATION}
FIELDS = {"session_id", "episode_id", "kind", "metric_name", "value", "turn", "id"}
LARGEST = 1e300


def parse_feedback(body: object) -> Signal:
    """Raises ApiError 422 that names the field and what it may be."""
    if not isinstance(body, dict):
        raise _unprocessable("the body must be a JSON object", None)
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise _unprocessable(f"unknown field {unknown[0]!r}, use {', '.join(sorted(FIELDS))}", unknown[0])
    kind = _kind(body.get("kind", body.get("metric_name")))
    return Signal(
        session_id=_text(body, "session_id", "episode_id"),
        kind=kind,
        value=_value(kind, body.get("value")),
        observed_at=time.time(),
        turn=_turn(body.get("turn")),
        id=_text(body, "id") if body.get("id") is not None else new_id(),
    )


def _kind(value: object) -> SignalKind:
    try:
        return SignalKind(value)  # type: ignore[arg-type]
    except ValueError:
        allowed = ", ".join(SignalKind)
        raise _unprocessable(f"kind must be one of {allowed}", "kind") from None


def _text(body: Mapping[str, Any], *names: str) -> str:
    value = next((body[name] for name in names if body.get(name) is not None), None)
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
        raise _unprocessable(f"{names[0]} must be 1 to 256 characters of text", names[0])
    return value


def _value(kind: SignalKind, value: object) -> float | str:
    if kind is SignalKind.ENDING:
        if value not in list(Ending):
            raise _unprocessable(f"the value of ending must be one of {', '.join(Ending)}", "value")
        return str(value)
    if kind in TEXT_KINDS:
        if not isinstance(value, str):
            raise _unprocessable(f"the value of {kind.value} must be text", "value")
        return value.encode(errors="replace").decode()
    if not isinstance(value, bool | int | float) or not -LARGEST < value < LARGEST:
        raise _unprocessable(f"the value of {kind.value} must be a number or a boolean", "value")
    return float(value)


def _turn(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise _unprocessable("turn must be the index of a turn", "turn")
    return value


def _unprocessable(message: str, param: str | None) -> ApiError:
    return ApiError(422, message, code="invalid_feedback", param=param)
