"""The people who look: which key they came with, and what they may see.

The operator, who may read the store's file, sees everything. A key with the role `admin` sees its own
organisation, or everything when it belongs to none. Any other key with the role `use` sees the sessions of
its own user.

Consent decides what is trained on, and what other people read. The operator reads the text of every session,
and people that of their own; an admin of an organisation reads those texts that its people consented to.
"""

import hmac
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.sql.schema import sessions
from ostinato.types import ApiKey, Role, Session

COOKIE = "ostinato_dashboard"
REMEMBERED_S = 5.0
"""Seconds for which a revoked key may still look."""
MOST_VISITS = 1_000
"""The most browsers that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Somebody who looks at the pages.

    >>> Viewer(name="ada", organisation="acme", admin=True).operator
    False
    """

    name: str
    organisation: str = ""
    admin: bool = False

    @property
    def operator(self) -> bool:
        """True for who may see all organisations, and the system as a whole."""
        return self.admin and not self.organisation

    def sees(self, session: Session) -> bool:
        """Return whether the viewer may know of a session."""
        if self.operator:
            return True
        ours = session.organisation == self.organisation
        return ours and (self.admin or session.user == self.name)

    def conditions(self) -> list[Any]:
        """Return the SQL conditions that leave the sessions which the viewer may know of."""
        if self.operator:
            return []
        ours = [sessions.c.organisation == self.organisation]
        return ours if self.admin else [*ours, sessions.c.user == self.name]


OPERATOR = Viewer(name="operator", admin=True)


def readable(viewer: Viewer, session: Session, consents: Mapping[tuple[str, str], bool]) -> bool:
    """Return whether a viewer may read the texts of a session that they see: the operator and its own user
    may, others while its people consent."""
    own = session.source.of_people and session.user == viewer.name
    return viewer.operator or (own and viewer.sees(session)) or shared(session, consents)


def shared(session: Session, consents: Mapping[tuple[str, str], bool]) -> bool:
    """Return whether the people of a session consented, and still do: others read it, and it may train."""
    if not session.consent:
        return False
    return not session.source.of_people or consents.get((session.organisation, session.user), False)


def agreed(store: Store, some: Collection[Session]) -> dict[tuple[str, str], bool]:
    """Return the present consent of the people of these sessions."""
    pairs = {(s.organisation, s.user) for s in some if s.source.of_people and s.consent}
    return store.accounts.consented(pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserVisit:
    """A browser that was let in.

    >>> BrowserVisit(key=None, token="t").key is None
    True
    """

    key: str | None
    """The hash of its key; None for the operator, who came by the address that the command printed."""
    token: str
    """The secret that its forms carry."""


class Doorkeeper:
    """Lets callers in by a ticket, a key or a cookie."""

    def __init__(self, store: Store, ticket: str = "") -> None:
        self._store = store
        self._ticket = ticket or secrets.token_urlsafe(24)
        self._visits: dict[str, BrowserVisit] = {}
        self._known: dict[str, tuple[float, ApiKey | None]] = {}

    @property
    def ticket(self) -> str:
        """The secret in the address that the command prints to the person who started it."""
        return self._ticket

    def enter(self, *, ticket: str = "", key: str = "") -> str | None:
        """Return a new cookie for a right ticket, or for a key that may look; None for others."""
        if ticket and hmac.compare_digest(ticket.encode(errors="replace"), self._ticket.encode()):
            return self._remember(BrowserVisit(key=None, token=secrets.token_urlsafe(24)))
        hashed = hash_key(key)
        if key and self._viewer_of(hashed) is not None:
            return self._remember(BrowserVisit(key=hashed, token=secrets.token_urlsafe(24)))
        return None

    def leave(self, cookie: str) -> None:
        """Forget a browser."""
        self._visits.pop(cookie, None)

    def viewer(self, cookie: str, authorization: str) -> Viewer | None:
        """Return who sends a request with this cookie or this header; None for a stranger."""
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return self._viewer_of(hash_key(key.strip()))
        visit = self._visits.get(cookie)
        if visit is None:
            return None
        return OPERATOR if visit.key is None else self._viewer_of(visit.key)

    def token(self, cookie: str) -> str:
        """Return the secret that the forms of this browser carry; empty for a stranger."""
        visit = self._visits.get(cookie)
        return "" if visit is None else visit.token

    def is_own_form(self, cookie: str, token: str) -> bool:
        """Return whether a form was made for this browser."""
        own = self.token(cookie)
        return bool(own) and hmac.compare_digest(own.encode(), token.encode(errors="replace"))

    def _remember(self, visit: BrowserVisit) -> str:
        cookie = secrets.token_urlsafe(24)
        while len(self._visits) >= MOST_VISITS:
            self._visits.pop(next(iter(self._visits)))
        self._visits[cookie] = visit
        return cookie

    def _viewer_of(self, hashed: str) -> Viewer | None:
        now = time.monotonic()
        checked_at, key = self._known.get(hashed, (-REMEMBERED_S, None))
        if now - checked_at >= REMEMBERED_S:
            key = self._store.key(hashed)
            if len(self._known) >= MOST_VISITS:
                self._known.clear()
            self._known[hashed] = (now, key)
        if key is None or not key.may(Role.USE):
            return None
        return Viewer(name=key.user, organisation=key.organisation, admin=key.may(Role.ADMIN))
