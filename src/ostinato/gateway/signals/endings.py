"""The endings of sessions that do not report one: an agent's hook reports that it left, or nobody comes back.

    session.end of the hooks ─► at once, or when the turns under way are recorded ─┐
    no turn for IDLE_S ───────► the next sweep ────────────────────────────────────┴─► ENDING, in one commit

Only live sessions are ended like this. A session is `abandoned` when its last turn made a call for which no
result came, else `finished`. It may go on afterwards: its turns are recorded, its first ending stays.

A session in the background has no person who could leave. One that falls silent lost its machine or its
process, so it ends as INFRASTRUCTURE: it is void, and a warning names it.
"""

import asyncio
import logging
import time

from ostinato.gateway.conversation_cache import ConversationCache
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.tokens.message_graph import HeldConversation
from ostinato.gateway.tokens.reply_parser import parse_reply
from ostinato.model.families import Renderer
from ostinato.store import PurgedError, Store, StoreError
from ostinato.types import Ending, Signal, SignalKind, Source, Turn, TurnKind

log = logging.getLogger(__name__)
IDLE_S = 6 * 3_600.0
"""Seconds without a turn after which a session has ended: long enough for lunch and meetings."""
SWEEP_S = 30.0
LATE_S = 60.0
"""Seconds by which a report of an ending may be older than the last turn and still be about it."""


class SessionEndings:
    """Ends sessions. There is one instance for each gateway."""

    def __init__(
        self, store: Store, conversations: ConversationCache, recorder: Recorder, renderer: Renderer
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._recorder = recorder
        self._renderer = renderer
        self._reported: dict[str, float] = {}
        """The time, by session, of an ending that was reported while turns of it were under way."""

    async def run(self) -> None:
        """Sweep every SWEEP_S seconds, for as long as the gateway runs."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep(time.time())
            except StoreError as error:
                log.warning("sessions could not be ended, the next sweep tries again: %s", error)

    async def sweep(self, now: float) -> None:
        """End the sessions whose ending was reported, and those idle for IDLE_S. Raise StoreError."""
        for session_id, at in list(self._reported.items()):
            await self.agent_left(session_id, at)
        for session_id in await asyncio.to_thread(self._store.idle_sessions, now - IDLE_S):
            await self._end(session_id, now - IDLE_S)

    async def agent_left(self, session_id: str, at: float) -> None:
        """End a session whose agent reported that it left, at `at`. Raise StoreError."""
        self._reported[session_id] = at
        if await self._end(session_id, at + LATE_S):
            del self._reported[session_id]

    async def _end(self, session_id: str, before: float) -> bool:
        """End a session whose last turn began before `before`; return False while a turn is under way."""
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
        how = Ending.ABANDONED if own and self._made_calls(own[-1]) else Ending.FINISHED
        said = await asyncio.to_thread(self._store.signals, session_id)
        if any(one.kind is SignalKind.BACKGROUND for one in said):
            how = Ending.INFRASTRUCTURE
            log.warning("background session %s fell silent without its ending: it is void", session_id)
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

    def _made_calls(self, turn: Turn) -> bool:
        """Return whether the turn made a call, whose result was to follow."""
        return bool(parse_reply(self._renderer, turn.completion, ()).parsed.tool_calls)
