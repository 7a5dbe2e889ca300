"""The cache of conversations, which also finds the session that a request without a session id continues."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence

from ostinato.gateway.access.identity import Identity, owned
from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.gateway.errors import ApiError
from ostinato.gateway.tokens.message_graph import HeldConversation
from ostinato.gateway.tokens.reply_parser import START, next_digest
from ostinato.store import Store
from ostinato.types import ApiKey, Event, Role, Session, Source, Turn, new_id

MOST_HELD = 4_000
MOST_IDS = 50_000_000
"""Token ids in all conversations together; four bytes each."""
MOST_ENDS = 200_000
TELLING = 24
"""Characters from which two equal answers are unlikely to be a coincidence."""


class ConversationCache:
    """The conversations used most recently. One that was dropped is read from the store when it goes on."""

    def __init__(self, store: Store, most: int = MOST_HELD) -> None:
        self._store = store
        self._most = most
        self._held: OrderedDict[str, HeldConversation] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._ids = 0
        self._ends: OrderedDict[tuple[str, bytes], str] = OrderedDict()
        """Sessions for which the client gave no id, by owner and a digest of what was said in them."""

    def __len__(self) -> int:
        return len(self._held)

    async def find(
        self, identity: Identity, key: ApiKey, chat: ChatRequest, digests: Sequence[bytes]
    ) -> HeldConversation:
        """Return the conversation that a request belongs to, perhaps not loaded yet."""
        if identity.session_id is not None:
            return self.get(identity, await self.named(identity.session_id, key), key)
        return self.get(identity, await self._by_content(owner_of(key), chat, digests), key)

    async def named(self, name: str, key: ApiKey) -> str:
        """Return the id of the user's own session of this name.

        It is the name itself, unless the session of that name is another user's: a name that somebody has
        taken must not keep others from theirs. An admin means the session of that very name.
        """
        held = self._held.get(name)
        if held is None and self._store.lacks_session(name):
            return name
        session = held.session if held is not None else await self.session(name)
        return name if session is None or may_use(session, key) else owned(name, key)

    def get(self, identity: Identity, session_id: str, key: ApiKey) -> HeldConversation:
        conversation = self._held.get(session_id)
        if conversation is None:
            conversation = HeldConversation(_new_session(identity, session_id, key))
            self._held[session_id] = conversation
            self._let_oldest_go()
        self._held.move_to_end(session_id)
        return conversation

    def note(self, conversation: HeldConversation, ends: Sequence[bytes]) -> None:
        """Make each of `ends` lead to this session from now on; called after a turn."""
        session = conversation.session
        self._resize(session.id, conversation.size)
        for digest in ends:
            self._ends[owner_of(session), digest] = session.id
        while len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)

    def catch_up(self, conversation: HeldConversation) -> None:
        """Have a conversation read again when another gateway on the same store has recorded turns of it.

        This costs one look-up in a local file. On other databases such turns are noticed when the store
        refuses ours.
        """
        if conversation.loaded and self._store.recorded_turns(conversation.session.id) > conversation.turns:
            conversation.overtaken()

    async def load(self, conversation: HeldConversation) -> list[Turn]:
        """Read the session from the store unless that was done; return its turns, for `recall`."""
        if conversation.loaded:
            return []
        if self._store.lacks_session(conversation.session.id):
            conversation.load(None, [])
            return []
        session, turns = await asyncio.to_thread(self._read, conversation.session.id)
        conversation.load(session, turns)
        return turns

    async def reread(self, conversation: HeldConversation) -> list[Turn]:
        """Return all turns from the store, to find nodes that are no longer held."""
        return await asyncio.to_thread(self._store.turns, conversation.session.id)

    async def session(self, session_id: str) -> Session | None:
        """Return a recorded session; None when it is not recorded."""
        held = self._held.get(session_id)
        if held is not None and held.recorded:
            return held.session
        return await asyncio.to_thread(self._store.session, session_id)

    async def held(self, session_id: str) -> HeldConversation | None:
        """Return the conversation of a recorded session and hold it; None when it is not recorded."""
        session = await self.session(session_id)
        if session is None:
            return None
        conversation = self._held.setdefault(session_id, HeldConversation(session))
        self._let_oldest_go()
        return conversation

    def let_go(self, session_id: str) -> None:
        """Drop a session that ended. If it goes on after all, it is read from the store."""
        held = self._held.get(session_id)
        if held is not None and not held.in_use:
            self._drop(session_id)

    async def _by_content(self, owner: str, chat: ChatRequest, digests: Sequence[bytes]) -> str:
        """Return the session in which the request's last answers were given, else a new one.

        It looks for the whole history up to an answer, then for the answer alone. Both may date from before a
        restart, so last it looks for the newest session that began like this one.
        """
        answers = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
        ends = [digests[i + 1] for i in reversed(answers)]
        ends += [next_digest(START, chat.messages[i]) for i in reversed(answers)]
        session_id = next((self._ends[owner, end] for end in ends if (owner, end) in self._ends), None)
        if session_id is not None:
            return session_id
        prefix = f"auto-{_beginning(owner, chat)}-"
        if answers:
            known = await asyncio.to_thread(self._store.newest_session, prefix)
            if known is not None:
                return known.id
        return prefix + new_id()[:8]

    def _read(self, session_id: str) -> tuple[Session | None, list[Turn]]:
        session = self._store.session(session_id)
        return session, self._store.turns(session_id) if session is not None else []

    def _resize(self, session_id: str, size: int) -> None:
        if session_id in self._held:
            self._ids += size - self._sizes.get(session_id, 0)
            self._sizes[session_id] = size
            self._let_oldest_go()

    def _let_oldest_go(self) -> None:
        while len(self._held) > self._most or self._ids > MOST_IDS:
            oldest = next(iter(self._held))
            if self._held[oldest].in_use:
                return
            self._drop(oldest)

    def _drop(self, session_id: str) -> None:
        del self._held[session_id]
        self._ids -= self._sizes.pop(session_id, 0)


def check_owner(session: Session, key: ApiKey) -> None:
    """Raise ApiError 403 unless the session is the user's own or the key is an admin's.

    A session id is no secret, so knowing it is no permission.
    """
    if not may_use(session, key):
        raise ApiError(403, f"session {session.id!r} belongs to another user", code="not_your_session")


def may_use(one: Session | Event, key: ApiKey) -> bool:
    """Return whether a session or event belongs to the key's user; an admin may use everything."""
    return owner_of(one) == owner_of(key) or key.may(Role.ADMIN)


def owner_of(one: ApiKey | Session | Event) -> str:
    """Return one text for the owner, since a user name counts only within its organisation."""
    return f"{one.organisation}\0{one.user}"


def ends_of(end: bytes, answer: Message) -> list[bytes]:
    """Return the digests by which a session is found: of its history, and of the answer if it is long
    enough."""
    telling = bool(answer.get("tool_calls")) or len(answer.get("content") or "") >= TELLING
    return [end, next_digest(START, answer)] if telling else [end]


def _beginning(owner: str, chat: ChatRequest) -> str:
    """Return a digest of the owner and the messages up to the first of a person."""
    at = hashlib.blake2b(owner.encode(), digest_size=16).digest()
    for message in chat.messages:
        at = next_digest(at, message)
        if message["role"] == "user":
            break
    return at.hex()[:16]


def _new_session(identity: Identity, session_id: str, key: ApiKey) -> Session:
    """Return a new session.

    A person must agree to training on theirs; sessions of our own need no consent.
    """
    return Session(
        id=session_id,
        source=identity.source,
        user=key.user,
        organisation=key.organisation,
        consent=key.consent or identity.source is not Source.LIVE,
        arm="",
        task_id=identity.task_id,
        harness=identity.harness,
        started_at=time.time(),
    )
