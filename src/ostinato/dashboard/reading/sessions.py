"""The list of sessions: filters, pages by key, and a search in their texts.

A page begins after the last session of the page before it, by time and id, so the hundredth page costs what
the first costs. A search reads the texts of a limited number of turns and says how far it came.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from ostinato.dashboard.access import Viewer, agreed, readable
from ostinato.dashboard.reading.base import (
    Answer,
    Asked,
    AskedError,
    RecordSource,
    choice,
    first_version,
    number,
    version_bytes,
    version_of,
    whole,
)
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.row_conversion import session_of, unpack_ints
from ostinato.store.sql.schema import rewards, sessions, turns
from ostinato.types import Ending, Session, Source
from ostinato.web.plain import line_of

ROWS = 50
"""The sessions of one page."""
MOST_SEARCHED = 400
"""The sessions whose texts one search reads."""
SEARCHED_AT_ONCE = 50
FILTERS = ("source", "arm", "version", "ending", "reward_from", "reward_to", "task", "user", "organisation")
ENDINGS = (*Ending, "none")


def listed(reading: RecordSource, viewer: Viewer, asked: Asked) -> Answer:
    """Return one page of sessions, newest first. Raises AskedError."""
    text = asked.get("text", "").strip()[:200]
    after = _after(asked)
    query = _filtered(viewer, asked)
    with reading.store.database.read() as connection:
        found, next_, searched = (
            _searched(connection, query, after, partial(_holding, connection, reading, viewer, text))
            if text
            else (*_page(connection, query, after, ROWS), None)
        )
        rows = _described(connection, found)
    return {
        "title": "Sessions",
        "filters": {name: asked.get(name, "").strip() for name in (*FILTERS, "text")},
        "choices": {"source": list(Source), "ending": list(ENDINGS)},
        "sessions": rows,
        "next": next_ and {"before": repr(next_[0]), "before_id": next_[1]},
        "later": after is not None,
        "searched": searched,
        "can_search": reading.lexicon is not None,
    }


def _after(asked: Asked) -> tuple[float, str] | None:
    before = number(asked, "before")
    return None if before is None else (before, asked.get("before_id", ""))


def _filtered(viewer: Viewer, asked: Asked) -> Select[Any]:
    session = sessions.c
    wanted = viewer.conditions()
    if source := choice(asked, "source", tuple(Source)):
        wanted.append(session.source == source)
    if ending := choice(asked, "ending", ENDINGS):
        wanted.append(session.ending.is_(None) if ending == "none" else session.ending == ending)
    for name, column in (
        ("arm", session.arm),
        ("task", session.task_id),
        ("user", session.user),
        ("organisation", session.organisation),
    ):
        if value := asked.get(name, "").strip():
            wanted.append(column == value)
    if asked.get("version", "").strip():
        first = version_bytes(whole(asked, "version", 0))
        sampled = select(turns.c.session_id).where(first_version() == first)
        wanted.append(session.id.in_(sampled))
    low, high = number(asked, "reward_from"), number(asked, "reward_to")
    if low is not None or high is not None:
        wanted.append(_rewarded(low, high))
    return select(sessions).where(*wanted)


def _rewarded(low: float | None, high: float | None) -> Any:
    """Return the condition that the latest reward of a session lies between two numbers."""
    later, session = rewards.alias("later"), sessions.c.id
    latest = select(func.max(later.c.order)).where(later.c.session_id == session)
    bounds = [rewards.c.order == latest.correlate(sessions).scalar_subquery()]
    bounds += [] if low is None else [rewards.c.total >= low]
    bounds += [] if high is None else [rewards.c.total <= high]
    return select(rewards.c.order).where(*bounds).correlate(sessions).exists()


def _page(
    connection: Connection, query: Select[Any], after: tuple[float, str] | None, most: int
) -> tuple[list[Session], tuple[float, str] | None]:
    """Return the next sessions, and the key after which the page that follows begins, if there is one."""
    session = sessions.c
    if after is not None:
        at, id = after
        query = query.where(session.started_at <= at, or_(session.started_at < at, and_(session.id < id)))
    ordered = query.order_by(session.started_at.desc(), session.id.desc()).limit(most + 1)
    found = [session_of(row) for row in connection.execute(ordered).mappings()]
    if len(found) <= most:
        return found, None
    last = found[most - 1]
    return found[:most], (last.started_at, last.id)


def _searched(
    connection: Connection,
    query: Select[Any],
    after: tuple[float, str] | None,
    holding: Callable[[Sequence[Session]], list[Session]],
) -> tuple[list[Session], tuple[float, str] | None, int]:
    """Return the sessions that `holding` leaves, the key to go on from, and how many were read."""
    matches: list[Session] = []
    searched = 0
    while searched < MOST_SEARCHED and len(matches) < ROWS:
        some, after = _page(connection, query, after, SEARCHED_AT_ONCE)
        searched += len(some)
        matches += holding(some)
        if after is None:
            break
    return matches, after, searched


def _holding(
    connection: Connection, reading: RecordSource, viewer: Viewer, text: str, some: Sequence[Session]
) -> list[Session]:
    """Return those of `some` that the viewer may read and whose texts hold `text`. Raises AskedError."""
    if reading.lexicon is None:
        raise AskedError("texts cannot be searched without their tokenizer: name one with --checkpoint")
    consents = agreed(reading.store, some)
    open_ids = [session.id for session in some if readable(viewer, session, consents)]
    needle, holding = text.casefold(), set[str]()
    query = select(turns.c.session_id, turns.c.prompt_ids, turns.c.ids)
    decode = reading.lexicon.tokenizer.decode
    for id, prompt, answer in rows_in(connection, query, turns.c.session_id, open_ids):
        if id not in holding and needle in decode(unpack_ints(prompt + answer)).casefold():
            holding.add(id)
    return [session for session in some if session.id in holding]


def _described(connection: Connection, some: Sequence[Session]) -> list[Answer]:
    ids = [session.id for session in some]
    counted = select(turns.c.session_id, func.count(), func.sum(func.length(turns.c.ids)) / 4).group_by(
        turns.c.session_id
    )
    by_turns = {row[0]: row for row in rows_in(connection, counted, turns.c.session_id, ids)}
    newest = select(rewards.c.session_id, rewards.c.total).order_by(rewards.c.order)
    by_reward: dict[str, float] = {
        row[0]: row[1] for row in rows_in(connection, newest, rewards.c.session_id, ids)
    }
    began = select(turns.c.session_id, first_version()).where(turns.c.number == 0)
    by_version = {row[0]: version_of(row[1]) for row in rows_in(connection, began, turns.c.session_id, ids)}
    return [
        _row(session, by_turns.get(session.id), by_version.get(session.id), by_reward.get(session.id))
        for session in some
    ]


def _row(
    session: Session, counted: Sequence[Any] | None, version: int | None, reward: float | None
) -> Answer:
    return {
        "id": session.id,
        "source": session.source.value,
        "user": line_of(session.user, 40),
        "organisation": line_of(session.organisation, 40),
        "arm": line_of(session.arm, 40),
        "task": session.task_id and line_of(session.task_id, 60),
        "started_at": session.started_at,
        "ending": session.ending and session.ending.value,
        "turns": counted[1] if counted else 0,
        "version": version,
        "tokens": int(counted[2] or 0) if counted else 0,
        "reward": reward,
        "consent": session.consent,
    }
