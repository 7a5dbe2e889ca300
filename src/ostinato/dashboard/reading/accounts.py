"""The accounts: keys by their owner and never themselves, decisions about consent, and purges with what they
touched."""

import json
from typing import Any

from sqlalchemy import Connection, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource
from ostinato.store.purge import AGE
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.schema import consents, groups, keys, purges, samples, sessions, trainings
from ostinato.web.plain import line_of

MOST_ROWS = 200
"""The keys, decisions and purges of one page, the newest."""
ID = 8
"""The characters of a key's hash that name it, as `ostinato keys list` does."""


def seen(reading: RecordSource, viewer: Viewer, _: Asked) -> Answer:
    """Return the accounts that an admin may see: those of its organisation, or all."""
    with reading.store.database.read() as connection:
        return {
            "title": "Accounts",
            "keys": _keys(connection, viewer),
            "consents": _consents(connection, viewer),
            "purges": _purges(connection, viewer),
            "most": MOST_ROWS,
        }


def _keys(connection: Connection, viewer: Viewer) -> list[Answer]:
    """Return the keys, revoked ones last. A revoked key of a purged user belongs to nobody any more."""
    newest = keys.c.revoked_at.is_not(None), keys.c.created_at.desc()
    query = select(keys).order_by(*newest).limit(MOST_ROWS)
    if not viewer.operator:
        query = query.where(keys.c.organisation == viewer.organisation)
    return [
        {
            "id": row["hash"][:ID],
            "user": line_of(row["user"], 60),
            "organisation": line_of(row["organisation"], 60),
            "roles": row["roles"].split(","),
            "arm": row["arm"] and line_of(row["arm"], 40),
            "requests_per_minute": row["requests_per_minute"],
            "concurrent": row["concurrent"],
            "created_at": row["created_at"],
            "revoked_at": row["revoked_at"],
        }
        for row in connection.execute(query).mappings()
    ]


def _consents(connection: Connection, viewer: Viewer) -> list[Answer]:
    """Return the decisions, newest first; the newest of each owner holds."""
    query = select(consents).order_by(consents.c.order.desc()).limit(MOST_ROWS)
    if not viewer.operator:
        query = query.where(consents.c.organisation == viewer.organisation)
    found, decided = [], set()
    for row in connection.execute(query).mappings():
        owner = row["organisation"], row["user"]
        found.append(
            {
                "user": line_of(row["user"], 60),
                "organisation": line_of(row["organisation"], 60),
                "granted": bool(row["granted"]),
                "by": line_of(row["set_by"], 60),
                "at": row["set_at"],
                "holds": owner not in decided,
            }
        )
        decided.add(owner)
    return found


def _purges(connection: Connection, viewer: Viewer) -> list[Answer]:
    """Return the sessions that people purged, with their turns and the versions trained on them.

    Those that went for their age are left out: there may be very many.
    """
    joined = purges.join(sessions, sessions.c.id == purges.c.session_id)
    query = select(purges, sessions.c.organisation, sessions.c.started_at).select_from(joined)
    query = query.where(purges.c.purged_by.not_like(f"{AGE}%"))
    if not viewer.operator:
        query = query.where(sessions.c.organisation == viewer.organisation)
    rows = connection.execute(query.order_by(purges.c.purged_at.desc()).limit(MOST_ROWS)).mappings().all()
    taught = _taught(connection, [row["session_id"] for row in rows])
    return [
        {
            "session": row["session_id"],
            "organisation": line_of(row["organisation"], 60),
            "at": row["purged_at"],
            "by": line_of(row["purged_by"], 60),
            "turns": json.loads(row["counts"]).get("turns", 0),
            "versions": sorted(taught.get(row["session_id"], ())),
        }
        for row in rows
    ]


def _taught(connection: Connection, ids: list[str]) -> dict[str, set[int]]:
    joined: Any = samples.join(groups, groups.c.id == samples.c.group_id)
    joined = joined.join(trainings, trainings.c.prompt == groups.c.prompt)  # by its index
    query = select(samples.c.session_id, trainings.c.version).select_from(joined)
    taught: dict[str, set[int]] = {}
    for id, version in rows_in(connection, query, samples.c.session_id, ids):
        taught.setdefault(id, set()).add(version)
    return taught
