"""Who may call, for whom, how much, and whether their work may be trained on.

Keys are long and random and only their SHA-256 is kept. Consent is opt-in twice: the organisation says yes,
and so does the user; every word is kept with its time and who said it.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, select, update

from ostinato.store.sql.database import Database, StoreError
from ostinato.store.sql.recording import SAID, agrees, chunks
from ostinato.store.sql.schema import consents, keys
from ostinato.types import ApiKey, Role


class AccountError(StoreError):
    """A key or a consent that cannot be set as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """One word on training; without a user it is the organisation's.

    >>> Consent(organisation="acme", user="", granted=True, set_by="legal", set_at=0.0).granted
    True
    """

    organisation: str
    user: str
    granted: bool
    set_by: str
    set_at: float


def hash_key(key: str) -> str:
    """SHA-256 of a key, hexadecimal. Keys are long and random, so no salt and no slow hash."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def new_key() -> str:
    """A fresh key: 256 random bits behind a prefix by which a leak is found."""
    return "ost_" + secrets.token_urlsafe(32)


def read_roles(text: str) -> frozenset[Role]:
    """Roles from `use,feedback`. AccountError for an unknown one or none."""
    try:
        roles = frozenset(Role(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise AccountError(f"{error}: roles are {', '.join(Role)}, separated by commas") from None
    return roles


class Accounts:
    """Keys and consent of one record."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: ApiKey) -> None:
        """Add a key, or change whose it is and what it may; a revoked one stays revoked."""
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
        """The key with this SHA-256, unless it was revoked."""
        query = select(keys).where(keys.c.hash == hash, keys.c.revoked_at.is_(None))
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            return _key_of(row, consent=consented(connection, row["organisation"], row["user"]))

    def keys(self) -> list[ApiKey]:
        """All keys that are not revoked, by organisation and user."""
        query = select(keys).where(keys.c.revoked_at.is_(None))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(keys.c.organisation, keys.c.user)).mappings().all()
            return [_key_of(r, consent=consented(connection, r["organisation"], r["user"])) for r in rows]

    def revoke(self, id: str) -> ApiKey:
        """Refuses the key from now on. AccountError unless exactly one key's hash begins with `id`."""
        found = [key for key in self.keys() if id and key.hash.startswith(id)]
        if len(found) != 1:
            raise AccountError(f"{len(found)} keys begin with {id!r}: `ostinato keys list` shows their ids")
        self.retire([found[0].hash])
        return found[0]

    def retire(self, hashes: Sequence[str]) -> None:
        """Refuse the keys with these SHA-256 from now on; one that is unknown or revoked changes nothing."""
        change = update(keys).where(keys.c.revoked_at.is_(None)).values(revoked_at=time.time())
        with self._database.write() as connection:
            for some in chunks(hashes):
                connection.execute(change.where(keys.c.hash.in_(some)))

    def set_consent(self, *, organisation: str = "", user: str = "", granted: bool, by: str) -> Consent:
        """Records a word; from now on it holds. AccountError when it is nobody's."""
        if not organisation and not user:
            raise AccountError("whose consent? give an organisation, a user, or both")
        said = Consent(organisation=organisation, user=user, granted=granted, set_by=by, set_at=time.time())
        with self._database.write() as connection:
            connection.execute(consents.insert(), {name: getattr(said, name) for name in CONSENT_COLUMNS})
        return said

    def consents(self) -> list[Consent]:
        """Every word ever said, oldest first."""
        query = select(*(consents.c[name] for name in CONSENT_COLUMNS)).order_by(consents.c.order)
        with self._database.read() as connection:
            return [Consent(**row) for row in connection.execute(query).mappings()]

    def consented(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        """For each (organisation, user) whether both agree now."""
        with self._database.read() as connection:
            return {pair: consented(connection, *pair) for pair in set(pairs)}


CONSENT_COLUMNS = ("organisation", "user", "granted", "set_by", "set_at")


def consented(connection: Connection, organisation: str, user: str) -> bool:
    """The user's last word, and their organisation's if they belong to one; no word is no."""
    said = connection.execute(SAID, {"organisation": organisation, "user": user})
    return agrees(said, organisation, user)


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
