"""One session of an editor: a workbench, its person, and the prompt that is being worked on.

::

    session/prompt ─► turn ──────────────► done: stop reason
                        └ question ─► message, end_turn ─► next session/prompt is its answer ─► turn goes on
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from acp import RequestError, schema

from ostinato.harness.client import GatewayRefused
from ostinato.harness.conversation import Outcome
from ostinato.harness.frontends.acp.person import PendingQuestion, Person
from ostinato.harness.frontends.acp.replay import replay
from ostinato.harness.frontends.acp.updates import Updates
from ostinato.harness.frontends.acp.wire import INTERNAL, INVALID_PARAMS
from ostinato.harness.git import GitError
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.session_log import LogEvent
from ostinato.harness.tools.names import shown
from ostinato.harness.users import PermissionRequest
from ostinato.harness.workspace.undo import named
from ostinato.harness.workspace.workbench import Options, Workbench
from ostinato.types import Ending, SignalKind

AUTH_REQUIRED, NOT_FOUND = -32000, -32002
STOP: Mapping[Ending, schema.StopReason] = {
    Ending.FINISHED: "end_turn",
    Ending.BROKEN: "end_turn",
    Ending.TURN_LIMIT: "max_turn_requests",
    Ending.TOKEN_LIMIT: "max_tokens",
}
UNDO = "/undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionMode:
    """A permission mode: the calls that need the person's consent.

    Its rules come after the person's own. A rule of the person that denies always holds.
    """

    name: str
    description: str
    rules: tuple[Rule, ...] = ()


def _rule(tool: str, action: Action) -> Rule:
    return Rule(tool=tool, pattern="*", action=action)


MODES: Mapping[str, PermissionMode] = {
    "edit": PermissionMode(name="Edit freely", description="Edits without asking; asks before commands."),
    "ask": PermissionMode(
        name="Ask first",
        description="Asks before every edit and command.",
        rules=(_rule("edit", Action.ASK),),
    ),
    "read": PermissionMode(
        name="Read only", description="Changes no file.", rules=(_rule("edit", Action.DENY),)
    ),
    "auto": PermissionMode(
        name="Never ask", description="Allows what no rule denies.", rules=(_rule("*", Action.ALLOW),)
    ),
}


class EditorSession:
    """A session of an editor, created with `open`.

    Its errors are RequestErrors, whose message the editor shows.
    """

    def __init__(
        self, client: Any, updates: Updates, person: Person, bench: Workbench, options: Options
    ) -> None:
        self._client = client
        self.updates = updates
        self._person = person
        self.bench = bench
        self.options = options
        self.mode = "edit"
        self._turn: asyncio.Task[Outcome] | None = None
        self._question: PendingQuestion | None = None
        self._posts: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, client: Any, options: Options, root: Path, *, session_id: str = "", elicits: bool = False
    ) -> Self:
        """Open a new session in `root`, or continue one from its log. Raise the errors of Workbench.open."""

        async def send(update: Any) -> None:
            await client.session_update(session_id=session.id, update=update)

        async def decided(request: PermissionRequest, allowed: bool, denied: Sequence[Rule]) -> None:
            session.decide(request, allowed, denied)

        updates = Updates(send, str(root))
        person = Person(client, updates, decided, elicits=elicits)
        try:
            here = replace(options, directory=root)
            bench = await Workbench.open(here, person, updates, session_id=session_id)
        except BaseException:
            await updates.close()
            raise
        updates.max_context = bench.config.max_context
        session = cls(client, updates, person, bench, options)
        person.session_id, person.read = session.id, bench.sandbox.read
        return session

    @property
    def id(self) -> str:
        return self.bench.conversation.session_id

    @property
    def begun(self) -> bool:
        return bool(self.bench.conversation.messages)

    async def prompt(self, text: str) -> schema.StopReason:
        """Run the agent on the user's words, or take them as the answer to its question.

        Cancelling this coroutine cancels the turn.
        """
        if text.strip() == UNDO:
            return await self._undo()
        for notice in self.bench.notices:
            self.updates.say(f"{notice}\n\n")
        self.bench.notices.clear()
        turn = self._start_or_answer(text)
        next_question = asyncio.ensure_future(self._person.questions.get())
        try:
            await asyncio.wait({turn, next_question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            next_question.cancel()
        if not turn.done():
            self._question = next_question.result()
            self.updates.say(self._question.question)
            await self.updates.flush()
            return "end_turn"
        return await self._stop_reason(turn)

    async def cancel(self) -> None:
        """End the turn but not the session, and wait until the turn has ended."""
        turn, self._question = self._turn, None
        if turn is not None:
            turn.cancel()
            await asyncio.wait({turn})

    def set_mode(self, mode: str) -> None:
        """Set the permission mode. Raise RequestError for an unknown one."""
        if mode not in MODES:
            raise RequestError(INVALID_PARAMS, f"no mode {mode!r}: use one of {', '.join(MODES)}")
        conversation, base = self.bench.conversation, self.bench.permissions
        granted = conversation.permissions.rules[len(base.rules) + len(MODES[self.mode].rules) :]
        rules = (*base.rules, *MODES[mode].rules, *granted)
        conversation.permissions = Permissions(rules, root=base.root)
        self.mode = mode

    def decide(self, request: PermissionRequest, allowed: bool, denied: Sequence[Rule]) -> None:
        """Apply a decision and post it to the gateway in the background, so that the work does not wait.

        A call that was rejected for the session stays rejected.
        """
        self.bench.conversation.grant(denied)
        turn = self.bench.conversation.last_turn
        name = f"decision/{turn}/{request.call_id}"
        post = self.bench.post(SignalKind.TOOL_DECISION, float(allowed), name, turn=turn)
        task = asyncio.ensure_future(post)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def replay(self, events: Sequence[LogEvent]) -> None:
        """Show the editor the history in the session's log."""
        replay(self.updates, events)
        await self.updates.flush()

    async def close(self) -> None:
        await self.cancel()
        await asyncio.gather(*self._posts)
        await self.bench.close()
        await self.updates.close()

    def _start_or_answer(self, text: str) -> asyncio.Task[Outcome]:
        if self._question is not None and self._turn is not None:
            question, self._question = self._question, None
            question.answer.set_result(text)
            return self._turn
        if self._turn is not None:
            raise RequestError(INVALID_PARAMS, "the session is at work on a prompt: cancel it first")
        self._turn = asyncio.ensure_future(self.bench.prompt(text))
        return self._turn

    async def _stop_reason(self, turn: asyncio.Task[Outcome]) -> schema.StopReason:
        self._turn = None
        self.updates.stop()
        try:
            outcome = turn.result()
        except asyncio.CancelledError:
            return "cancelled"
        except GatewayRefused as error:
            code = AUTH_REQUIRED if error.status in {401, 403} else INTERNAL
            raise RequestError(code, str(error)) from error
        finally:
            await self.updates.flush()
        if outcome.ending is Ending.INFRASTRUCTURE:
            raise RequestError(INTERNAL, outcome.reason)
        if outcome.ending is Ending.BROKEN:
            self.updates.say("stopped: the model's tool calls could not be read")
            await self.updates.flush()
        return STOP[outcome.ending]

    async def _undo(self) -> schema.StopReason:
        try:
            done = await self.bench.undo()
        except (GitError, OSError) as error:
            raise RequestError(INTERNAL, f"could not undo: {error}") from error
        if done is None:
            self.updates.say("nothing to undo")
        else:
            left = f"; changed since, so left: {', '.join(map(shown, done.left))}" if done.left else ""
            left += f"; in no checkpoint, so left: {', '.join(named(done.unsaved))}" if done.unsaved else ""
            self.updates.say(f"undone: {', '.join(map(shown, done.restored)) or 'nothing'}{left}")
        await self.updates.flush()
        return "end_turn"


def with_profile(options: Options, name: str) -> Options:
    """Return the options with a profile that was chosen, whatever the model was trained under."""
    return replace(options, config=replace(options.config, profile=name), fits_profile=False)
