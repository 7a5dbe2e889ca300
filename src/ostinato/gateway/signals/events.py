"""The lines of `POST /v1/events`: their names, their checks, and the signals in them.

A line is `{id, name, time, session_id?, turn?, attributes}`. The names are a closed table; attributes are
small JSON values. Text that people wrote is kept only where organisation and user agreed to training;
elsewhere the event is stored without its text.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ostinato.store.redaction.find import redact_json
from ostinato.types import ApiKey, Ending, Event, Signal, SignalKind

NAMES = {
    "session.start",
    "session.end",
    "user.prompt",
    "user.feedback",
    "user.cancel",
    "tests.run",
    "tool.call",
    "tool.decision",
    "edit.proposed",
    "edit.feedback",
    "edit.hunk.action",
    "edit.survival",
    "edit.skipped",
    "edit.superseded",
    "edit.commit",
    "edit.revert",
    "gen_ai.client.inference.operation.details",
    "gen_ai.evaluation.result",
    "feature_flag.evaluation",
    "client.error",
    "feedback.tags",
}
TEXT = {
    "prompt",
    "body",
    "path",
    "hunks",
    "text",
    "diff",
    "arguments",
    "output",
    "tool_input",
    "tool_parameters",
    "explanation",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.evaluation.explanation",
}
"""Attributes that hold what a person wrote or the text of a file."""
ID = re.compile(r"[\x21-\x7e]{1,256}")
MOST_LINE_BYTES = 256 * 2**10
MOST_LINES = 10_000
A_DAY_S = 86_400.0
"""Seconds by which a client's clock may be ahead of ours. A signal from such a clock is dated now."""


class EventError(ValueError):
    """The error for a line that is not a valid event; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLine:
    """The number of a line that was not accepted, from 1, and the reason."""

    line: int
    message: str


def parse_lines(body: bytes, key: ApiKey) -> Iterator[tuple[int, Event] | RefusedLine]:
    """Yield each line that is not empty, as an event or as the reason why it is refused.

    The lines after the first `MOST_LINES` are one refusal and are not read: a refusal for each of them would
    be many times larger than the body.
    """
    at, number = 0, 0
    while at < len(body):
        end = body.find(b"\n", at)
        line, at = (body[at:], len(body)) if end < 0 else (body[at:end], end + 1)
        number += 1
        if number > MOST_LINES:
            message = f"a request may have {MOST_LINES} lines: send this line and all after it in the next"
            yield RefusedLine(line=number, message=message)
            return
        if not line.strip():
            continue
        try:
            yield number, parse_event(_object(line), key)
        except EventError as error:
            yield RefusedLine(line=number, message=str(error))


def parse_event(line: Mapping[str, Any], key: ApiKey) -> Event:
    """Return the event of a line. Raise EventError that names the field."""
    unknown = sorted(set(line) - {"id", "name", "time", "session_id", "turn", "attributes"})
    if unknown:
        raise EventError(f"unknown field {unknown[0]!r:.60}")
    if not isinstance(line.get("name"), str) or line["name"] not in NAMES:
        raise EventError(f"name must be one of {', '.join(sorted(NAMES))}")
    return Event(
        id=_id(line, "id"),
        name=line["name"],
        user=key.user,
        organisation=key.organisation,
        observed_at=_time(line.get("time")),
        session_id=None if line.get("session_id") is None else _id(line, "session_id"),
        turn=_turn(line.get("turn")),
        attributes=projected(_attributes(line.get("attributes")), with_text=key.consent),
    )


def projected(attributes: Mapping[str, Any], *, with_text: bool) -> dict[str, Any]:
    """Return attributes as they may be stored: secrets redacted, and without text where consent is
    missing."""
    kept = {name: value for name, value in attributes.items() if with_text or name not in TEXT}
    redacted: dict[str, Any] = redact_json(kept)
    return redacted


def signals_of(event: Event, received_at: float) -> list[Signal]:
    """Return the signals in an event; the same event always has the same signals.

    The events about an edit in its repository say how much of it is left (`edit.survival`, `edit.commit`);
    its verdict is sent to `/feedback` by the reporter that watches it.
    """
    meaning = _meaning(event.name, event.attributes)
    if event.session_id is None or meaning is None:
        return []
    kind, value = meaning
    signal = Signal(
        id=f"event/{event.id}",
        session_id=event.session_id,
        kind=kind,
        value=value,
        observed_at=min(event.observed_at, received_at),
        received_at=received_at,
        turn=event.turn,
        edit=_edit(event),
    )
    return [signal]


def _meaning(name: str, facts: Mapping[str, Any]) -> tuple[SignalKind, float | str] | None:
    if name in PLAIN:
        return PLAIN[name], 1.0
    if name in SHARES:
        return _share(SHARES[name], facts.get("survival_rate_four_gram"))
    if name == "user.feedback" and facts.get("rating") in RATINGS:
        return SignalKind.RATING, RATINGS[facts["rating"]]
    if name == "tests.run" and isinstance(facts.get("passed"), bool):
        return SignalKind.TESTS_RUN, float(facts["passed"])
    if name == "tool.decision" and facts.get("source") not in AUTOMATIC:
        return _choice(facts.get("decision"), SignalKind.TOOL_DECISION, SignalKind.TOOL_DECISION)
    if name == "edit.feedback":
        return _choice(facts.get("outcome"), SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED)
    if name == "client.error" or (name == "tool.call" and facts.get("error.type")):
        return SignalKind.ERROR, str(facts.get("error.type") or facts.get("error") or "error")[:256]
    if name == "session.end" and facts.get("ending") in list(Ending):
        return SignalKind.ENDING, str(facts["ending"])
    return None


def _edit(event: Event) -> str | None:
    """Return the edit that an event is about, by its own id or by that of the call that made it."""
    identity = event.attributes.get("edit_id") or event.attributes.get("tool_use_id")
    is_edit = event.name.startswith("edit.") and isinstance(identity, str)
    return identity[:256] if is_edit and identity else None


PLAIN = {"user.prompt": SignalKind.USER_PROMPT, "user.cancel": SignalKind.CANCELLED}
SHARES = {"edit.survival": SignalKind.EDIT_SURVIVAL, "edit.commit": SignalKind.EDIT_COMMITTED}
RATINGS = {"positive": 1.0, "negative": 0.0}
AUTOMATIC = {"config", "hook", "Config", "AutomatedReviewer"}
"""Sources of a decision that no person made."""


def _share(kind: SignalKind, rate: object) -> tuple[SignalKind, float] | None:
    """Return the share that is left; a window that could not be measured has none, and is no signal."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        return None
    return kind, float(rate)


def _choice(decision: object, yes: SignalKind, no: SignalKind) -> tuple[SignalKind, float] | None:
    if decision in {"accept", "accepted", "approved", "approved_for_session"}:
        return yes, 1.0
    if decision in {"reject", "rejected", "denied", "abort"}:
        return no, 0.0 if yes is no else 1.0
    return None


def _object(line: bytes) -> Mapping[str, Any]:
    if len(line) > MOST_LINE_BYTES:
        raise EventError(f"a line may have {MOST_LINE_BYTES} bytes, this one has {len(line)}")
    try:
        value = orjson.loads(line)
    except ValueError as error:
        raise EventError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise EventError("not a JSON object")
    return value


def _id(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise EventError(f"{name} must be 1 to 256 printable characters without spaces")
    return value


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EventError("time must be seconds since the epoch")
    if not 0 <= value <= time.time() + A_DAY_S:
        raise EventError("time must be seconds since the epoch, not milliseconds, and not in the future")
    return float(value)


def _turn(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise EventError("turn must be the index of a turn")
    return value


def _attributes(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EventError("attributes must be an object")
    return value
