"""The agent: request a reply, run the tools it calls, until it calls none. Everyone runs this same loop.

::

    run = converse ─► prompt ─► end          a person: converse ─► prompt ─► prompt ─► … ─► end
                        │
                        └ ask ─► permitted? ─► instructions, tool ─► observation ─► ask ─► …
"""

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial

from ostinato.extend import PluginError
from ostinato.harness import ahead, instructions
from ostinato.harness.ahead import Start
from ostinato.harness.client import (
    MODEL,
    Ask,
    ContextExceeded,
    GatewayRefused,
    GatewayUnavailable,
    Message,
    Reply,
)
from ostinato.harness.conversation import INTERRUPTED, PLAN, Call, Conversation, Outcome, call_of
from ostinato.harness.errors import NotPermitted
from ostinato.harness.execute import Executor, ToolResult
from ostinato.harness.permissions.rules import ALLOW_ALL, Action, Judgement, Permissions
from ostinato.harness.profiles.profile import profile
from ostinato.harness.profiles.prompt import USAGE
from ostinato.harness.providers.base import NONE, Providers
from ostinato.harness.roles import Keeper, ModelClient, Observer
from ostinato.harness.session_log import FORMAT, LogEventKind, SessionLog
from ostinato.harness.users import Grant, PermissionAnswer, PermissionRequest, User
from ostinato.sandbox.base import EndedWithinError, Sandbox, SandboxError
from ostinato.types import Ending, Signal, SignalKind, Source, TurnKind

SUMMARIZE_AT = 0.75
"""The share of the context that may be full before the model writes a summary of its own."""
SUMMARY_TOKENS = 1_200
"""The most tokens of a summary, thinking included."""
REFUSED = {Grant.NO: "by the user", Grant.ABSENT: "unasked, and nobody is there to ask"}
FILES = {"read", "write", "edit"}
"""The tools whose path may lead below a nested AGENTS.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessConfig:
    """The limits of a session.

    >>> HarnessConfig(max_turns=3).max_broken
    1
    """

    max_turns: int = 10
    max_tokens: int = 64
    """The most tokens of one completion."""
    max_context: int = 448
    """The most tokens of prompt and completion together; beyond it no further turn begins."""
    temperature: float = 1.0
    max_broken: int = 1
    """The number of broken replies that get their error as a result; one more ends the session."""
    summarize_after: int | None = None
    """Tokens beyond the first instructions at which the model summarises its work, in a profile that
    summarises; none takes three quarters of `max_context`."""
    command_timeout_s: float = 20.0
    """The longest time limit that a command may request."""
    profile: str = "core"
    """The name of the profile: the prompt and the tools that the model is shown."""


class Agent:
    """The agent over one sandbox. The state of a session is in its Conversation, never here."""

    def __init__(
        self,
        client: ModelClient,
        sandbox: Sandbox,
        user: User,
        config: HarnessConfig = HarnessConfig(),
        *,
        observer: Observer | None = None,
        permissions: Permissions = ALLOW_ALL,
        keeper: Keeper | None = None,
        providers: Providers = NONE,
        model: str = MODEL,
    ) -> None:
        self._client = client
        self._model = model
        self._sandbox = sandbox
        self._user = user
        more = providers.tools.offers if providers.tools is not None else ()
        self._profile = profile(config.profile).beside(more)
        self._tools = Executor(
            sandbox,
            user,
            command_timeout_s=config.command_timeout_s,
            profile=self._profile,
            providers=providers,
        )
        self._config = config
        self._observer = observer
        self._permissions = permissions
        self._keeper = keeper

    async def run(
        self,
        instruction: str,
        *,
        session_id: str,
        source: Source = Source.LIVE,
        task_id: str | None = None,
    ) -> Outcome:
        """Run one whole session and post its ENDING signal; raises GatewayRefused for a wrong request."""
        conversation = self.converse(session_id, source=source, task_id=task_id)
        outcome = await self.prompt(conversation, instruction)
        return await self.end(conversation, outcome)

    def converse(
        self,
        session_id: str,
        *,
        source: Source = Source.LIVE,
        task_id: str | None = None,
        log: SessionLog | None = None,
        seed: int | None = None,
    ) -> Conversation:
        """Return a session to prompt: a new one, or the one that its log describes."""
        conversation = Conversation(
            session_id=session_id,
            permissions=self._permissions,
            source=source,
            task_id=task_id,
            log=log,
            seed=seed,
        )
        if log is not None and log.events:
            conversation.recall(log.events)
        return conversation

    async def prompt(self, conversation: Conversation, text: str) -> Outcome:
        """Work until the model is done with the user's words. Cancelling it ends this prompt alone.

        Raises GatewayRefused; whatever it raises, the conversation can go on.
        """
        return await self._work(conversation, text)

    async def go_on(self, conversation: Conversation) -> Outcome:
        """Work on without new words, after a limit stopped the session or at the start of a branch."""
        return await self._work(conversation, None)

    async def _work(self, conversation: Conversation, text: str | None) -> Outcome:
        try:
            if text is not None:
                await self._start(conversation, text)
            ending = await self._until_done(conversation)
        except EndedWithinError as error:  # an own command ended the sandbox: no way out of a bad verdict
            conversation.reason = str(error)
            conversation.settle(conversation.reason)
            ending = Ending.BROKEN
        except (GatewayUnavailable, PluginError, SandboxError) as error:
            conversation.reason = str(error)
            conversation.settle(conversation.reason)
            ending = Ending.INFRASTRUCTURE
        except BaseException as error:
            conversation.settle(INTERRUPTED)
            conversation.note(LogEventKind.CANCELLED, reason=str(error))
            raise
        return conversation.outcome(ending)

    async def end(self, conversation: Conversation, outcome: Outcome) -> Outcome:
        """Post the ending of the session; an ending that cannot be recorded makes it INFRASTRUCTURE."""
        try:
            await self._signal(conversation, outcome.ending)
        except (GatewayUnavailable, GatewayRefused) as error:
            if isinstance(error, GatewayRefused) and outcome.ending is not Ending.INFRASTRUCTURE:
                raise
            lost = "; ".join(filter(None, (outcome.reason, f"the ending could not be recorded: {error}")))
            return replace(outcome, ending=Ending.INFRASTRUCTURE, reason=lost)
        return outcome

    async def _start(self, conversation: Conversation, text: str) -> None:
        if not conversation.messages:
            system = self._profile.system + await instructions.at_root(self._sandbox)
            conversation.messages.append({"role": "system", "content": system})
            conversation.note(
                LogEventKind.SESSION,
                format=FORMAT,
                id=conversation.session_id,
                root=self._sandbox.root,
                profile=self._profile.name,
                harness=self._profile.hash,
                tools=list(self._profile.tools),
                system=system,
            )
        conversation.start(text)

    async def _until_done(self, conversation: Conversation) -> Ending:
        config = self._config
        while conversation.turns < config.max_turns and conversation.tokens < config.max_context:
            try:
                reply = await self._ask(conversation)
            except ContextExceeded as error:
                conversation.reason = f"the model cannot read more: {error.message}"
                return Ending.TOKEN_LIMIT
            if reply.finish == "length":
                conversation.settle("the reply was cut")
                conversation.reason = f"the reply was cut, with {conversation.tokens:,} tokens in all"
                return Ending.TOKEN_LIMIT
            await self._act(conversation, reply)
            if conversation.broken > config.max_broken:
                return Ending.BROKEN
            if reply.broken is None and not reply.message.get("tool_calls"):
                conversation.final = reply.message["content"] or ""
                return Ending.FINISHED
            if self._is_nearly_full(conversation) and not await self._summarize(conversation):
                return Ending.TOKEN_LIMIT
        if conversation.turns >= config.max_turns:
            return Ending.TURN_LIMIT
        conversation.reason = (
            f"the conversation is full: {conversation.tokens:,} of {config.max_context:,} tokens"
        )
        return Ending.TOKEN_LIMIT

    def _is_nearly_full(self, conversation: Conversation) -> bool:
        return self._profile.summarize is not None and conversation.tokens >= self._limit(conversation)

    def _limit(self, conversation: Conversation) -> int:
        """Return the tokens of prompt and completion at which the model is asked for a summary."""
        full = int(SUMMARIZE_AT * self._config.max_context)
        after = self._config.summarize_after
        return full if after is None else min(full, (conversation.first or 0) + after)

    async def _summarize(self, conversation: Conversation) -> bool:
        """Let the model summarise its state and go on from the summary alone; False when it wrote none."""
        query = {"role": "user", "content": self._profile.summarize}
        try:
            reply = await self._ask(conversation, query)
        except ContextExceeded as error:
            conversation.reason = str(error)
            return False
        text = reply.message.get("content")
        unusable = reply.broken is not None or reply.finish == "length" or not text
        if unusable or reply.message.get("tool_calls"):
            conversation.settle("this was the time for a summary")
            conversation.reason = "the model wrote no summary"
            return False
        conversation.restart(str(text))
        return True

    async def _ask(self, conversation: Conversation, query: Message | None = None) -> Reply:
        """Return the next reply; with `query`, a question of the harness, the turn is of the kind summary."""
        turn, conversation.next_turn = conversation.next_turn, None
        asked = conversation.messages if query is None else [*conversation.messages, query]
        summary_tokens = min(SUMMARY_TOKENS, self._config.max_context // 4)
        ask = Ask(
            session_id=conversation.session_id,
            turn=turn,
            messages=tuple(asked),
            tools=self._profile.tools,
            max_tokens=self._config.max_tokens if query is None else summary_tokens,
            temperature=self._config.temperature,
            source=conversation.source,
            task_id=conversation.task_id,
            harness=self._profile.hash,
            kind=TurnKind.MAIN if query is None else TurnKind.SUMMARY,
            model=self._model,
            seed=conversation.seed_of(turn),
        )
        reply = await self._client.reply(ask, self._observer.text if self._observer else None)
        conversation.add_reply(reply, reply.turn if reply.turn is not None else turn or 0)
        if self._observer:
            self._observer.reply(reply)
        return reply

    async def _act(self, conversation: Conversation, reply: Reply) -> None:
        """Run the calls of a reply and append, in order, the results that the model will read."""
        calls = [call_of(wire, self._profile) for wire in reply.message.get("tool_calls", ())]
        if reply.broken is not None and not calls:
            conversation.broken += 1
            conversation.add_observation(None, f"error: {reply.broken}", "InvalidArguments")
            return
        broken = False
        for run in ahead.runs(calls):
            async with ahead.begun(run, partial(_judged, conversation.permissions), self._result) as starts:
                for call, start in zip(run, starts, strict=True):
                    observation = await self._call(conversation, call, start, last=call is calls[-1])
                    broken = broken or observation.broken
        conversation.broken += broken

    async def _result(self, call: Call) -> ToolResult:
        on_output = partial(self._observer.output, call) if self._observer else None
        return await self._tools.run(call.name, call.arguments, on_output)

    async def _call(self, conversation: Conversation, call: Call, start: Start, *, last: bool) -> ToolResult:
        conversation.calls.append(call.tool)
        conversation.note(
            LogEventKind.CALL, id=call.id, name=call.name, arguments=dict(call.arguments), tool=call.tool
        )
        if self._observer:
            self._observer.call(call)
        observation = await self._refusal(conversation, call) or await self._kept(conversation, call, start)
        if call.tool == PLAN and observation.error is None:
            conversation.note_plan(call.meant.arguments)
        conversation.observe(call, self._with_usage(conversation, observation) if last else observation)
        if self._observer:
            self._observer.result(call, observation)
        return observation

    def _with_usage(self, conversation: Conversation, observation: ToolResult) -> ToolResult:
        """Return the result as the model reads it: where it summarises, it sees its own use of tokens."""
        if self._profile.summarize is None:
            return observation
        line = USAGE.format(used=conversation.tokens, limit=self._limit(conversation))
        return replace(observation, text=f"{observation.text}\n{line}")

    async def _refusal(self, conversation: Conversation, call: Call) -> ToolResult | None:
        """Return the refusal that the model reads when the call may not run; None when it may."""
        if call.meant.error is not None:
            return None
        permissions, answered = conversation.permissions, set[str]()
        judged = await _judged(permissions, call)
        while judged.action is Action.ASK and not answered.issuperset(judged.asks):
            request = PermissionRequest(
                call_id=call.id,
                tool=call.tool,
                arguments=call.meant.arguments,
                asks=judged.asks,
                grants=judged.grants,
                reason=judged.reason,
            )
            decision = await self._asked(conversation, request)
            if not decision.grant.permits:
                words = f": {decision.words}" if decision.words else ""
                return _not_permitted(REFUSED[decision.grant] + words)
            # While the user thought, a program may have changed what the call does, so it is judged again.
            answered.update(judged.asks)
            permissions = permissions.granting(judged.grants)
            judged = await _judged(permissions, call)
        return _not_permitted(f"by {judged.reason}") if judged.action is Action.DENY else None

    async def _asked(self, conversation: Conversation, request: PermissionRequest) -> PermissionAnswer:
        rules = [{"tool": r.tool, "pattern": r.pattern, "action": r.action.value} for r in request.grants]
        conversation.note(
            LogEventKind.ASKED, id=request.call_id, tool=request.tool, asks=list(request.asks), grants=rules
        )
        decision = await self._user.permit(request)
        always = decision.grant is Grant.ALWAYS
        answered = {"grant": decision.grant.value, "rules": rules if always else [], "words": decision.words}
        conversation.note(LogEventKind.ANSWERED, id=request.call_id, **answered)
        if always:
            conversation.grant(request.grants)
        return decision

    async def _kept(self, conversation: Conversation, call: Call, start: Start) -> ToolResult:
        """Run the call between two checkpoints; the second is taken even when the call is cancelled."""
        checkpoint = await self._keeper.before(call) if self._keeper else None
        if self._keeper is None or checkpoint is None:
            return await self._run(conversation, call, start)
        conversation.note(LogEventKind.CHECKPOINT, id=call.id, tree=checkpoint)
        try:
            return await self._run(conversation, call, start)
        finally:
            for edit in await self._keeper.after(call, checkpoint):
                conversation.note_edit(call, edit)
                if self._observer:
                    self._observer.edited(call, edit)

    async def _run(self, conversation: Conversation, call: Call, start: Start) -> ToolResult:
        observation = await start()
        if observation.error is not None or call.tool not in FILES:
            return observation
        more = await instructions.below(self._sandbox, call.meant.arguments["path"], conversation.told)
        return replace(observation, text=observation.text + more)

    async def _signal(self, conversation: Conversation, ending: Ending) -> None:
        if conversation.messages:
            conversation.note(LogEventKind.ENDING, ending=ending.value)
        signal = Signal(
            session_id=conversation.session_id,
            kind=SignalKind.ENDING,
            value=ending.value,
            observed_at=time.time(),
            id=f"{conversation.session_id}/ending",
        )
        await self._client.signal(signal)


async def _judged(permissions: Permissions, call: Call) -> Judgement:
    """Judge a call; where there is a repository, in a thread, since its settings are read."""
    if not permissions.root:
        return permissions.decide(call.tool, call.meant.arguments)
    return await asyncio.to_thread(permissions.decide, call.tool, call.meant.arguments)


def _not_permitted(why: str) -> ToolResult:
    error = NotPermitted(f"not permitted {why}")
    return ToolResult(text=f"error: {error}", error=error)
