"""The agent: ask the model, run the tools it calls, until it stops calling. The same loop for everyone."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ostinato.harness.client import Ask, ContextExceeded, GatewayRefused, GatewayUnavailable, Message, Reply
from ostinato.harness.execute import Executor, Observation
from ostinato.harness.profiles import profile
from ostinato.harness.users import User
from ostinato.sandbox.base import Sandbox, SandboxError
from ostinato.types import Ending, Signal, SignalKind, Source


class Client(Protocol):
    """What the agent needs of a gateway."""

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply: ...

    async def signal(self, signal: Signal) -> None: ...


class Observer(Protocol):
    """Watches a session as it happens; calls under the canonical names, whatever the profile."""

    def text(self, piece: str) -> None: ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> None: ...

    def result(self, observation: Observation) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessConfig:
    """The limits of a session.

    >>> HarnessConfig(max_turns=3).max_broken
    1
    """

    max_turns: int = 10
    max_tokens: int = 64
    """Per turn."""
    max_context: int = 448
    """Prompt and completion together; no further turn is begun beyond it."""
    temperature: float = 1.0
    max_broken: int = 1
    """Broken replies that are answered with their error; one more ends the session."""
    command_timeout_s: float = 20.0
    """The longest that a command may ask for."""
    profile: str = "core"
    """The name of what the model is told and which tools it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a session went, as its agent saw it.

    >>> Outcome(session_id="s1", ending=Ending.FINISHED, final_message="ok", turns=1, calls=()).broken
    0
    """

    session_id: str
    ending: Ending
    final_message: str
    """Text of the last message without a tool call; empty when there is none."""
    turns: int
    calls: tuple[str, ...]
    broken: int = 0
    transcript: tuple[Message, ...] = ()
    reason: str = ""
    """Of an ending that is not the agent's choice."""


@dataclass(slots=True)
class Progress:
    """What one session has gathered so far."""

    session_id: str
    source: Source
    task_id: str | None
    messages: list[Message]
    turns: int = 0
    broken: int = 0
    tokens: int = 0
    calls: list[str] = field(default_factory=list)
    final: str = ""
    reason: str = ""


class Agent:
    """Runs sessions against one sandbox. Holds nothing between sessions."""

    def __init__(
        self,
        client: Client,
        sandbox: Sandbox,
        user: User,
        config: HarnessConfig = HarnessConfig(),
        observer: Observer | None = None,
    ) -> None:
        self._client = client
        self._profile = profile(config.profile)
        self._tools = Executor(
            sandbox, user, command_timeout_s=config.command_timeout_s, profile=self._profile
        )
        self._config = config
        self._observer = observer

    async def run(
        self,
        instruction: str,
        *,
        session_id: str,
        source: Source = Source.LIVE,
        task_id: str | None = None,
    ) -> Outcome:
        """One whole session, its ENDING signal posted. Raises GatewayRefused for a wrong key or request."""
        start: list[Message] = [
            {"role": "system", "content": self._profile.system},
            {"role": "user", "content": instruction},
        ]
        progress = Progress(session_id=session_id, source=source, task_id=task_id, messages=start)
        try:
            ending = await self._until_done(progress)
            await self._signal(progress, ending)
        except (GatewayUnavailable, SandboxError) as error:
            progress.reason = str(error)
            ending = Ending.INFRASTRUCTURE
            await self._signal_failure(progress)
        return _outcome(progress, ending)

    async def _until_done(self, progress: Progress) -> Ending:
        while progress.turns < self._config.max_turns and progress.tokens < self._config.max_context:
            try:
                reply = await self._ask(progress)
            except ContextExceeded as error:
                progress.reason = str(error)
                return Ending.TOKEN_LIMIT
            if reply.finish == "length":
                return Ending.TOKEN_LIMIT
            await self._act(progress, reply)
            if progress.broken > self._config.max_broken:
                return Ending.BROKEN
            if reply.broken is None and not reply.message.get("tool_calls"):
                progress.final = reply.message["content"] or ""
                return Ending.FINISHED
        return Ending.TURN_LIMIT if progress.turns >= self._config.max_turns else Ending.TOKEN_LIMIT

    async def _ask(self, progress: Progress) -> Reply:
        ask = Ask(
            session_id=progress.session_id,
            turn=progress.turns,
            messages=tuple(progress.messages),
            tools=self._profile.tools,
            max_tokens=self._config.max_tokens,
            temperature=self._config.temperature,
            source=progress.source,
            task_id=progress.task_id,
            harness=self._profile.hash,
        )
        reply = await self._client.reply(ask, self._observer.text if self._observer else None)
        progress.turns += 1
        progress.tokens = reply.tokens
        progress.messages.append(reply.message)
        return reply

    async def _act(self, progress: Progress, reply: Reply) -> None:
        """Runs the calls of a reply in order and appends what the model will read."""
        calls = reply.message.get("tool_calls", ())
        if reply.broken is not None and not calls:
            progress.broken += 1
            progress.messages.append({"role": "user", "content": f"error: {reply.broken}"})
            return
        broken = False
        for call in calls:
            observation = await self._call(progress, call["function"])
            broken = broken or observation.broken
            progress.messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": observation.text}
            )
        progress.broken += broken

    async def _call(self, progress: Progress, function: Message) -> Observation:
        name, arguments = function["name"], json.loads(function["arguments"])
        meant = self._profile.reading(name, arguments)
        progress.calls.append(meant.tool)
        if self._observer:
            self._observer.call(meant.tool, meant.arguments)
        observation = await self._tools.run(name, arguments)
        if self._observer:
            self._observer.result(observation)
        return observation

    async def _signal(self, progress: Progress, ending: Ending) -> None:
        signal = Signal(
            session_id=progress.session_id,
            kind=SignalKind.ENDING,
            value=ending.value,
            observed_at=time.time(),
            id=f"{progress.session_id}/ending",
        )
        await self._client.signal(signal)

    async def _signal_failure(self, progress: Progress) -> None:
        """Tells the gateway if it can: it may be what failed, or not know the session yet."""
        try:
            await self._signal(progress, Ending.INFRASTRUCTURE)
        except (GatewayUnavailable, GatewayRefused) as error:
            progress.reason += f"; the ending could not be recorded: {error}"


def _outcome(progress: Progress, ending: Ending) -> Outcome:
    return Outcome(
        session_id=progress.session_id,
        ending=ending,
        final_message=progress.final,
        turns=progress.turns,
        calls=tuple(progress.calls),
        broken=progress.broken,
        transcript=tuple(progress.messages),
        reason=progress.reason,
    )
