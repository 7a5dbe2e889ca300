"""A marker of what a watched page shows: when it changes, the page has something new."""

from sqlalchemy import func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import RecordSource
from ostinato.store.sql.schema import counters, rewards, sessions, signals, turns, verdicts, versions


def marker(reading: RecordSource, viewer: Viewer, session_id: str) -> str:
    """Return a text that changes when the session, or without one the system, has something new.

    It is read from indexes alone, so that watching costs the writers nothing.
    """
    database = reading.store.database
    if session_id:
        session = reading.store.session(session_id)
        if session is None or not viewer.sees(session):
            return "none"
        queries = [
            select(func.max(turns.c.number)).where(turns.c.session_id == session_id),
            select(func.count()).select_from(signals).where(signals.c.session_id == session_id),
            select(func.count()).select_from(rewards).where(rewards.c.session_id == session_id),
        ]
        first = str(session.ending)
    else:
        queries = [
            select(counters.c.value).where(counters.c.name == "arms"),
            select(func.max(verdicts.c.order)),
            select(func.max(versions.c.version)),
            select(func.max(sessions.c.started_at)),
        ]
        first = ""
    with database.read() as connection:
        return " ".join([first, *(str(connection.scalar(query)) for query in queries)])
