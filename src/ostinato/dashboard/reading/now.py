"""The present: who is served what, the sessions of a day, the ledger's account, and the last verdicts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, distinct, func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource
from ostinato.dashboard.reading.fleet import lately, speed
from ostinato.dashboard.reading.versions import verdict_of
from ostinato.dashboard.reading.words import audit
from ostinato.store import Store
from ostinato.store.sql.schema import sessions, states
from ostinato.types import Arm, Source
from ostinato.web.plain import line_of

DAY_S = 86_400.0
VERDICTS = 5


def seen(reading: RecordSource, _: Viewer, __: Asked) -> Answer:
    """Return what is served now and what happened in the last 24 hours."""
    store, now = reading.store, reading.clock()
    arms = store.arms()
    with store.database.read() as connection:
        live = _live(connection, now - DAY_S)
        sources = _sources(connection, now - DAY_S)
        accounted = _states(connection)
        served = lately(connection)
    verdicts = store.verdicts()[-VERDICTS:]
    return {
        "title": "Now",
        "headline": _headline(arms),
        "arms": [
            _arm(arm, live.get(arm.name, {})) | {"speed": speed(served.get(arm.name, ()))} for arm in arms
        ],
        "cycle": None if reading.loop is None else reading.loop.state(store),
        "audit": audit(store, most=8),
        "alarms": _alarms(store, arms),
        "sources": sources,
        "states": accounted,
        "verdicts": [verdict_of(verdict) for verdict in reversed(verdicts)],
        "now": now,
    }


def _arm(arm: Arm, live: Answer) -> Answer:
    return {
        "name": line_of(arm.name, 40),
        "version": arm.version,
        "share": arm.share,
        "engines": len(arm.engines),
        "experiment": line_of(arm.experiment, 40),
        "sessions": live.get("sessions", 0),
        "users": live.get("users", 0),
        "last_at": live.get("last_at"),
    }


def _headline(arms: Sequence[Arm]) -> str:
    """Return in one sentence who is served what."""
    serving = [arm for arm in arms if arm.share > 0]
    if len(serving) == 1:
        return f"Everybody is served version {serving[0].version}."
    if len(serving) == 2 and serving[1].experiment:
        champion, challenger = serving
        return (
            f"Version {challenger.version} is being tried on {challenger.share:.0%} of the users; "
            f"the others are served version {champion.version}."
        )
    return "; ".join(f"{arm.share:.0%} of the users are served version {arm.version}" for arm in serving)


def _live(connection: Connection, since: float) -> dict[str, Answer]:
    column = sessions.c
    figures = func.count(), func.count(distinct(column.user)), func.max(column.started_at)
    recent = column.started_at >= since, column.source == Source.LIVE.value
    query = select(column.arm, *figures).where(*recent).group_by(column.arm)
    return {
        arm: {"sessions": count, "users": users, "last_at": last}
        for arm, count, users, last in connection.execute(query)
    }


def _sources(connection: Connection, since: float) -> list[Answer]:
    """Return the sessions that began since, by source and ending."""
    column = sessions.c
    query = select(column.source, column.ending, func.count()).where(column.started_at >= since)
    counts: dict[str, dict[str, Any]] = defaultdict(dict)
    for source, ending, count in connection.execute(query.group_by(column.source, column.ending)):
        counts[source][ending or "under way"] = count
    return [
        {"source": source.value, "sessions": sum(counts[source].values()), "endings": counts[source]}
        for source in Source
        if source.value in counts
    ]


def _states(connection: Connection) -> list[Answer]:
    """Return the turns by state, the most first, from the index alone."""
    query = select(states.c.state, func.count()).group_by(states.c.state)
    rows = sorted(connection.execute(query), key=lambda row: (-row[1], row[0]))
    return [{"state": state, "count": count} for state, count in rows]


def _alarms(store: Store, arms: list[Arm]) -> list[str]:
    """Return what a person should look at first, in sentences."""
    alarms = [
        f"Arm {line_of(arm.name, 40)} gets {arm.share:.0%} of the users and no engine serves it."
        for arm in arms
        if arm.share > 0 and not arm.engines
    ]
    last = store.verdicts()[-1:]
    alarms += [
        f"Version {verdict.version} was rolled back: {line_of(verdict.reason, 200)}"
        for verdict in last
        if verdict.decision.value == "roll_back"
    ]
    return alarms
