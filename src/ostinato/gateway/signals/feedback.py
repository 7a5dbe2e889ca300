"""The body of `/feedback`, in TensorZero's words or in ours, and its translation to a Signal.

Feedback may come late, and a repetition changes nothing. `time` is when it happened; the gateway adds when it
received it, so a client that could not reach the gateway for a day reports both correctly. A time less than a
day ahead comes from a clock that is wrong, and counts as now. One further ahead, or before the year 2000, is
not in seconds, and is refused.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ostinato.gateway.errors import ApiError
from ostinato.store.redaction.find import redact
from ostinato.types import Ending, Signal, SignalKind, new_id

TEXT_KINDS = {SignalKind.COMMENT, SignalKind.DEMONSTRATION, SignalKind.ERROR}
FIELDS = {
    "session_id",
    "episode_id",
    "inference_id",
    "kind",
    "metric_name",
    "value",
    "turn",
    "edit",
    "time",
    "id",
    "tags",
    "dryrun",
}
A_DAY_S = 86_400.0
YEAR_2000 = 946_684_800.0
LARGEST = 1e300
MOST_TAGS = 50
PREFIXES = ("chatcmpl-", "resp_", "msg_")
"""The prefixes that the dialects put before a turn's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A signal with its tags, from the body of a request."""

    signal: Signal
    tags: Mapping[str, str] = field(default_factory=dict)
    dryrun: bool = False
    """True when everything is checked and nothing recorded."""


def parse_feedback(body: object) -> Feedback:
    """Return the checked feedback. Raise ApiError 422 that names the field and the values it may have."""
    if not isinstance(body, dict):
        raise _unprocessable("the body must be a JSON object", None)
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise _unprocessable(f"unknown field {unknown[0]!r}, use {', '.join(sorted(FIELDS))}", unknown[0])
    kind = _kind(body.get("kind", body.get("metric_name")))
    session_id, turn = _about(body)
    now = time.time()
    signal = Signal(
        session_id=session_id,
        kind=kind,
        value=_value(kind, body.get("value")),
        observed_at=_time(body.get("time"), now),
        received_at=now,
        turn=turn,
        edit=None if body.get("edit") is None else _text(body, "edit"),
        id=_text(body, "id") if body.get("id") is not None else new_id(),
    )
    return Feedback(signal=signal, tags=_tags(body.get("tags")), dryrun=_flag(body.get("dryrun"), "dryrun"))


def _about(body: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the session and, if one is named, the turn: as `SESSION/TURN`, or by the id of the answer."""
    inference = body.get("inference_id")
    if inference is None:
        return _text(body, "session_id", "episode_id"), _turn(body.get("turn"))
    if body.get("episode_id") is not None:
        raise _unprocessable("give either inference_id or episode_id", "inference_id")
    name = _text(body, "inference_id")
    prefix = next((each for each in PREFIXES if name.startswith(each)), "")
    rest = name[len(prefix) :]
    session, _, turn = rest.rpartition("/" if "/" in rest else "-")
    if not session or not turn.isascii() or not turn.isdigit() or len(turn) > 9:
        raise _unprocessable("inference_id must be the id of an answer, or SESSION/TURN", "inference_id")
    return session, int(turn)


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
    if kind is SignalKind.DEMONSTRATION and isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)  # TensorZero's content blocks
    if kind in TEXT_KINDS:
        if not isinstance(value, str):
            raise _unprocessable(f"the value of {kind.value} must be text", "value")
        return redact(value.encode(errors="replace").decode())
    if not isinstance(value, bool | int | float) or not -LARGEST < value < LARGEST:
        raise _unprocessable(f"the value of {kind.value} must be a number or a boolean", "value")
    return float(value)


def _time(value: object, now: float) -> float:
    """Return when it happened: `now` when the client gives no time, or its clock is less than a day ahead."""
    if value is None:
        return now
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise _unprocessable("time must be seconds since the epoch", "time")
    if not YEAR_2000 <= value <= now + A_DAY_S:
        when = "in the future" if value > now else "before the year 2000"
        raise _unprocessable(
            f"time lies {when}: it must be seconds since the epoch; set the clock, or leave time out", "time"
        )
    return min(float(value), now)


def _turn(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise _unprocessable("turn must be the index of a turn", "turn")
    return value


def _tags(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MOST_TAGS:
        raise _unprocessable(f"tags must be an object of at most {MOST_TAGS} texts", "tags")
    if not all(isinstance(each, str) and len(each) <= 1024 for pair in value.items() for each in pair):
        raise _unprocessable("tags must be texts of at most 1024 characters", "tags")
    return {name: redact(text) for name, text in value.items()}


def _flag(value: object, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _unprocessable(f"{name} must be true or false", name)
    return bool(value)


def _unprocessable(message: str, param: str | None) -> ApiError:
    return ApiError(422, message, code="invalid_feedback", param=param)
