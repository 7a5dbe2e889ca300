"""The store: everything that was sampled, observed, decided and released, in one SQL database."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, bindparam, func, select, update

from ostinato.store.accounts import DECISIONS, Accounts, agrees, read_roles
from ostinato.store.sql import increments, row_conversion, schema
from ostinato.store.sql.arms import arms_of, put_arms
from ostinato.store.sql.backend import SET_ENDING, Recording
from ostinato.store.sql.chunks import rows_in, values_in
from ostinato.store.sql.database import Database
from ostinato.store.sql.errors import StoreError, patient
from ostinato.store.sql.increments import ReadTurn
from ostinato.types import (
    ApiKey,
    Arm,
    Checkpoint,
    Ending,
    Event,
    Report,
    Reward,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
    Verdict,
)

T = TypeVar("T")
TURN_IDENTITY = tuple({each.name for each in schema.turns.c} - {"base", "prompt_ids"})
"""What two records of one turn must have in common; `digest` stands for the prompt, however it is stored."""
NO_KEYS: Mapping[str, bool] = {}
OWNER_OF_KEY = select(schema.keys.c.user, schema.keys.c.organisation, schema.keys.c.revoked_at).where(
    schema.keys.c.hash == bindparam("hash")
)


class PurgedError(StoreError):
    """The session was removed, by a purge or for its age: nothing can be added to it any more."""


class KeyChangedError(StoreError):
    """The key was revoked, or its consent was taken back, after it was looked up: look it up again."""


class TakenError(StoreError):
    """Another session or turn is stored under this id: two gateways served one session at once."""


@patient
class Store:
    """A synchronous, thread-safe record that any number of processes share on one database.

    Writes are idempotent: the same ids again change nothing. Every method raises StoreError when the database
    cannot be read or written, and then nothing was recorded; only after OutcomeUnknownError it may have been.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self.database = database
        self.accounts = Accounts(database)
        self.now = now
        """The clock of what the record dates itself: the steps of releases, and what a cycle does. It returns
        seconds since the epoch."""

    @classmethod
    def open(cls, url_or_path: str | Path, now: Callable[[], float] = time.time) -> Self:
        """Open, or create, the record at a SQLite file path or an SQLAlchemy URL; `now` is its clock."""
        return cls(Database(url_or_path), now)

    def close(self) -> None:
        self.database.close()

    def start_session(self, session: Session) -> None:
        self.record((), sessions=(session,))

    def end_session(self, id: str, ending: Ending) -> None:
        """Set how a session ended; the first ending stays."""
        with self.database.write() as connection:
            if connection.scalar(select(schema.sessions.c.id).where(schema.sessions.c.id == id)) is None:
                raise StoreError(f"session {id!r} is not in {self.database.where}: call start_session first")
            connection.execute(SET_ENDING, {"session": id, "how": ending.value})

    def session(self, id: str) -> Session | None:
        return self._one(select(schema.sessions).where(schema.sessions.c.id == id), row_conversion.session_of)

    def lacks_session(self, id: str) -> bool:
        """Return True when one look-up in a local file shows that the session is not stored.

        Return False where finding out could take a while; `session` finds out.
        """
        return self.database.lacks_session(id)

    def recorded_turns(self, session_id: str) -> int:
        """Return the number after that of the session's last turn, by one look-up in a local file.

        Return 0 where finding out could take a while, and for a session without turns.
        """
        return self.database.recorded_turns(session_id)

    def newest_session(self, prefix: str) -> Session | None:
        """Return the session that started last of those whose id begins with `prefix`."""
        table = schema.sessions.c
        named = select(schema.sessions).where(table.id >= prefix, table.id < prefix + "\x7f")
        newest = named.order_by(table.started_at.desc(), table.id.desc()).limit(1)
        return self._one(newest, row_conversion.session_of)

    def sessions(
        self,
        *,
        source: Source | None = None,
        arm: str | None = None,
        ended: bool | None = None,
        since: float = 0.0,
        limit: int | None = None,
    ) -> list[Session]:
        """Return the sessions from `since` on, oldest first, without purged ones; `limit`: the newest."""
        table = schema.sessions.c
        kept = table.id.not_in(select(schema.purges.c.session_id))
        query = select(schema.sessions).where(table.started_at >= since, kept).limit(limit)
        for column, value in ((table.source, source and source.value), (table.arm, arm)):
            if value is not None:
                query = query.where(column == value)
        if ended is not None:
            query = query.where(table.ending.is_not(None) if ended else table.ending.is_(None))
        newest_first = query.order_by(table.started_at.desc(), table.id.desc())
        return self._all(newest_first, row_conversion.session_of)[::-1]

    def idle_sessions(self, before: float, most: int = 1_000) -> list[str]:
        """Return the live sessions without an ending whose last turn ended before `before`, oldest first."""
        session, turn = schema.sessions.c, schema.turns.c
        over = select(func.max(turn.started_at + turn.latency_s)).where(turn.session_id == session.id)
        idle = select(session.id).where(
            session.source == Source.LIVE.value,
            session.ending.is_(None),
            session.started_at < before,
            over.scalar_subquery() < before,
        )
        with self.database.read() as connection:
            return list(connection.scalars(idle.order_by(session.started_at).limit(most)))

    def record(
        self,
        turns: Sequence[Turn],
        signals: Sequence[Signal] = (),
        sessions: Sequence[Session] = (),
        events: Sequence[Event] = (),
        keys: Mapping[str, bool] = NO_KEYS,
    ) -> None:
        """Write all of them in one transaction; an ENDING signal also ends its session.

        `keys` are the hashes of the API keys in whose name this is recorded, each with True when the texts
        are kept only because its owner consents. Keys and consent are looked up again within the transaction,
        so nothing is recorded for a key that was revoked or purged a moment ago; a session whose consent was
        taken back since it began is recorded without consent.

        Raises StoreError when a turn or signal names a session that is neither stored nor in `sessions`,
        PurgedError when one names a session that was purged, KeyChangedError for a key that was revoked or
        whose consent was taken back, and TakenError when another session or turn is stored under an id.
        """
        endings = [
            {"session": s.session_id, "how": Ending(str(s.value)).value}
            for s in signals
            if s.kind is SignalKind.ENDING
        ]
        facts: tuple[Turn | Signal | Event, ...] = (*turns, *signals, *events)
        named = {fact.session_id for fact in facts if fact.session_id is not None}
        with self.database.recording() as to:
            _refuse_purged(to, list(named))
            _refuse_changed(to, keys)
            session_rows = [row_conversion.session_row(_as_agreed(to, session)) for session in sessions]
            if to.insert_new(schema.sessions, session_rows) != len(session_rows):
                _refuse_taken(to, schema.sessions, session_rows, ("user", "organisation"))
            turn_rows = increments.rows_of(to, turns)
            if to.insert_new(schema.turns, turn_rows) != len(turn_rows):
                _refuse_taken(to, schema.turns, turn_rows, TURN_IDENTITY)
            to.insert_new(schema.signals, [row_conversion.signal_row(signal) for signal in signals])
            to.insert_new(schema.events, [row_conversion.event_row(event) for event in events])
            to.end(endings)

    def turns(self, session_id: str) -> list[Turn]:
        """Return the turns of a session in order.

        Raises StoreError, which names the session, when the prompt of one cannot be put together any more.
        """
        found = self._read_turns((session_id,)).get(session_id, [])
        return increments.intact(found, session_id, self.database.where)

    def turns_of(self, session_ids: Iterable[str]) -> dict[str, list[Turn]]:
        """Return the turns of each session in order; a session without turns is not in the dict.

        A turn whose prompt cannot be put together any more has none, and is untrainable for that reason.
        """
        by_session = self._read_turns(session_ids)
        return {id: increments.with_damaged(found, id) for id, found in by_session.items()}

    def _read_turns(self, session_ids: Iterable[str]) -> dict[str, list[ReadTurn]]:
        order = (schema.turns.c.session_id, schema.turns.c.number)
        rows = self._by_session(schema.turns, session_ids, order, dict)
        return {id: list(increments.turns_from(some)) for id, some in rows.items()}

    def signals(self, session_id: str) -> list[Signal]:
        return self.signals_of((session_id,)).get(session_id, [])

    def signals_of(self, session_ids: Iterable[str]) -> dict[str, list[Signal]]:
        """Return the signals of each session by time observed; one without signals is not in the dict."""
        order = (schema.signals.c.observed_at, schema.signals.c.id)
        return self._by_session(schema.signals, session_ids, order, row_conversion.signal_of)

    def signal(self, id: str) -> Signal | None:
        return self._one(select(schema.signals).where(schema.signals.c.id == id), row_conversion.signal_of)

    def has_turn(self, id: str) -> bool:
        query = select(schema.turns.c.number).where(schema.turns.c.id == id)
        with self.database.read() as connection:
            return connection.scalar(query) is not None

    def events(self, session_id: str) -> list[Event]:
        """Return the events of a session from all senders, by time observed."""
        query = select(schema.events).where(schema.events.c.session_id == session_id)
        return self._all(
            query.order_by(schema.events.c.observed_at, schema.events.c.id), row_conversion.event_of
        )

    def known_events(self, ids: Sequence[str]) -> dict[str, Event]:
        """Return the recorded ones of these events, by id."""
        with self.database.read() as connection:
            rows = rows_in(connection, select(schema.events), schema.events.c.id, ids)
            return {row.id: row_conversion.event_of(row._mapping) for row in rows}

    def purged(self, session_ids: Iterable[str]) -> set[str]:
        """Return the ids of the sessions that were purged, of those given."""
        column = schema.purges.c.session_id
        with self.database.read() as connection:
            return set(values_in(connection, select(column), column, list(session_ids)))

    def add_rewards(self, rewards: Iterable[Reward]) -> None:
        """Append rewards, but none that the session's last one says already: a kill leaves no copy."""
        with self.database.write() as connection:
            self._insert(connection, schema.rewards, row_conversion.new_reward_rows(connection, rewards))

    def rewards(self, session_id: str) -> list[Reward]:
        """Return every reward ever computed for the session, oldest first."""
        query = select(schema.rewards).where(schema.rewards.c.session_id == session_id)
        return self._all(query.order_by(schema.rewards.c.order), row_conversion.reward_of)

    def add_version(self, row: Checkpoint) -> None:
        """Record a version. Raises StoreError when it is known with another digest."""
        with self.database.write() as connection:
            put_version(self.database, connection, row)

    def versions(self) -> list[Checkpoint]:
        return self._all(
            select(schema.versions).order_by(schema.versions.c.version), row_conversion.version_of
        )

    def add_report(self, report: Report) -> None:
        with self.database.write() as connection:
            self._insert(connection, schema.reports, (row_conversion.report_row(report),))

    def reports(self, version: int | None = None) -> list[Report]:
        """Return the reports of one version, or of all, in the order in which they were added."""
        return self._all(_of_version(schema.reports, version), row_conversion.report_of)

    def add_verdict(self, verdict: Verdict) -> None:
        with self.database.write() as connection:
            self._insert(connection, schema.verdicts, (row_conversion.verdict_row(verdict),))

    def verdicts(self, version: int | None = None) -> list[Verdict]:
        """Return the verdicts on one version, or on all, in the order in which they were added."""
        return self._all(_of_version(schema.verdicts, version), row_conversion.verdict_of)

    def set_arms(self, arms: Sequence[Arm]) -> None:
        """Replace all arms at once and raise the revision; a reader sees the old ones or the new ones."""
        self.change_arms(lambda _: arms)

    def change_arms(self, change: Callable[[Sequence[Arm]], Sequence[Arm]]) -> None:
        """Replace all arms by what `change` makes of the present ones, and let nobody write in between."""
        with self.database.write() as connection:
            put_arms(self.database, connection, change(arms_of(connection)))

    def arms(self) -> list[Arm]:
        return self._all(select(schema.arms).order_by(schema.arms.c.position), row_conversion.arm_of)

    def arms_revision(self) -> int:
        """Return how often the arms were set."""
        column = schema.counters.c
        with self.database.read() as connection:
            return connection.scalar(select(column.value).where(column.name == "arms")) or 0

    def add_key(self, hash: str, user: str, roles: str = "use,feedback", arm: str | None = None) -> None:
        """Add a key by its SHA-256, or change its owner; `accounts` also sets organisations and limits."""
        self.accounts.add(ApiKey(hash=hash, user=user, roles=read_roles(roles), arm=arm))

    def key(self, hash: str) -> ApiKey | None:
        return self.accounts.key(hash)

    def _insert(self, connection: Connection, table: Table, new: Iterable[row_conversion.Row]) -> None:
        if values := list(new):
            connection.execute(self.database.insert_new(table), values)

    def _all(self, query: Select[Any], convert: Callable[[RowMapping], T]) -> list[T]:
        with self.database.read() as connection:
            return [convert(row) for row in connection.execute(query).mappings()]

    def _one(self, query: Select[Any], convert: Callable[[RowMapping], T]) -> T | None:
        return next(iter(self._all(query, convert)), None)

    def _by_session(
        self,
        table: Table,
        session_ids: Iterable[str],
        order: Sequence[Any],
        convert: Callable[[RowMapping], T],
    ) -> dict[str, list[T]]:
        by_session: dict[str, list[T]] = {}
        query, ids = select(table).order_by(*order), list(dict.fromkeys(session_ids))
        with self.database.read() as connection:
            for row in rows_in(connection, query, table.c.session_id, ids):
                by_session.setdefault(row.session_id, []).append(convert(row._mapping))
        return by_session


def _refuse_changed(to: Recording, keys: Mapping[str, bool]) -> None:
    for hash, needs_consent in keys.items():
        rows = to.all(OWNER_OF_KEY, {"hash": hash})
        if not rows or rows[0][2] is not None:
            raise KeyChangedError("this API key was revoked: ask for another one")
        user, organisation, _ = rows[0]
        if needs_consent and not _agrees(to, organisation, user):
            raise KeyChangedError("consent was taken back after this API key was looked up: send it again")


def _as_agreed(to: Recording, session: Session) -> Session:
    """Return the session with the consent that holds now; one that began without consent stays without."""
    if not session.source.of_people or not session.consent:
        return session
    return replace(session, consent=_agrees(to, session.organisation, session.user))


def _agrees(to: Recording, organisation: str, user: str) -> bool:
    return agrees(to.all(DECISIONS, {"organisation": organisation, "user": user}), organisation, user)


def _refuse_taken(
    to: Recording, table: Table, new: Sequence[row_conversion.Row], names: Sequence[str]
) -> None:
    """Raise TakenError when one of these rows is stored with other content, which would be lost silently.

    The same row twice is allowed.
    """
    query = _by_id(table, tuple(names))
    for row in new:
        (stored,) = to.all(query, {"id": row["id"]})
        if tuple(stored) != tuple(row[name] for name in names):
            raise TakenError(
                f"{table.name.removesuffix('s')} {row['id']!r} is stored already and is another one"
            )


@cache
def _by_id(table: Table, names: tuple[str, ...]) -> Select[Any]:
    return select(*(table.c[name] for name in names)).where(table.c.id == bindparam("id"))


def put_version(database: Database, connection: Connection, row: Checkpoint) -> None:
    """Record a version inside a transaction; a version known without a batch gets the batch of `row`.

    Raises StoreError when it is known with another digest.
    """
    connection.execute(database.insert_new(schema.versions), row_conversion.version_row(row))
    table = schema.versions
    query = select(table.c.digest, table.c.batch).where(table.c.version == row.version)
    digest, batch = connection.execute(query).one()
    if digest != row.digest:
        raise StoreError(
            f"version {row.version} is recorded with digest {digest}, not {row.digest}: "
            f"two trainers wrote to {database.where}, stop one of them"
        )
    if row.batch and not json.loads(batch):
        change = update(table).where(table.c.version == row.version)
        connection.execute(change.values(batch=json.dumps(row.batch)))


def _refuse_purged(to: Recording, session_ids: Sequence[str]) -> None:
    purged = to.purged_of(session_ids)
    if purged is not None:
        raise PurgedError(f"session {purged!r} was purged: start another one")


def _of_version(table: Table, version: int | None) -> Select[Any]:
    query = select(table).order_by(table.c.order)
    return query if version is None else query.where(table.c.version == version)
