"""One group: the sessions on the same task side by side, so that it can be seen who won, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, NotThereError, RecordSource
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.row_conversion import unpack_ints
from ostinato.store.sql.schema import groups, prompts, samples, trainings, turns
from ostinato.types import Reward, Session, Signal, SignalKind
from ostinato.web.plain import line_of, shown

MOST_BESIDE = 16
"""The sessions of a group that stand side by side, the best first."""
MOST_WORDS = 600
"""The characters of a session's last words that are shown."""


def one(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return one group. Raises NotThereError."""
    id = asked.get("id", "")
    with reading.store.database.read() as connection:
        row = connection.execute(select(groups).where(groups.c.id == id)).first()
        if row is None:
            raise NotThereError("no group of this id is in the store")
        prompt = connection.execute(select(prompts).where(prompts.c.prompt == row.prompt)).one()
        trained = select(trainings.c.version).where(trainings.c.prompt == row.prompt)
        taught = list(connection.scalars(trained.order_by(trainings.c.order)))
        order = select(samples.c.session_id, samples.c.advantage).where(samples.c.group_id == id)
        advantages: dict[str, float] = {}
        for session_id, advantage in connection.execute(order.order_by(samples.c.position)):
            advantages.setdefault(session_id, advantage)
        columns = _columns(reading, connection, advantages)
    return {
        "title": f"Group {line_of(id, 40)}",
        "group": {
            "id": id,
            "prompt": line_of(row.prompt, 120),
            "kind": line_of(row.kind, 40),
            "stage": prompt.stage,
            "phase": prompt.phase,
            "reason": prompt.reason and line_of(prompt.reason, 200),
            "oldest": row.oldest_version,
            "versions": taught,
            "sessions": len(advantages),
        },
        "columns": columns,
        "parts": _part_names(columns),
    }


def _columns(reading: RecordSource, connection: Connection, advantages: Mapping[str, float]) -> list[Answer]:
    store, ids = reading.store, sorted(advantages, key=lambda id: -advantages[id])[:MOST_BESIDE]
    sessions = [session for session in map(store.session, ids) if session is not None]
    signals = store.signals_of(ids)
    ends = _ends(connection, ids)
    return [
        _column(reading, session, advantages[session.id], signals.get(session.id, ()), ends.get(session.id))
        | {"words": _words(reading, ends.get(session.id))}
        for session in sessions
    ]


def _column(
    reading: RecordSource, session: Session, advantage: float, signals: Sequence[Signal], end: Any
) -> Answer:
    rewards = reading.store.rewards(session.id)
    reward = rewards[-1] if rewards else None
    return {
        "id": session.id,
        "user": line_of(session.user, 40),
        "ending": session.ending and session.ending.value,
        "advantage": advantage,
        "reward": reward.total if reward else None,
        "parts": _parts(reward),
        "turns": end.count if end else 0,
        "tokens": int(end.tokens or 0) if end else 0,
        "seconds": end.until - session.started_at if end else None,
        "solved": next((s.value == 1.0 for s in signals if s.kind is SignalKind.HIDDEN_TESTS), None),
    }


def _parts(reward: Reward | None) -> dict[str, float]:
    return {line_of(part.name, 40): part.value for part in reward.parts} if reward else {}


def _part_names(columns: Sequence[Answer]) -> list[str]:
    return list(dict.fromkeys(name for column in columns for name in column["parts"]))


def _ends(connection: Connection, ids: Sequence[str]) -> dict[str, Any]:
    """Return, by session, its number of turns, its sampled tokens, and when its last turn was over."""
    column = turns.c
    query = select(
        column.session_id,
        func.count().label("count"),
        (func.sum(func.length(column.ids)) / 4).label("tokens"),
        func.max(column.started_at + column.latency_s).label("until"),
        func.max(column.number).label("last"),
    ).group_by(column.session_id)
    return {row.session_id: row for row in rows_in(connection, query, column.session_id, ids)}


def _words(reading: RecordSource, end: Any) -> str | None:
    """Return the last words of a session, or None where no tokenizer is known."""
    if reading.lexicon is None or end is None:
        return None
    last = select(turns.c.ids).where(turns.c.session_id == end.session_id, turns.c.number == end.last)
    with reading.store.database.read() as connection:
        ids = unpack_ints(connection.scalar(last) or b"")
    said = reading.lexicon.answer(ids)
    text = said.content or " ".join(
        f"{call.name} {line_of(str(dict(call.arguments)), 200)}" for call in said.tool_calls
    )
    return shown(text, MOST_WORDS).text
