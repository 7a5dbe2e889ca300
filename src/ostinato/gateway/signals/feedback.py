"""The body of `/feedback`: a Signal as `types.to_json` writes it, or TensorZero's words for one.

Feedback may come late, and a repetition changes nothing. `observed_at` is when it happened; the gateway adds
when it received it, so a client that could not reach the gateway for a day reports both correctly. A time
less than a day ahead comes from a clock that is wrong, and counts as now. One further ahead, or before the
year 2000, is not in seconds, and is refused.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ostinato.gateway.errors import ApiError
from ostinato.store.redaction.find import redact
from ostinato.types import Ending, Signal, SignalKind, from_json, new_id

TEXT_KINDS = {SignalKind.COMMENT, SignalKind.DEMONSTRATION, SignalKind.ERROR}
FIELDS = {
    *(each.name for each in fields(Signal) if each.name != "received_at"),
    *("episode_id", "inference_id", "metric_name", "tags", "dryrun"),
}
"""The fields of a Signal but for the time of receipt, which the gateway knows itself, and TensorZero's."""
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
    given = {name: value for name, value in body.items() if value is not None}
    if unknown := sorted(given.keys() - FIELDS):
        raise _unprocessable(f"unknown field {unknown[0]!r}, use {', '.join(sorted(FIELDS))}", unknown[0])
    tags, dryrun = _tags(given.pop("tags", {})), given.pop("dryrun", False)
    if not isinstance(dryrun, bool):
        raise _unprocessable("dryrun must be true or false", "dryrun")
    now = time.time()
    try:
        signal = from_json(Signal, {"observed_at": now, "id": new_id()} | _in_our_words(given))
    except ValueError as error:
        raise _unprocessable(str(error), str(error).partition(":")[0]) from None
    _check_texts(signal)
    checked = replace(
        signal, value=_value(signal), observed_at=_time(signal.observed_at, now), received_at=now
    )
    return Feedback(signal=checked, tags=tags, dryrun=dryrun)


def _in_our_words(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Signal that TensorZero's fields, or ours, stand for."""
    named: dict[str, Any] = {}
    if (name := given.pop("inference_id", None)) is not None:
        if "episode_id" in given:
            raise _unprocessable("give either inference_id or episode_id", "inference_id")
        named["session_id"], named["turn"] = _turn_of(name)
    for theirs, ours in (("episode_id", "session_id"), ("metric_name", "kind")):
        if theirs in given:
            named.setdefault(ours, given.pop(theirs))
    named = given | named
    value = named.get("value")
    if isinstance(value, bool):
        named["value"] = float(value)
    if named.get("kind") == SignalKind.DEMONSTRATION and isinstance(value, list | dict):
        named["value"] = json.dumps(value, ensure_ascii=False)  # TensorZero's content blocks
    return named


def _turn_of(name: object) -> tuple[str, int]:
    """Return the session and the turn of `SESSION/TURN`, or of the id of an answer."""
    text = name if isinstance(name, str) else ""
    prefix = next((each for each in PREFIXES if text.startswith(each)), "")
    rest = text[len(prefix) :]
    session, _, turn = rest.rpartition("/" if "/" in rest else "-")
    if not session or not turn.isascii() or not turn.isdigit() or len(turn) > 9:
        raise _unprocessable("inference_id must be the id of an answer, or SESSION/TURN", "inference_id")
    return session, int(turn)


def _check_texts(signal: Signal) -> None:
    for name in ("session_id", "edit", "id"):
        text = getattr(signal, name)
        if text is not None and not (1 <= len(text) <= 256 and text.isprintable()):
            raise _unprocessable(f"{name} must be 1 to 256 characters of text", name)
    if signal.turn is not None and not 0 <= signal.turn < 2**31:
        raise _unprocessable("turn must be the index of a turn", "turn")


def _value(signal: Signal) -> float | str:
    kind, value = signal.kind, signal.value
    if kind is SignalKind.ENDING:
        if value not in list(Ending):
            raise _unprocessable(f"the value of ending must be one of {', '.join(Ending)}", "value")
        return value
    if kind in TEXT_KINDS:
        if not isinstance(value, str):
            raise _unprocessable(f"the value of {kind.value} must be text", "value")
        return redact(value.encode(errors="replace").decode())
    if isinstance(value, str) or not -LARGEST < value < LARGEST:
        raise _unprocessable(f"the value of {kind.value} must be a number or a boolean", "value")
    return value


def _time(observed_at: float, now: float) -> float:
    """Return when it happened: `now` where the client's clock is less than a day ahead."""
    if math.isnan(observed_at):
        raise _unprocessable("observed_at must be seconds since the epoch", "observed_at")
    if not YEAR_2000 <= observed_at <= now + A_DAY_S:
        when = "in the future" if observed_at > now else "before the year 2000"
        raise _unprocessable(
            f"observed_at lies {when}: it must be seconds since the epoch; set the clock, or leave it out",
            "observed_at",
        )
    return min(observed_at, now)


def _tags(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_TAGS:
        raise _unprocessable(f"tags must be an object of at most {MOST_TAGS} texts", "tags")
    if not all(isinstance(each, str) and len(each) <= 1024 for pair in value.items() for each in pair):
        raise _unprocessable("tags must be texts of at most 1024 characters", "tags")
    return {name: redact(text) for name, text in value.items()}


def _unprocessable(message: str, param: str | None) -> ApiError:
    return ApiError(422, message, code="invalid_feedback", param=param)
