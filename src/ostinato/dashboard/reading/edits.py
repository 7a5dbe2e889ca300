"""The edits of a session and their fate: proposed, kept, edited, reverted, committed, and what survived.

An edit is known from the events that followed it in its repository and from the signals that name it. The
call that made it is `call_TURN_N` where our own gateway gave the call its name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ostinato.dashboard.reading.base import Answer
from ostinato.dashboard.text.diff import between
from ostinato.types import Event, Signal, SignalKind, turn_of_call
from ostinato.web.plain import line_of

VERDICTS = {
    SignalKind.EDIT_KEPT: "kept",
    SignalKind.EDIT_EDITED: "edited",
    SignalKind.EDIT_REVERTED: "reverted",
}
MOST_EDITS = 200
"""The edits that a page shows."""


def of_session(events: Iterable[Event], signals: Iterable[Signal], *, texts: bool) -> list[Answer]:
    """Return each edit with its moments in order; without `texts` no path and no line of code."""
    told: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        id = event.attributes.get("edit_id") or event.attributes.get("tool_use_id")
        if event.name.startswith("edit.") and isinstance(id, str):
            told[id].append(event)
    felt: dict[str, list[Signal]] = defaultdict(list)
    for signal in signals:
        if signal.edit is not None and signal.kind in VERDICTS:
            felt[signal.edit].append(signal)
    names = list(dict.fromkeys([*told, *felt]))[:MOST_EDITS]
    return [_edit(number, name, told[name], felt[name], texts) for number, name in enumerate(names)]


def _edit(number: int, name: str, events: Sequence[Event], signals: Sequence[Signal], texts: bool) -> Answer:
    proposal = next((event for event in events if event.name == "edit.proposed"), None)
    facts: Mapping[str, Any] = proposal.attributes if proposal else {}
    began = (
        proposal.observed_at
        if proposal
        else min([*(event.observed_at for event in events), *(signal.observed_at for signal in signals)])
    )
    moments = [_moment(event, began) for event in events] + [_judged(signal, began) for signal in signals]
    moments.sort(key=lambda moment: (moment["delay"], moment["what"]))
    return {
        "number": number,
        "id": line_of(name, 80),
        "turn": _turn(events, signals, facts),
        "call": _call(facts.get("tool_use_id")),
        "path": line_of(str(facts["path"]), 200) if texts and facts.get("path") else None,
        "path_hash": line_of(str(facts["path_hash"]), 40) if facts.get("path_hash") else None,
        "language": line_of(str(facts.get("language_id") or ""), 20),
        "added": _count(facts.get("lines_added")),
        "removed": _count(facts.get("lines_removed")),
        "proposed_at": began,
        "hunks": _hunks(facts.get("hunks")) if texts else [],
        "moments": moments,
        "survival": [
            {"delay": moment["delay"], "rate": moment["rate"]}
            for moment in moments
            if moment["rate"] is not None
        ],
        "fate": _fate(moments),
        "signals": [signal.id for signal in signals],
    }


def _turn(events: Sequence[Event], signals: Sequence[Signal], facts: Mapping[str, Any]) -> int | None:
    facts_of = [*(event.turn for event in events), *(signal.turn for signal in signals)]
    named = [turn for turn in facts_of if turn is not None]
    call = facts.get("tool_use_id")
    return named[0] if named else turn_of_call(call) if isinstance(call, str) else None


def _call(id: object) -> int | None:
    """Return the place of the call in its turn."""
    if not isinstance(id, str) or turn_of_call(id) is None:
        return None
    return int(id.rpartition("_")[2])


def _moment(event: Event, began: float) -> Answer:
    facts = event.attributes
    what = event.name.removeprefix("edit.")
    return {
        "what": what,
        "at": event.observed_at,
        "delay": max(0.0, event.observed_at - began),
        "window": line_of(str(facts["window"]), 20) if "window" in facts else None,
        "rate": _rate(facts.get("survival_rate_four_gram")),
        "no_revert": _rate(facts.get("survival_rate_no_revert")),
        "verdict": line_of(str(facts["verdict"]), 20) if "verdict" in facts else None,
        "censored": line_of(str(facts["censored"]), 40) if "censored" in facts else None,
        "commit": line_of(str(facts["commit"]), 12) if "commit" in facts else None,
        "signal": None,
    }


def _judged(signal: Signal, began: float) -> Answer:
    return {
        "what": VERDICTS[signal.kind] if signal.value else f"not {VERDICTS[signal.kind]}",
        "at": signal.observed_at,
        "delay": max(0.0, signal.observed_at - began),
        "window": None,
        "rate": None,
        "no_revert": None,
        "verdict": None,
        "censored": None,
        "commit": None,
        "signal": signal.id,
    }


def _fate(moments: Sequence[Answer]) -> str:
    """Return the last that is known: a person's verdict before a measurement."""
    said = [
        moment["what"] for moment in moments if moment["signal"] and not moment["what"].startswith("not ")
    ]
    measured = [moment["verdict"] for moment in moments if moment["verdict"]]
    if any(moment["what"] == "superseded" for moment in moments) and not said:
        return "superseded"
    return str((said or measured or ["open"])[-1])


def _hunks(value: object) -> list[Answer]:
    hunks = value if isinstance(value, list) else []
    return [
        {
            "line": _count(hunk.get("line")),
            "lines": between(str(hunk.get("before", "")), str(hunk.get("after", ""))),
        }
        for hunk in hunks[:50]
        if isinstance(hunk, dict)
    ]


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def _rate(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(1.0, max(0.0, float(value))) if is_number else None  # type: ignore[arg-type]
