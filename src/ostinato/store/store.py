"""The record: everything that was sampled, observed, decided and released, in one SQL database."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, bindparam, delete, func, select, update

from ostinato.store.accounts import Accounts, read_roles
from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.database import Database, StoreError
from ostinato.store.sql.recording import KEY, SAID, SET_ENDING, Recording, agrees, chunks
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
NO_KEYS: Mapping[str, bool] = {}
BUMP_ARMS = (
    update(schema.counters).where(schema.counters.c.name == "arms").values(value=schema.counters.c.value + 1)
)


class PurgedError(StoreError):
    """The session was removed at its user's wish: nothing is added to it any more."""


class KeyChangedError(StoreError):
    """The key was revoked, or its consent taken back, since it was looked up: look again."""


class TakenError(StoreError):
    """Another session or turn is stored under this id: two gateways answered in one session at once."""


class Store:
    """Synchronous, thread-safe, shared by any number of processes on the same file.

    Writes are idempotent: recording the same ids again changes nothing. Every method raises StoreError when
    the database cannot be read or written, and then nothing of the call was recorded.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.accounts = Accounts(database)

    @classmethod
    def open(cls, url_or_path: str | Path) -> Self:
        """Open, or create, the record at a SQLite file path or an SQLAlchemy URL."""
        return cls(Database(url_or_path))

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
        """Whether the session is known not to be stored, at the cost of one look-up in a local file.

        False where that would mean a wait: `session` knows.
        """
        return self.database.lacks_session(id)

    def recorded_turns(self, session_id: str) -> int:
        """The number after that of the session's last turn, at the cost of one look-up in a local file.

        0 where that would mean a wait, and for a session without turns.
        """
        return self.database.recorded_turns(session_id)

    def newest_session(self, prefix: str) -> Session | None:
        """The session started last of those whose id begins with `prefix`."""
        table = schema.sessions.c
        named = select(schema.sessions).where(table.id >= prefix, table.id < prefix + "\x7f")
        return self._one(
            named.order_by(table.started_at.desc(), table.id.desc()).limit(1), row_conversion.session_of
        )

    def sessions(
        self,
        *,
        source: Source | None = None,
        arm: str | None = None,
        ended: bool | None = None,
        since: float = 0.0,
        limit: int | None = None,
    ) -> list[Session]:
        """Sessions started at `since` or later, oldest first; `limit` keeps the newest ones."""
        table = schema.sessions.c
        query = select(schema.sessions).where(table.started_at >= since).limit(limit)
        if source is not None:
            query = query.where(table.source == source.value)
        if arm is not None:
            query = query.where(table.arm == arm)
        if ended is not None:
            query = query.where(table.ending.is_not(None) if ended else table.ending.is_(None))
        newest_first = query.order_by(table.started_at.desc(), table.id.desc())
        return self._all(newest_first, row_conversion.session_of)[::-1]

    def idle_sessions(self, before: float, most: int = 1_000) -> list[str]:
        """Live sessions without an ending whose last turn was over before `before`, oldest first."""
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

        `keys`: the API keys in whose name it comes, by hash, and whether what they were told with is kept
        only because of their consent. Keys and consent are looked up again within the transaction, so what
        was revoked or purged a moment ago is not recorded; a session whose consent was taken back since it
        began is recorded without it.

        Raises StoreError when a turn or signal names a session that is neither stored nor in `sessions`,
        PurgedError when one names a session that was purged, KeyChangedError for a key that was revoked or
        whose consent was taken back, and TakenError when a session or turn of this id is stored already and
        is another one.
        """
        endings = [
            {"session": s.session_id, "how": Ending(str(s.value)).value}
            for s in signals
            if s.kind is SignalKind.ENDING
        ]
        named = {t.session_id for t in turns} | {s.session_id for s in signals}
        told = {e.session_id for e in events if e.session_id is not None}
        with self.database.recording() as to:
            _refuse_purged(to, list(named | told))
            _refuse_changed(to, keys)
            begun = [row_conversion.session_row(_as_agreed(to, session)) for session in sessions]
            if to.insert_new(schema.sessions, begun) != len(begun):
                _refuse_taken(to, schema.sessions, begun, ("user", "organisation"))
            taken = [row_conversion.turn_row(turn) for turn in turns]
            if to.insert_new(schema.turns, taken) != len(taken):
                _refuse_taken(to, schema.turns, taken, schema.turns.c.keys())
            to.insert_new(schema.signals, [row_conversion.signal_row(signal) for signal in signals])
            to.insert_new(schema.events, [row_conversion.event_row(event) for event in events])
            to.end(endings)

    def turns(self, session_id: str) -> list[Turn]:
        return self.turns_of((session_id,)).get(session_id, [])

    def turns_of(self, session_ids: Iterable[str]) -> dict[str, list[Turn]]:
        """The turns of each session in order; a session without turns is not in the dict."""
        order = (schema.turns.c.session_id, schema.turns.c.number)
        return self._by_session(schema.turns, session_ids, order, row_conversion.turn_of)

    def signals(self, session_id: str) -> list[Signal]:
        return self.signals_of((session_id,)).get(session_id, [])

    def signals_of(self, session_ids: Iterable[str]) -> dict[str, list[Signal]]:
        """The signals of each session by time observed; a session without signals is not in the dict."""
        order = (schema.signals.c.observed_at, schema.signals.c.id)
        return self._by_session(schema.signals, session_ids, order, row_conversion.signal_of)

    def signal(self, id: str) -> Signal | None:
        return self._one(select(schema.signals).where(schema.signals.c.id == id), row_conversion.signal_of)

    def has_turn(self, id: str) -> bool:
        query = select(schema.turns.c.number).where(schema.turns.c.id == id)
        with self.database.read() as connection:
            return connection.scalar(query) is not None

    def events(self, session_id: str) -> list[Event]:
        """The events of a session by time observed, whoever sent them."""
        query = select(schema.events).where(schema.events.c.session_id == session_id)
        return self._all(
            query.order_by(schema.events.c.observed_at, schema.events.c.id), row_conversion.event_of
        )

    def known_events(self, ids: Sequence[str]) -> dict[str, Event]:
        """Those of these events that are recorded."""
        found: dict[str, Event] = {}
        for some in chunks(ids):
            query = select(schema.events).where(schema.events.c.id.in_(some))
            found |= {event.id: event for event in self._all(query, row_conversion.event_of)}
        return found

    def purged(self, session_ids: Iterable[str]) -> set[str]:
        """Those of these sessions that were purged."""
        column = schema.purges.c.session_id
        found: set[str] = set()
        with self.database.read() as connection:
            for some in chunks(list(session_ids)):
                found.update(connection.scalars(select(column).where(column.in_(some))))
        return found

    def add_reward(self, reward: Reward) -> None:
        self.add_rewards((reward,))

    def add_rewards(self, rewards: Iterable[Reward]) -> None:
        """Append: a later reward of the same session does not erase the earlier one."""
        with self.database.write() as connection:
            self._insert(connection, schema.rewards, map(row_conversion.reward_row, rewards))

    def rewards(self, session_id: str) -> list[Reward]:
        """Every reward ever computed for the session, oldest first."""
        query = select(schema.rewards).where(schema.rewards.c.session_id == session_id)
        return self._all(query.order_by(schema.rewards.c.order), row_conversion.reward_of)

    def add_version(self, row: Checkpoint) -> None:
        """Raises StoreError when the version is known with another digest."""
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
        """Reports of one version, or of all, in the order they were added."""
        return self._all(_of_version(schema.reports, version), row_conversion.report_of)

    def add_verdict(self, verdict: Verdict) -> None:
        with self.database.write() as connection:
            self._insert(connection, schema.verdicts, (row_conversion.verdict_row(verdict),))

    def verdicts(self, version: int | None = None) -> list[Verdict]:
        """Verdicts on one version, or on all, in the order they were added."""
        return self._all(_of_version(schema.verdicts, version), row_conversion.verdict_of)

    def set_arms(self, arms: Sequence[Arm]) -> None:
        """Replace all arms at once and raise the revision; a reader sees the old ones or the new ones."""
        with self.database.write() as connection:
            connection.execute(delete(schema.arms))
            if arms:
                connection.execute(schema.arms.insert(), row_conversion.arm_rows(arms))
            self._insert(connection, schema.counters, ({"name": "arms", "value": 0},))
            connection.execute(BUMP_ARMS)

    def arms(self) -> list[Arm]:
        return self._all(select(schema.arms).order_by(schema.arms.c.position), row_conversion.arm_of)

    def arms_revision(self) -> int:
        """How often the arms were set."""
        column = schema.counters.c
        with self.database.read() as connection:
            return connection.scalar(select(column.value).where(column.name == "arms")) or 0

    def add_key(self, hash: str, user: str, roles: str = "use,feedback", arm: str | None = None) -> None:
        """Add a key by its SHA-256, or change whose it is; `accounts` knows organisations and limits."""
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
        found: dict[str, list[T]] = {}
        for ids in chunks(list(dict.fromkeys(session_ids))):
            query = select(table).where(table.c.session_id.in_(ids)).order_by(*order)
            with self.database.read() as connection:
                for row in connection.execute(query).mappings():
                    found.setdefault(row["session_id"], []).append(convert(row))
        return found


def _refuse_changed(to: Recording, keys: Mapping[str, bool]) -> None:
    for hash, needs_consent in keys.items():
        found = to.all(KEY, {"hash": hash})
        if not found or found[0][2] is not None:
            raise KeyChangedError("this API key was revoked: ask for another one")
        user, organisation, _ = found[0]
        if needs_consent and not _agrees(to, organisation, user):
            raise KeyChangedError("consent was taken back since this API key was looked up: send it again")


def _as_agreed(to: Recording, session: Session) -> Session:
    """A session that begins now has the consent that holds now; one that began without it stays without."""
    if session.source is not Source.LIVE or not session.consent:
        return session
    return replace(session, consent=_agrees(to, session.organisation, session.user))


def _agrees(to: Recording, organisation: str, user: str) -> bool:
    return agrees(to.all(SAID, {"organisation": organisation, "user": user}), organisation, user)


def _refuse_taken(
    to: Recording, table: Table, new: Sequence[row_conversion.Row], names: Sequence[str]
) -> None:
    """The same row again is no news; another one under its id would be lost without a word."""
    query = _by_id(table, tuple(names))
    for row in new:
        (found,) = to.all(query, {"id": row["id"]})
        if tuple(found) != tuple(row[name] for name in names):
            raise TakenError(
                f"{table.name.removesuffix('s')} {row['id']!r} is stored already and is another one"
            )


@cache
def _by_id(table: Table, names: tuple[str, ...]) -> Select[Any]:
    return select(*(table.c[name] for name in names)).where(table.c.id == bindparam("id"))


def put_version(database: Database, connection: Connection, row: Checkpoint) -> None:
    """Record a version inside a transaction; one that is known without a batch gets this one.

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
    gone = to.purged_of(session_ids)
    if gone is not None:
        raise PurgedError(f"session {gone!r} was purged: start another one")


def _of_version(table: Table, version: int | None) -> Select[Any]:
    query = select(table).order_by(table.c.order)
    return query if version is None else query.where(table.c.version == version)
