"""The present: who is served what, the sessions of a day, the ledger's account, the last verdicts; and when
that has changed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, distinct, func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource
from ostinato.dashboard.reading.engines import engines_of
from ostinato.dashboard.reading.fleet import lately, speed
from ostinato.dashboard.reading.versions import verdict_of
from ostinato.dashboard.reading.words import audit
from ostinato.store import Store
from ostinato.store.sql.schema import (
    counters,
    rewards,
    sessions,
    signals,
    states,
    turns,
    verdicts,
    versions,
)
from ostinato.types import Arm, Decision, Source
from ostinato.web.plain import line_of

DAY_S = 86_400.0
TAKEN = {Decision.ROLL_BACK: "rolled back", Decision.DEMOTE: "demoted"}
"""The decisions that take a version from people, in words."""
VERDICTS = 5
MOST_LOOKED_AT = 5_000
"""The newest sessions among which the last one of each arm is looked for."""


def seen(reading: RecordSource, _: Viewer, __: Asked) -> Answer:
    """Return what is served now and what happened in the last 24 hours."""
    store, now = reading.store, reading.clock()
    arms = store.arms()
    with store.database.read() as connection:
        live = _live(connection, now - DAY_S)
        sources = _sources(connection, now - DAY_S)
        accounted = _states(connection)
        served = lately(connection)
        ever = _last_session(connection)
    judged = store.verdicts()[-VERDICTS:]
    engines = engines_of(arms)
    rows = [
        _arm(arm, live.get(arm.name, {}), ever.get(arm.name), engines)
        | {"speed": speed(served.get(arm.name, ()))}
        for arm in arms
    ]
    return {
        "title": "Now",
        "headline": _silence(arms, engines) + headline(arms),
        "arms": [row for row in rows if row["share"] > 0 or row["alive"]],
        "gone": [row for row in rows if not row["share"] and not row["alive"]],
        "cycle": None if reading.loop is None else reading.loop.state(store),
        "audit": audit(store, most=8),
        "alarms": _alarms(store, arms, engines),
        "sources": sources,
        "states": accounted,
        "verdicts": [verdict_of(verdict) for verdict in reversed(judged)],
        "now": now,
    }


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


def _arm(arm: Arm, live: Answer, last_at: float | None, engines: Mapping[str, Answer]) -> Answer:
    return {
        "name": line_of(arm.name, 40),
        "version": arm.version,
        "share": arm.share,
        "engines": [engines[url] for url in arm.engines],
        "alive": _alive(arm, engines),
        "experiment": line_of(arm.experiment, 40),
        "sessions": live.get("sessions", 0),
        "users": live.get("users", 0),
        "last_at": last_at,
    }


def _alive(arm: Arm, engines: Mapping[str, Answer]) -> int:
    """Return the number of an arm's engines that answer."""
    return sum(engines[url]["trouble"] is None for url in arm.engines)


def _silence(arms: Sequence[Arm], engines: Mapping[str, Answer]) -> str:
    serving = [arm for arm in arms if arm.share > 0]
    silent = bool(serving) and not any(_alive(arm, engines) for arm in serving)
    return "Nobody is served now: no engine answers. When one does: " if silent else ""


def headline(arms: Sequence[Arm]) -> str:
    """Return in one sentence who is served what while engines live."""
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
    figures = func.count(), func.count(distinct(column.user))
    recent = column.started_at >= since, column.source == Source.LIVE.value
    query = select(column.arm, *figures).where(*recent).group_by(column.arm)
    return {arm: {"sessions": count, "users": users} for arm, count, users in connection.execute(query)}


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


def _last_session(connection: Connection) -> dict[str, float]:
    """Return when the last session of each arm began, of those that have some among the newest."""
    column = sessions.c
    newest = select(column.arm, column.started_at).order_by(column.started_at.desc()).limit(MOST_LOOKED_AT)
    recent = newest.subquery().c
    query = select(recent.arm, func.max(recent.started_at)).group_by(recent.arm)
    return {arm: float(last) for arm, last in connection.execute(query)}


def _alarms(store: Store, arms: list[Arm], engines: Mapping[str, Answer]) -> list[str]:
    """Return what a person should look at first, in sentences.

    Where no engine answers at all, the run is over or everything is down: the headline says it.
    """
    alarms = [
        f"Arm {line_of(arm.name, 40)} gets {arm.share:.0%} of the users and no engine serves it."
        for arm in arms
        if arm.share > 0 and not arm.engines
    ]
    serving = [arm for arm in arms if arm.share > 0 and arm.engines]
    if any(_alive(arm, engines) for arm in serving):
        alarms += [
            f"Arm {line_of(arm.name, 40)} gets {arm.share:.0%} of the users and none of its engines answers."
            for arm in serving
            if not _alive(arm, engines)
        ]
    alarms += [
        f"{engines[url]['url']} serves version {engines[url]['version']}, and arm {line_of(arm.name, 40)} "
        f"credits it as version {arm.version}."
        for arm in serving
        for url in arm.engines
        if engines[url]["version"] not in (None, arm.version)
    ]
    last = store.verdicts()[-1:]
    alarms += [
        f"Version {verdict.version} was {TAKEN[verdict.decision]}: {line_of(verdict.reason, 200)}"
        for verdict in last
        if verdict.decision in TAKEN
    ]
    return alarms
