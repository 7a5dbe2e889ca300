"""One model call, from the checked request to the recorded turn."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from ostinato.gateway.access.identity import Identity
from ostinato.gateway.access.keys import KeyRing
from ostinato.gateway.arms import ArmTable
from ostinato.gateway.conversation_cache import ConversationCache, check_owner, ends_of
from ostinato.gateway.dialects.base import Answer
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError, unavailable
from ostinato.gateway.offload import offload
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.secret_filter import SecretFilter
from ostinato.gateway.timing import Timing
from ostinato.gateway.tokens.message_graph import GraphPosition, HeldConversation
from ostinato.gateway.tokens.reply_parser import ParsedReply, answer_of, parse_reply, plain, without_defaults
from ostinato.gateway.tokens.text_stream import FirstCall, TextStream
from ostinato.gateway.tokens.tool_calls import misuse
from ostinato.gateway.upstream import EngineClient, EngineEvent, SampledToken, shared_distribution
from ostinato.model.families import Renderer
from ostinato.store import KeyChangedError, PurgedError, StoreError, TakenError
from ostinato.types import ApiKey, Arm, Completion, FinishReason, GenerateRequest, Sampling, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A checked request with its key, its identity and the conversation it belongs to."""

    chat: ChatRequest
    size: int
    """Bytes of the request's body, which decide whether work on it leaves the event loop: see `offload`."""
    digests: list[bytes]
    identity: Identity
    key: ApiKey
    conversation: HeldConversation
    timing: Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The request to an engine, the arm it goes to, and the position of its turn in the graph."""

    arm: Arm
    position: GraphPosition
    index: int
    request: GenerateRequest
    started_at: float


class Turns:
    """Makes turns: within `turn` comes `generate` or `stream`, then `finish`."""

    def __init__(
        self,
        *,
        renderer: Renderer,
        secret_filter: SecretFilter,
        arms: ArmTable,
        conversations: ConversationCache,
        recorder: Recorder,
        engines: EngineClient,
        keys: KeyRing,
    ) -> None:
        self._keys = keys
        self.renderer = renderer
        self._secret_filter = secret_filter
        self._arms = arms
        self._conversations = conversations
        self._recorder = recorder
        self._engines = engines

    @asynccontextmanager
    async def turn(self, call: ModelCall) -> AsyncIterator[Plan | Answer]:
        """Plan a turn for the block, and release its segment and index unless the block recorded it.

        The block gets the recorded answer instead when the client repeats the last turn.
        """
        plan = await self._begin(call)
        try:
            yield plan
        finally:
            if isinstance(plan, Plan):
                call.conversation.leave(plan.position, plan.index)

    async def _begin(self, call: ModelCall) -> Plan | Answer:
        conversation, chat = call.conversation, call.chat
        async with conversation.lock:
            self._conversations.catch_up(conversation)
            turns = await self._conversations.load(conversation)
            check_owner(conversation.session, call.key)
            expected = call.identity.turn
            if expected is not None and expected != conversation.turns:
                return self._recorded_answer(call, expected)
            if conversation.is_partial(chat, call.digests):
                turns = turns or await self._conversations.reread(conversation)
                conversation.recall(turns, chat, call.digests, self.renderer)
            await self._arms.refresh()
            return await self._plan(call, self._arm(conversation, call.key))

    async def generate(self, call: ModelCall, plan: Plan) -> Completion:
        call.timing.wait_for_engine()
        if not _has_limits(call.chat):
            completion = await self._engines.generate(lambda: self._pool(plan.arm), plan.request)
            call.timing.engine_replied()
            return completion
        async with aclosing(self.stream(call, plan)) as events:
            async for event in events:
                if isinstance(event, Completion):
                    call.timing.engine_replied()
                    return event
        raise AssertionError("a stream ends with its completion")

    def stream(self, call: ModelCall, plan: Plan) -> AsyncGenerator[EngineEvent]:
        """Yield tokens as they are sampled, then the completion.

        A stop text, or the first call where one was asked for, ends both and frees the engine.
        """
        events = self._engines.stream(lambda: self._pool(plan.arm), plan.request)
        return self._until(events, call.chat) if _has_limits(call.chat) else events

    async def _until(
        self, events: AsyncGenerator[EngineEvent], chat: ChatRequest
    ) -> AsyncGenerator[EngineEvent]:
        text, tokens = TextStream(self.renderer, chat.stop), list[SampledToken]()
        calls = FirstCall(self.renderer) if chat.one_call else None
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Completion):
                    yield event
                    return
                for token in event:
                    tokens.append(token)
                    text.add((token.id,))
                    if text.stopped:
                        yield _cut(tokens)
                        return
                    if calls is not None and (length := calls.ends_at((token.id,))):
                        yield _cut(tokens[:length])
                        return
                yield event

    async def finish(self, call: ModelCall, plan: Plan, completion: Completion) -> Answer:
        """Record the turn; return once it is committed. Raise ApiError 503 when the store refuses it."""
        reply = self._parsed(completion, call.chat)
        # A completion that `max_tokens` cut is short, not wrong: nobody knows how it would have ended.
        cut = completion.finish is FinishReason.LENGTH
        broken = None if cut else reply.parsed.broken or misuse(reply.parsed.tool_calls, call.chat.tools)
        turn = Turn(
            session_id=call.conversation.session.id,
            index=plan.index,
            segment=0,  # numbered below, since another turn may be recorded first
            arm=plan.arm.name,
            prompt_ids=plan.request.prompt_ids,
            completion=completion,
            started_at=plan.started_at,
            latency_s=time.time() - plan.started_at,
            broken=None if broken is None else plain(broken),
            kind=call.identity.kind,
            untrainable=plan.position.untrainable,
            sampling=plan.request.sampling,
        )
        turn, stored = await offload(call.size, self._secret_filter.mark, turn, call.chat)
        segment = call.conversation.segment_of(plan.position)
        numbered = replace(turn, segment=segment)
        stored = numbered if stored is turn else replace(stored, segment=segment)
        answer = answer_of(numbered, reply)
        await self._commit(call, plan.position, answer, stored)
        return answer

    async def _commit(self, call: ModelCall, position: GraphPosition, answer: Answer, stored: Turn) -> None:
        conversation = call.conversation
        new_session = None if conversation.recorded else conversation.session
        # This comes before the wait: when the client leaves during it, the recorder still commits this turn.
        (message,) = without_defaults((answer.message,), call.chat.tools)
        end = conversation.add(answer.turn, position, call.digests[-1], message)
        conversation.recorded = True
        unnamed = call.identity.session_id is None
        self._conversations.note(conversation, ends_of(end, message) if unnamed else ())
        done = self._recorder.submit(turn=stored, session=new_session, key=call.key)
        index = answer.turn.index
        done.add_done_callback(
            lambda done: conversation.failed(index) if done.exception() else conversation.committed(index)
        )
        try:
            await asyncio.shield(done)
        except PurgedError as error:
            raise ApiError(410, str(error), code="session_purged") from error
        except KeyChangedError as error:
            raise self._keys.changed(call.key, error) from error
        except TakenError as error:
            raise unavailable(
                f"another gateway answered in this session at the same time ({error}): ask again",
                "turn_taken",
            ) from error
        except StoreError as error:
            raise unavailable(f"the turn could not be recorded: {error}", "not_recorded") from error

    def _recorded_answer(self, call: ModelCall, expected: int) -> Answer:
        last = call.conversation.last
        if last is None or expected != last.index:
            raise ApiError(
                409,
                f"session {call.conversation.session.id!r} has {call.conversation.turns} turns, "
                f"X-Turn says {expected}",
                code="turn_conflict",
            )
        return answer_of(last, self._parsed(last.completion, call.chat))

    def _parsed(self, completion: Completion, chat: ChatRequest) -> ParsedReply:
        return parse_reply(self.renderer, completion, chat.stop, one_call=chat.one_call, tools=chat.tools)

    def _arm(self, conversation: HeldConversation, key: ApiKey) -> Arm:
        """Return the session's arm while it exists, so that no session changes its model half-way."""
        session = conversation.session
        arm = self._arms.get(session.arm) or self._arms.choose(key.user, key.arm, session)
        if not conversation.recorded:
            conversation.session = replace(conversation.session, arm=arm.name)
        return arm

    async def _pool(self, arm: Arm) -> Sequence[str]:
        await self._arms.refresh()  # while all requests wait for an engine that is gone, none else reads them
        return (self._arms.get(arm.name) or arm).engines

    async def _plan(self, call: ModelCall, arm: Arm) -> Plan:
        conversation, chat = call.conversation, call.chat
        position = await conversation.find_position(chat, call.digests, self.renderer, call.size)
        session_id, index = conversation.session.id, conversation.plan()
        request = GenerateRequest(
            request_id=f"{session_id}/{index}",
            session_id=session_id,
            prompt_ids=position.prompt_ids,
            stop_ids=self.renderer.stop_ids,
            max_tokens=chat.max_tokens,
            sampling=_seeded(chat, session_id, index),
        )
        return Plan(arm=arm, position=position, index=index, request=request, started_at=time.time())


def _has_limits(chat: ChatRequest) -> bool:
    """Return whether the text of an answer can end it, so that it is read while it is sampled."""
    return bool(chat.stop) or chat.one_call


def _cut(tokens: list[SampledToken]) -> Completion:
    """Return the completion of `tokens`, which end with a stop text or with a call."""
    return Completion(
        ids=tuple(token.id for token in tokens),
        logprobs=tuple(token.logprob for token in tokens),
        versions=tuple(token.version for token in tokens),
        finish=FinishReason.STOP_SEQUENCE,
        distribution=shared_distribution(tokens),
    )


def _seeded(chat: ChatRequest, session_id: str, index: int) -> Sampling:
    """Return the settings with the client's seed, or one below 2**62.

    That differs for each turn, and is the same when the turn is sampled again.
    """
    if chat.seeded:
        return chat.sampling
    digest = hashlib.blake2b(f"{session_id}/{index}".encode(), digest_size=8).digest()
    return replace(chat.sampling, seed=int.from_bytes(digest) >> 2)
