"""One model call from checked request to recorded turn."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

from ostinato.gateway.arms import ArmTable
from ostinato.gateway.calls import misuse
from ostinato.gateway.chat import ChatRequest
from ostinato.gateway.conversation import Conversation, answer_of, plain
from ostinato.gateway.errors import ApiError, unavailable
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.sessions import Conversations, Identity, check_owner
from ostinato.gateway.upstream import EngineClient, Sampled
from ostinato.model.renderer import Parsed, Renderer
from ostinato.store import ApiKey, PurgedError, StoreError
from ostinato.types import Arm, Completion, GenerateRequest, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request on its way: who asks what of which conversation."""

    chat: ChatRequest
    identity: Identity
    key: ApiKey
    conversation: Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be asked of which arm."""

    arm: Arm
    segment: int
    index: int
    request: GenerateRequest
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn that is in the store, and how it reads."""

    turn: Turn
    message: dict[str, Any]
    finish: str


class Turns:
    """Makes turns. Every method but `answer_again` is called under the conversation's lock."""

    def __init__(
        self,
        *,
        renderer: Renderer,
        arms: ArmTable,
        conversations: Conversations,
        recorder: Recorder,
        engines: EngineClient,
    ) -> None:
        self.renderer = renderer
        self._arms = arms
        self._conversations = conversations
        self._recorder = recorder
        self._engines = engines

    async def begin(self, call: Call) -> Plan | Answer:
        """What to ask, or the answer itself when this turn was recorded before and its answer got lost."""
        conversation, chat = call.conversation, call.chat
        turns = await self._conversations.load(conversation)
        check_owner(conversation.session, call.key)
        expected = call.identity.turn
        if expected is not None and expected != conversation.turns:
            return self._again(conversation, expected)
        if turns:
            conversation.recall(turns, chat, self.renderer)
        await self._arms.refresh()
        return self._plan(call, self._arm(conversation, call.key))

    async def generate(self, plan: Plan) -> Completion:
        return await self._engines.generate(lambda: self._address(plan.arm), plan.request)

    def stream(self, plan: Plan) -> AsyncGenerator[Sampled | Completion]:
        return self._engines.stream(lambda: self._address(plan.arm), plan.request)

    async def finish(self, call: Call, plan: Plan, completion: Completion) -> Answer:
        """Records the turn; returns when it is committed. ApiError 503 when the store refuses."""
        parsed = self.renderer.parse(completion.ids)
        broken = parsed.broken or misuse(parsed.tool_calls, call.chat.tools)
        turn = Turn(
            session_id=call.conversation.session.id,
            index=plan.index,
            segment=plan.segment,
            arm=plan.arm.name,
            prompt_ids=plan.request.prompt_ids,
            completion=completion,
            started_at=plan.started_at,
            latency_s=time.time() - plan.started_at,
            broken=None if broken is None else plain(broken),
        )
        answer = _answer(turn, parsed)
        await self._commit(call, turn, answer)
        return answer

    async def _commit(self, call: Call, turn: Turn, answer: Answer) -> None:
        conversation = call.conversation
        new_session = None if conversation.recorded else conversation.session
        # Before the wait: if the client goes away during it, the writer still commits this turn.
        conversation.add(turn, call.chat, answer.message)
        conversation.recorded = True
        done = self._recorder.submit(turn=turn, session=new_session)
        done.add_done_callback(lambda done: conversation.forget() if done.exception() else None)
        try:
            await asyncio.shield(done)
        except PurgedError as error:
            raise ApiError(410, str(error), code="session_purged") from error
        except StoreError as error:
            raise unavailable(f"the turn could not be recorded: {error}", "not_recorded") from error

    def _again(self, conversation: Conversation, expected: int) -> Answer:
        if conversation.last is None or expected != conversation.last.index:
            raise ApiError(
                409,
                f"session {conversation.session.id!r} has {conversation.turns} turns, X-Turn says {expected}",
                code="turn_conflict",
            )
        return _answer(conversation.last, self.renderer.parse(conversation.last.completion.ids))

    def _arm(self, conversation: Conversation, key: ApiKey) -> Arm:
        """The session's arm for as long as it exists, so that no session changes its model half-way."""
        arm = self._arms.get(conversation.session.arm) or self._arms.choose(key.user, key.arm)
        if not conversation.recorded:
            conversation.session = replace(conversation.session, arm=arm.name)
        return arm

    def _address(self, arm: Arm) -> str:
        return (self._arms.get(arm.name) or arm).engine

    def _plan(self, call: Call, arm: Arm) -> Plan:
        conversation, chat = call.conversation, call.chat
        prompt_ids, segment = conversation.prompt(chat, self.renderer)
        session_id, index = conversation.session.id, conversation.turns
        request = GenerateRequest(
            request_id=f"{session_id}/{index}",
            session_id=session_id,
            prompt_ids=prompt_ids,
            stop_ids=self.renderer.stop_ids,
            max_tokens=chat.max_tokens,
            temperature=chat.temperature,
            seed=_seed(session_id, index) if chat.seed is None else chat.seed,
        )
        return Plan(arm=arm, segment=segment, index=index, request=request, started_at=time.time())


def _answer(turn: Turn, parsed: Parsed) -> Answer:
    message = answer_of(parsed, turn.index)
    finish = "tool_calls" if "tool_calls" in message else turn.completion.finish.value
    return Answer(turn=turn, message=message, finish=finish)


def _seed(session_id: str, index: int) -> int:
    """Below 2**62, different for each turn, the same when the turn is sampled again."""
    digest = hashlib.blake2b(f"{session_id}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 2
