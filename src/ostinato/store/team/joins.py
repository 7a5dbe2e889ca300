"""Join codes: a secret by which one person gets their first key, once and for some days.

Of a code only its SHA-256 is kept, as of a key. The person's machine makes the key and sends its hash, so no
key travels, and a machine that missed the answer may ask again with the same key; another one is refused.
"""

import secrets
import time
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, delete, select, update

from ostinato.store.accounts import CONSENT_COLUMNS, Consent, hash_key
from ostinato.store.sql.database import Database
from ostinato.store.sql.errors import StoreError, patient
from ostinato.store.sql.schema import consents, joins, keys
from ostinato.types import DEVELOPER


class JoinError(StoreError):
    """A code is refused; `kind` is `unknown`, `used` or `expired`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """The person whom a code is for.

    >>> Invited(user="ada", organisation="payments", expires_at=0.0).used_at
    """

    user: str
    organisation: str
    expires_at: float
    used_at: float | None = None


def new_code() -> str:
    """Return a fresh code: 160 random bits, after a prefix by which a leaked one can be found."""
    return "join_" + secrets.token_hex(20)


@patient
class Joins:
    """The codes of one record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def invite(self, user: str, organisation: str, *, expires_at: float) -> str:
        """Return a new code for the user; one that was not used before is void."""
        code = new_code()
        row = {"hash": hash_key(code), "user": user, "organisation": organisation, "expires_at": expires_at}
        with self._database.write() as connection:
            forget(connection, user, organisation, unused=True)
            connection.execute(joins.insert(), row)
        return code

    def open(self) -> list[Invited]:
        """Return the codes that nobody has used, also those that expired, by organisation and user."""
        query = select(joins).where(joins.c.used_at.is_(None)).order_by(joins.c.organisation, joins.c.user)
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        return [_invited(row) for row in rows]

    def withdraw(self, user: str, organisation: str) -> int:
        """Make the user's unused codes void, and return their number."""
        with self._database.write() as connection:
            return forget(connection, user, organisation, unused=True)

    def redeem(self, code: str, key: str, *, consent: bool | None, now: float | None = None) -> Invited:
        """Give the key with the SHA-256 `key` to the code's user, and keep their word on training if any.

        The same code with the same key changes nothing. Raises JoinError.
        """
        hashed, now = hash_key(code), time.time() if now is None else now
        with self._database.write() as connection:
            row = connection.execute(select(joins).where(joins.c.hash == hashed)).mappings().one_or_none()
            if row is None:
                raise JoinError("unknown", "this join code is not known here, or was withdrawn")
            invited = _invited(row)
            if invited.used_at is not None:
                if row["key"] == key:
                    return invited
                raise JoinError(
                    "used", f"this join code was used on {_day(invited.used_at)}, and is valid once"
                )
            if invited.expires_at <= now:
                raise JoinError("expired", f"this join code was valid until {_day(invited.expires_at)}")
            mine = update(joins).where(joins.c.hash == hashed, joins.c.used_at.is_(None))
            if connection.execute(mine.values(used_at=now, key=key)).rowcount != 1:
                raise JoinError("used", "this join code was used by another machine at this moment")
            owner = {"user": invited.user, "organisation": invited.organisation}
            roles = ",".join(sorted(DEVELOPER))
            connection.execute(keys.insert(), {"hash": key, **owner, "roles": roles, "created_at": now})
            if consent is not None:
                said = Consent(**owner, granted=consent, set_by=invited.user, set_at=now)
                connection.execute(consents.insert(), {name: getattr(said, name) for name in CONSENT_COLUMNS})
        return invited


def forget(connection: Connection, user: str, organisation: str | None, *, unused: bool = False) -> int:
    """Delete the user's codes, in one organisation if it is given, or the `unused` ones alone."""
    theirs = [joins.c.user == user] + ([] if organisation is None else [joins.c.organisation == organisation])
    return connection.execute(delete(joins).where(*theirs, *[joins.c.used_at.is_(None)] * unused)).rowcount


def _invited(row: RowMapping) -> Invited:
    return Invited(**{name: row[name] for name in ("user", "organisation", "expires_at", "used_at")})


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
