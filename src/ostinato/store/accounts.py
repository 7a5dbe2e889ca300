"""API keys and consent: callers, their limits, and permission to train on their work.

Keys are long and random, and only their SHA-256 is kept. Consent is opt-in twice: the organisation and the
user both have to grant it. Every decision is kept, with its time and the person who made it.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, literal_column, or_, select, update

from ostinato.store.sql.chunks import chunks
from ostinato.store.sql.database import Database
from ostinato.store.sql.errors import StoreError, patient
from ostinato.store.sql.schema import consents, keys
from ostinato.types import ApiKey, Role, Session


class AccountError(StoreError):
    """A key or a consent cannot be set as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """One decision about training; without a user it is the organisation's.

    >>> Consent(organisation="acme", user="", granted=True, set_by="legal", set_at=0.0).granted
    True
    """

    organisation: str
    user: str
    granted: bool
    set_by: str
    set_at: float


def hash_key(key: str) -> str:
    """Return the hexadecimal SHA-256 of a key. Keys are long and random: no salt or slow hash is needed."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def new_key() -> str:
    """Return a fresh key: 256 random bits, after a prefix by which a leaked key can be found."""
    return "ost_" + secrets.token_urlsafe(32)


def read_roles(text: str) -> frozenset[Role]:
    """Return the roles in a text such as `use,feedback`. Raises AccountError for an unknown one or none."""
    try:
        roles = frozenset(Role(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise AccountError(f"{error}: roles are {', '.join(Role)}, separated by commas") from None
    return roles


@patient
class Accounts:
    """The keys and consents of one record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey) -> None:
        """Add a key, or change its owner and its rights; a revoked key stays revoked."""
        _check(key)
        row = {
            "hash": key.hash,
            "user": key.user,
            "organisation": key.organisation,
            "roles": ",".join(sorted(key.roles)),
            "arm": key.arm,
            "requests_per_minute": key.requests_per_minute,
            "concurrent": key.concurrent,
            "created_at": key.created_at or time.time(),
        }
        changed = [name for name in row if name not in {"hash", "created_at"}]
        with self._database.write() as connection:
            connection.execute(self._database.upsert(keys, *changed), row)

    def key(self, hash: str) -> ApiKey | None:
        """Return the key with this SHA-256, or None when it is unknown or revoked."""
        query = select(keys).where(keys.c.hash == hash, keys.c.revoked_at.is_(None))
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            return _key_of(row, consent=consented(connection, row["organisation"], row["user"]))

    def keys(self) -> list[ApiKey]:
        """Return all keys that are not revoked, sorted by organisation and user."""
        query = select(keys).where(keys.c.revoked_at.is_(None))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(keys.c.organisation, keys.c.user)).mappings().all()
            return [_key_of(r, consent=consented(connection, r["organisation"], r["user"])) for r in rows]

    def revoke(self, id: str) -> ApiKey:
        """Refuse the key from now on. Raises AccountError unless exactly one key's hash begins with `id`."""
        matches = [key for key in self.keys() if id and key.hash.startswith(id)]
        if len(matches) != 1:
            raise AccountError(f"{len(matches)} keys begin with {id!r}: `ostinato keys list` shows their ids")
        self.retire([matches[0].hash])
        return matches[0]

    def retire(self, hashes: Sequence[str]) -> None:
        """Refuse the keys with these SHA-256 from now on; unknown and revoked ones are left alone."""
        change = update(keys).where(keys.c.revoked_at.is_(None)).values(revoked_at=time.time())
        with self._database.write() as connection:
            for some in chunks(hashes):
                connection.execute(change.where(keys.c.hash.in_(some)))

    def set_consent(self, *, organisation: str = "", user: str = "", granted: bool, by: str) -> Consent:
        """Record a decision that holds from now on. Raises AccountError without an organisation or a user."""
        if not organisation and not user:
            raise AccountError("consent needs an owner: give an organisation, a user, or both")
        consent = Consent(
            organisation=organisation, user=user, granted=granted, set_by=by, set_at=time.time()
        )
        with self._database.write() as connection:
            connection.execute(consents.insert(), {name: getattr(consent, name) for name in CONSENT_COLUMNS})
        return consent

    def consents(self) -> list[Consent]:
        """Return every decision ever made, oldest first."""
        query = select(*(consents.c[name] for name in CONSENT_COLUMNS)).order_by(consents.c.order)
        with self._database.read() as connection:
            return [Consent(**row) for row in connection.execute(query).mappings()]

    def consented(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        """Return, for each pair of organisation and user, True when both agree now."""
        with self._database.read() as connection:
            return {pair: consented(connection, *pair) for pair in set(pairs)}

    def may_train_on(self, sessions: Iterable[Session]) -> list[Session]:
        """Return those of these sessions that may be trained on, in their order.

        Their people agreed when they began, and still do; where no person worked, the session's word holds.
        """
        some = [session for session in sessions if session.consent]
        agreed = self.consented([(each.organisation, each.user) for each in some if each.source.of_people])
        return [each for each in some if not each.source.of_people or agreed[each.organisation, each.user]]


CONSENT_COLUMNS = ("organisation", "user", "granted", "set_by", "set_at")
DECISIONS = (
    select(consents.c.user, consents.c.granted)
    .where(
        consents.c.organisation == bindparam("organisation"),
        or_(consents.c.user == bindparam("user"), consents.c.user == literal_column("''")),
    )
    .order_by(consents.c.order)
)
"""The decisions of one user and of their organisation, oldest first."""


def consented(connection: Connection, organisation: str, user: str) -> bool:
    """Return True when a user, and their organisation if they belong to one, agree to training."""
    decisions = connection.execute(DECISIONS, {"organisation": organisation, "user": user})
    return agrees(decisions, organisation, user)


def agrees(decisions: Iterable[Sequence[Any]], organisation: str, user: str) -> bool:
    """Return True when the last `DECISIONS` of both grant consent; without a decision there is none."""
    last: dict[str, bool] = {row[0]: row[1] for row in decisions}
    return bool(last.get(user)) and (not organisation or bool(last.get("")))


def _key_of(row: RowMapping, *, consent: bool) -> ApiKey:
    fields: dict[str, Any] = {**row, "roles": read_roles(row["roles"]), "consent": consent}
    del fields["revoked_at"]
    return ApiKey(**fields)


def _check(key: ApiKey) -> None:
    if not key.user:
        raise AccountError("a key needs a user")
    if not key.roles:
        raise AccountError(f"a key of {key.user} needs at least one role of {', '.join(Role)}")
    for name, most in (("requests_per_minute", key.requests_per_minute), ("concurrent", key.concurrent)):
        if most is not None and most < 1:
            raise AccountError(f"{name} must be at least 1, or left out for no limit, got {most}")
