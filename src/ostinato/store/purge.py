"""Removal of a user's data: tokens, signals, events and samples go, the counts stay.

A tombstone is left of each session: its row under a random name, its turns without tokens, when it was purged
and how much there was. So every figure of integrity stays true, and nobody can add to the session again.
Weights are not changed: the versions that were trained on it are listed, and people decide about them.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Join, Table, delete, func, or_, select, update

from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.slot_rows import forget_kept
from ostinato.store.sql import schema
from ostinato.store.sql.chunks import chunks, values_in
from ostinato.store.sql.errors import StoreError
from ostinato.store.store import Store
from ostinato.store.team.joins import forget
from ostinato.types import Ending, State, new_id

PURGED = "purged"
AGE = "age of "
"""The beginning of `purged_by` where a session went for its age; others name a person."""
TABLES_WITH_USERS = (schema.sessions, schema.keys, schema.consents, schema.events, schema.joins)
"""The tables that name a user and their organisation."""
NO_TOKENS: dict[str, Any] = {"ids": b"", "logprobs": b"", "versions": b""}
NO_PROMPT: dict[str, Any] = {
    **{"prompt_ids": b"", "base": None, "length": None, "digest": None},
    **{"routes": None, "broken": None, "structure": None},
}


class PurgeError(StoreError):
    """There is nothing of this name to purge, or the request is ambiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """The result of a purge.

    >>> Purge(sessions=("s1",), counts={"turns": 2}).trained
    ()
    """

    sessions: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    """Turns, signals, events, rewards and samples that were emptied or deleted."""
    trained: tuple[int, ...] = ()
    """Versions whose own training batch held a turn of these sessions."""
    descended: tuple[int, ...] = ()
    """Versions that were trained from those, and whose weights therefore still depend on the sessions."""
    scrubbed: bool = True
    """False when another process still reads the log of the database, which holds removed pages. The log is
    emptied once nothing reads it, by any process that has the store open."""


def purge(
    store: Store, *, by: str, user: str = "", organisation: str | None = None, session: str = ""
) -> Purge:
    """Remove one session, or a user's sessions, consent and keys, in one organisation if it is given.

    The purge is one transaction. Purging the same session again changes nothing, and names the versions that
    were trained since. Raises PurgeError, also for a user of several organisations when none is given.
    """
    if bool(user) == bool(session):
        raise PurgeError("nothing to purge is named: give either a user or a session")
    with store.database.write() as connection:
        if user and organisation is None:
            _refuse_ambiguous(connection, user)
        ids = _sessions(connection, user, organisation, session)
        counts = _remove_contents(connection, ids, user, organisation)
        if not ids and not counts["events"] and not (user and _is_known(connection, user, organisation)):
            name = f"user {user!r}" if user else f"session {session!r}"
            raise PurgeError(f"no {name} in {store.database.where}")
        Ledger(store).withdraw(connection, ids, State.PURGED)
        _leave_tombstones(connection, ids, by=by)
        if user:
            _withdraw_consent(connection, user, organisation, by)
            _revoke_keys(connection, user, organisation)
            forget(connection, user, organisation)
        trained = trained_on(connection, ids)
        descended = _descendants(connection, trained)
        store.database.must_scrub(connection)
    scrubbed = store.database.scrub()
    return Purge(sessions=tuple(ids), counts=counts, trained=trained, descended=descended, scrubbed=scrubbed)


def _refuse_ambiguous(connection: Connection, user: str) -> None:
    """Raise PurgeError when several organisations know this user: those may be different people."""
    organisations = _organisations(connection, user)
    if len(organisations) > 1:
        names = ", ".join(repr(name) for name in sorted(organisations))
        raise PurgeError(
            f"user {user!r} is known in several organisations ({names}): say which with --organisation; "
            f"'' means none"
        )


def _is_known(connection: Connection, user: str, organisation: str | None) -> bool:
    organisations = _organisations(connection, user)
    return bool(organisations) if organisation is None else organisation in organisations


def _organisations(connection: Connection, user: str) -> set[str]:
    """Return the organisations in which the user has sessions, events, consent or a key that still works."""
    names: set[str] = set()
    for table in TABLES_WITH_USERS:
        query = select(table.c.organisation).where(table.c.user == user).distinct()
        valid = query.where(table.c.revoked_at.is_(None)) if table is schema.keys else query
        names.update(connection.scalars(valid))
    return names


def _sessions(connection: Connection, user: str, organisation: str | None, session: str) -> list[str]:
    column = schema.sessions.c
    query = select(column.id).where(column.id == session if session else column.user == user)
    if organisation is not None:
        query = query.where(column.organisation == organisation)
    return list(connection.scalars(query.order_by(column.started_at, column.id)))


def _remove_contents(
    connection: Connection, ids: Sequence[str], user: str, organisation: str | None
) -> dict[str, int]:
    counts: Counter[str] = Counter(turns=0, signals=0, events=0, rewards=0, samples=0)
    turn, sample = schema.turns, schema.samples
    for some in chunks(ids):
        kept = or_(turn.c.prompt_ids != b"", turn.c.ids != b"", turn.c.base.is_not(None))
        turns = update(turn).where(turn.c.session_id.in_(some), kept)
        counts["turns"] += connection.execute(turns.values(**NO_TOKENS, **NO_PROMPT)).rowcount
        left = or_(sample.c.ids != b"", sample.c.mask != b"")  # a compaction leaves the mask alone
        samples = update(sample).where(sample.c.session_id.in_(some), left)
        counts["samples"] += connection.execute(samples.values(**NO_TOKENS, mask=b"", routes=None)).rowcount
        for table in (schema.signals, schema.events, schema.rewards):
            counts[table.name] += _delete(connection, table, table.c.session_id.in_(some))
        forget_kept(connection, some)
    if user:
        theirs = [schema.events.c.user == user]
        theirs += [] if organisation is None else [schema.events.c.organisation == organisation]
        counts["events"] += _delete(connection, schema.events, *theirs)
    return dict(counts)


def _delete(connection: Connection, table: Table, *where: Any) -> int:
    return connection.execute(delete(table).where(*where)).rowcount


def trained_on(connection: Connection, ids: Sequence[str]) -> tuple[int, ...]:
    """Return the versions whose own training batch held a turn of these sessions."""
    query = select(schema.trainings.c.version).select_from(_trained())
    return tuple(sorted(set(values_in(connection, query, schema.samples.c.session_id, ids))))


def trained_sessions(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of these sessions that any version was trained on."""
    query = select(schema.samples.c.session_id).select_from(_trained())
    return set(values_in(connection, query, schema.samples.c.session_id, ids))


def _trained() -> Join:
    return schema.trainings.join(schema.samples, schema.samples.c.group_id == schema.trainings.c.group_id)


def _leave_tombstones(connection: Connection, ids: Sequence[str], *, by: str) -> None:
    """Leave a tombstone for each session that has none yet, under one new name for all of them.

    That of a session which went for its age is replaced, because it may keep the user's name.
    """
    name, now = f"{PURGED}-{new_id()[:8]}", time.time()
    column, tombstone = schema.sessions.c, schema.purges.c
    ending = func.coalesce(column.ending, Ending.ABANDONED.value)
    by_people = select(tombstone.session_id).where(tombstone.purged_by.not_like(f"{AGE}%"))
    buried = set(values_in(connection, by_people, tombstone.session_id, ids))
    for id in (id for id in ids if id not in buried):
        _delete(connection, schema.purges, tombstone.session_id == id)
        turns = connection.scalar(select(func.count()).where(schema.turns.c.session_id == id))
        counts = json.dumps({"turns": turns})
        row = {"session_id": id, "purged_at": now, "purged_by": by, "counts": counts}
        connection.execute(schema.purges.insert(), row)
        values = {"user": name, "task_id": None, "consent": False, "ending": ending}
        connection.execute(update(schema.sessions).where(column.id == id).values(**values))


def _withdraw_consent(connection: Connection, user: str, organisation: str | None, by: str) -> None:
    column = schema.consents.c
    query = select(column.organisation).where(column.user == user).distinct()
    if organisation is not None:
        query = query.where(column.organisation == organisation)
    refusal = {"user": user, "granted": False, "set_by": by, "set_at": time.time()}
    for (name,) in connection.execute(query).all():
        connection.execute(schema.consents.insert(), {**refusal, "organisation": name})


def _revoke_keys(connection: Connection, user: str, organisation: str | None) -> None:
    """Revoke the user's keys, which would otherwise begin to record the user again.

    The hash of a key stays, so that the key is refused for ever.
    """
    column = schema.keys.c
    theirs = [column.user == user] + ([] if organisation is None else [column.organisation == organisation])
    revoked = {
        "user": PURGED,
        "organisation": "",
        "revoked_at": func.coalesce(column.revoked_at, time.time()),
    }
    connection.execute(update(schema.keys).where(*theirs).values(**revoked))


def _descendants(connection: Connection, versions: Sequence[int]) -> tuple[int, ...]:
    """Return the versions that were trained from `versions`, directly or through others, without these."""
    column = schema.versions.c
    touched = set(versions)
    for version, parent in connection.execute(select(column.version, column.parent).order_by(column.version)):
        if parent in touched:
            touched.add(version)
    return tuple(sorted(touched - set(versions)))
