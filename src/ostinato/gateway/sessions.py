"""Which session a request belongs to, and the conversations held in memory."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.gateway.conversation import Conversation
from ostinato.gateway.errors import ApiError, invalid
from ostinato.store import ApiKey, Role, Store
from ostinato.types import Session, Source, Turn, new_id

SESSION_ID = re.compile(r"[\w.:/#@+=-]{1,200}", re.ASCII)
HEADER = re.compile(r"[\x20-\x7e]{1,200}")
MOST_HELD = 4_000
"""About 10 KB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the headers say. Told by the client: for correlation, never for authorisation.

    >>> Identity(session_id="s1", source=Source.LIVE, task_id=None, harness="", turn=None).source.value
    'live'
    """

    session_id: str
    source: Source
    task_id: str | None
    harness: str
    turn: int | None
    """The index the client expects this turn to have; None when it does not say."""


def identify(headers: Mapping[str, str], key: ApiKey) -> Identity:
    """Reads the session headers. ApiError 400 for a malformed one, 403 for a source the key may not claim."""
    session_id = headers.get("x-session-id") or new_id()
    if not SESSION_ID.fullmatch(session_id):
        raise invalid("X-Session-Id must be 1 to 200 letters, digits or ._:/#@+=-", "X-Session-Id")
    return Identity(
        session_id=session_id,
        source=_source(headers.get("x-session-source", Source.LIVE.value), key),
        task_id=_header(headers, "x-task-id"),
        harness=_header(headers, "x-harness-hash") or "",
        turn=_turn(headers.get("x-turn")),
    )


def _source(text: str, key: ApiKey) -> Source:
    try:
        source = Source(text)
    except ValueError:
        allowed = ", ".join(Source)
        raise invalid(f"X-Session-Source must be one of {allowed}", "X-Session-Source") from None
    if source is not Source.LIVE and not key.may(Role.ADMIN):
        raise ApiError(403, f"{source.value} sessions need a key with the role admin", code="role_required")
    return source


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is not None and not HEADER.fullmatch(value):
        raise invalid(f"{name} must be 1 to 200 printable characters", name)
    return value


def _turn(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise invalid("X-Turn must be a small whole number", "X-Turn")
    return int(text)


class Conversations:
    """The newest conversations. One that was let go is read again from the store when it goes on."""

    def __init__(self, store: Store, most: int = MOST_HELD) -> None:
        self._store = store
        self._most = most
        self._held: OrderedDict[str, Conversation] = OrderedDict()

    def get(self, identity: Identity, key: ApiKey) -> Conversation:
        """The session's conversation, perhaps not loaded yet."""
        conversation = self._held.get(identity.session_id)
        if conversation is None:
            conversation = Conversation(_new_session(identity, key))
            self._held[identity.session_id] = conversation
            self._let_oldest_go()
        self._held.move_to_end(identity.session_id)
        return conversation

    async def load(self, conversation: Conversation) -> list[Turn]:
        """Asks the store, if that was not done yet; the turns it had, for `recall`."""
        if conversation.loaded:
            return []
        session, turns = await asyncio.to_thread(self._read, conversation.session.id)
        conversation.load(session, turns)
        return turns

    async def session(self, session_id: str) -> Session | None:
        """A session that has been recorded."""
        held = self._held.get(session_id)
        if held is not None and held.recorded:
            return held.session
        return await asyncio.to_thread(self._store.session, session_id)

    def let_go(self, session_id: str) -> None:
        """Forgets a session that ended; if it goes on after all, the store knows it."""
        held = self._held.get(session_id)
        if held is not None and not held.lock.locked():
            del self._held[session_id]

    def _read(self, session_id: str) -> tuple[Session | None, list[Turn]]:
        session = self._store.session(session_id)
        return session, self._store.turns(session_id) if session is not None else []

    def _let_oldest_go(self) -> None:
        while len(self._held) > self._most:
            oldest = next(iter(self._held))
            if self._held[oldest].lock.locked():
                return
            del self._held[oldest]


def check_owner(session: Session, key: ApiKey) -> None:
    """A session id is no secret: only its own user, or an admin, may go on with it."""
    theirs = (session.user, session.organisation) == (key.user, key.organisation)
    if not theirs and not key.may(Role.ADMIN):
        raise ApiError(403, f"session {session.id!r} belongs to another user", code="not_your_session")


def _new_session(identity: Identity, key: ApiKey) -> Session:
    """What a person does is theirs to give; the sessions we hold with ourselves are ours."""
    return Session(
        id=identity.session_id,
        source=identity.source,
        user=key.user,
        organisation=key.organisation,
        consent=key.consent or identity.source is not Source.LIVE,
        arm="",
        task_id=identity.task_id,
        harness=identity.harness,
        started_at=time.time(),
    )
