"""One session: its transcript beside its tokens, its edits and their fate, its rewards, its place in the
ledger."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from ostinato.dashboard.access import Viewer, agreed, readable, shared
from ostinato.dashboard.reading import edits, ledger
from ostinato.dashboard.reading.base import Answer, Asked, NotThereError, RecordSource, choice, whole
from ostinato.dashboard.reading.turns import outline, told
from ostinato.store.abbreviation import session_meant
from ostinato.store.sql.schema import purges
from ostinato.types import IdError, Reward, Session, Signal, SignalKind
from ostinato.web.plain import line_of, shown

TURNS = 30
"""The turns of one page."""
MOST_DRAWN = 240
"""The turns that the graph draws."""
MOST_SIGNALS = 500
COLOURS = ("probability", "version")
TEXTS = {SignalKind.COMMENT, SignalKind.DEMONSTRATION, SignalKind.ERROR}
"""Signals whose values are what somebody wrote."""


def one(reading: RecordSource, viewer: Viewer, asked: Asked) -> Answer:
    """Return one session, with the turns from `from` on. Raises NotThereError, AskedError."""
    session = _meant(reading, viewer, asked.get("id", ""))
    id = session.id
    first, colour = max(0, whole(asked, "from", 0)), choice(asked, "colour", COLOURS, COLOURS[0])
    alone = asked.get("turn", "") != ""
    if alone:
        first = max(0, whole(asked, "turn", 0))
    consents = agreed(reading.store, [session])
    texts = readable(viewer, session, consents)
    lexicon = reading.lexicon if texts else None
    signals = reading.store.signals(id)
    with reading.store.database.read() as connection:
        turns = outline(connection, id)
        at = next((place for place, turn in enumerate(turns) if turn["number"] >= first), len(turns))
        page = turns[at : at + (1 if alone else TURNS)]
        content = told(connection, id, page, lexicon, alone=alone)
        purged = _purged(connection, id)
        account = ledger.of_session(connection, id, mates=viewer.operator)
    rewards = reading.store.rewards(id)
    followed = edits.of_session(reading.store.events(id), signals, texts=texts)
    drawn = turns[max(0, at - 40) :][:MOST_DRAWN]
    return {
        "title": f"Session {line_of(id, 40)}",
        "session": _facts(session, turns),
        "texts": _texts(session, reading, texts),
        "shared": shared(session, consents),
        "purged": purged,
        "colour": colour,
        "alone": alone,
        "turns": content,
        "window": {
            "first": page[0]["number"] if page else 0,
            "last": page[-1]["number"] if page else 0,
            "before": turns[max(0, at - TURNS)]["number"] if at > 0 and turns else None,
            "after": turns[at + len(page)]["number"] if at + len(page) < len(turns) else None,
            "all": len(turns),
        },
        "graph": {"turns": drawn, "all": len(turns), "shown": [turn["number"] for turn in page]},
        "edits": followed,
        "rewards": [_reward(each, id, signals, turns) for each in reversed(rewards)],
        "signals": [_signal(signal, texts) for signal in signals[-MOST_SIGNALS:]],
        "signals_cut": max(0, len(signals) - MOST_SIGNALS),
        "ledger": account,
    }


def _facts(session: Session, turns: Sequence[Answer]) -> Answer:
    ended = max((turn["started_at"] + turn["latency_s"] for turn in turns), default=None)
    return {
        "id": session.id,
        "source": session.source.value,
        "user": line_of(session.user, 60),
        "organisation": line_of(session.organisation, 60),
        "arm": line_of(session.arm, 60),
        "task": session.task_id and line_of(session.task_id, 100),
        "harness": line_of(session.harness, 40),
        "started_at": session.started_at,
        "last_at": ended,
        "ending": session.ending and session.ending.value,
        "consent": session.consent,
        "turns": len(turns),
        "segments": len({turn["segment"] for turn in turns}),
        "sampled": sum(turn["tokens"] for turn in turns),
        "versions": sorted({turn["version"] for turn in turns if turn["version"] is not None}),
        "states": dict(Counter(turn["state"] or "unaccounted" for turn in turns)),
    }


def _texts(session: Session, reading: RecordSource, readable: bool) -> str:
    """Return why no text is shown; "shown" when it is."""
    if not readable:
        return "consent withdrawn" if session.consent else "without consent"
    return "shown" if reading.lexicon is not None else "no tokenizer"


def _meant(reading: RecordSource, viewer: Viewer, given: str) -> Session:
    """Return the session that an id or its beginning stands for; what others own is as good as absent."""
    try:
        session = reading.store.session(session_meant(reading.store, given)) if given else None
    except IdError:
        session = None
    if session is None or not viewer.sees(session):
        raise NotThereError(f"no session {line_of(given, 60)!r}: it was never recorded here, or is not yours")
    return session


def _purged(connection: Connection, id: str) -> Answer | None:
    row = connection.execute(select(purges).where(purges.c.session_id == id)).mappings().first()
    return None if row is None else {"at": row["purged_at"], "by": line_of(row["purged_by"], 60)}


def _reward(reward: Reward, id: str, signals: Sequence[Signal], turns: Sequence[Answer]) -> Answer:
    known = {signal.id: signal for signal in signals}
    numbers = {f"{id}/{turn['number']}": turn["number"] for turn in turns}
    return {
        "definition": reward.definition,
        "total": reward.total,
        "parts": [
            {
                "name": line_of(part.name, 40),
                "value": part.value,
                "state": part.state.value,
                "evidence": [_evidence(each, known, numbers) for each in part.evidence[:50]],
            }
            for part in reward.parts
        ],
    }


def _evidence(each: str, signals: dict[str, Signal], numbers: dict[str, int]) -> Answer:
    """Return what a part was read from: a signal, a turn, or an id that is gone."""
    if each in signals:
        signal = signals[each]
        return {"kind": "signal", "id": each, "what": signal.kind.value, "turn": signal.turn}
    if each in numbers:
        return {"kind": "turn", "id": each, "what": f"turn {numbers[each]}", "turn": numbers[each]}
    return {"kind": "gone", "id": line_of(each, 60), "what": "no longer here", "turn": None}


def _signal(signal: Signal, texts: bool) -> Answer:
    value: Any = signal.value
    if isinstance(value, str):
        hidden = signal.kind in TEXTS and not texts
        value = "not shown" if hidden else shown(value, 2_000).text
    return {
        "id": signal.id,
        "kind": signal.kind.value,
        "value": value,
        "at": signal.observed_at,
        "turn": signal.turn,
        "edit": signal.edit and line_of(signal.edit, 80),
    }
