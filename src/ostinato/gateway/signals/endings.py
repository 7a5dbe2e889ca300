"""How sessions end that do not say how: an agent's hook tells that it left, or nobody comes back.

    session.end of the hooks ─► at once, or when the turns under way are recorded ─┐
    no turn for IDLE_S ───────► the next sweep ────────────────────────────────────┴─► ENDING, in one commit

Only live sessions are ended so. A session is `abandoned` when its last turn made a call whose result nobody
brought, else `finished`. It may go on afterwards: its turns are recorded, its first ending stays.
"""

import asyncio
import logging
import time

from ostinato.gateway.conversation_cache import ConversationCache
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.tokens.message_graph import HeldConversation
from ostinato.gateway.tokens.reply_parser import parse_reply
from ostinato.model.renderer import Renderer
from ostinato.store import PurgedError, Store, StoreError
from ostinato.types import Ending, Signal, SignalKind, Source, Turn, TurnKind

log = logging.getLogger(__name__)
IDLE_S = 6 * 3_600.0
"""Without a turn for so long nobody comes back: people have lunch and meetings."""
SWEEP_S = 30.0
LATE_S = 60.0
"""A word that a session ended, older than its last turn by more than this, is not about that turn."""


class SessionEndings:
    """Ends sessions; one per gateway."""

    def __init__(
        self, store: Store, conversations: ConversationCache, recorder: Recorder, renderer: Renderer
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._recorder = recorder
        self._renderer = renderer
        self._said: dict[str, float] = {}
        """When it was said of sessions that they ended, while turns of theirs were under way."""

    async def run(self) -> None:
        """Sweeps for as long as the gateway lives."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep(time.time())
            except StoreError as error:
                log.warning("sessions could not be ended, the next sweep tries again: %s", error)

    async def sweep(self, now: float) -> None:
        """Ends what was said to have ended, and what has been idle for IDLE_S. Raises StoreError."""
        for session_id, at in list(self._said.items()):
            await self.said(session_id, at)
        for session_id in await asyncio.to_thread(self._store.idle_sessions, now - IDLE_S):
            await self._end(session_id, now - IDLE_S)

    async def said(self, session_id: str, at: float) -> None:
        """The session's agent says that it left, at `at`. Raises StoreError."""
        self._said[session_id] = at
        if await self._end(session_id, at + LATE_S):
            del self._said[session_id]

    async def _end(self, session_id: str, before: float) -> bool:
        """Ends a session whose last turn began before `before`; False while a turn is under way."""
        conversation = await self._conversations.held(session_id)
        if conversation is None or conversation.session.source is not Source.LIVE:
            return True
        # No turn begins while the lock is held, so none is under way when the ending is committed.
        async with conversation.lock:
            if conversation.is_sampling:
                return False
            await self._commit(conversation, before)
        self._conversations.let_go(session_id)
        return True

    async def _commit(self, conversation: HeldConversation, before: float) -> None:
        session_id = conversation.session.id
        session = await asyncio.to_thread(self._store.session, session_id)
        turns = await asyncio.to_thread(self._store.turns, session_id)
        own = [turn for turn in turns if turn.kind is not TurnKind.SIDE]
        if session is None or session.ending is not None or any(turn.started_at > before for turn in turns):
            return
        how = Ending.ABANDONED if own and self._waits(own[-1]) else Ending.FINISHED
        signal = Signal(
            id=f"{session_id}/ended",
            session_id=session_id,
            kind=SignalKind.ENDING,
            value=how.value,
            observed_at=time.time(),
        )
        try:
            await asyncio.shield(self._recorder.submit(signals=[signal]))
        except PurgedError:
            log.info("session %s was purged before it ended", session_id)

    def _waits(self, turn: Turn) -> bool:
        """Whether the turn made a call: a result was to follow."""
        return bool(parse_reply(self._renderer, turn.completion, ()).parsed.tool_calls)
