"""The person at the editor, who answers in a form or with the next prompt and permits calls in the editor's
dialog.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acp import RequestError, schema
from acp.helpers import text_block, tool_content, update_tool_call

from ostinato.harness.conversation import Edit
from ostinato.harness.errors import ToolError, UserAborted
from ostinato.harness.frontends.acp.updates import KINDS, Updates, title
from ostinato.harness.permissions.rules import Action, Rule
from ostinato.harness.tools import contents, edit
from ostinato.harness.tools.names import presentable
from ostinato.harness.users import Grant, PermissionAnswer, PermissionRequest, choice_of, numbered
from ostinato.sandbox.base import SandboxError

OPTIONS: tuple[tuple[schema.PermissionOptionKind, str], ...] = (
    ("allow_once", "Allow"),
    ("allow_always", "Allow for this session"),
    ("reject_once", "Reject"),
    ("reject_always", "Reject for this session"),
)
ANSWER = "answer"
Read = Callable[[str], Awaitable[bytes]]


@dataclass(slots=True)
class PendingQuestion:
    """A question that was sent as a message. The next prompt is its answer."""

    question: str
    answer: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


async def _read_nothing(path: str) -> bytes:
    raise FileNotFoundError(path)


class Person:
    """A User in an editor. `client` is the editor's end of the connection; `decided` is called with each
    decision.

    The code that opens the session sets `session_id`, and `read`, which reads a file of the sandbox.
    """

    def __init__(
        self,
        client: Any,
        updates: Updates,
        decided: Callable[[PermissionRequest, bool, Sequence[Rule]], Awaitable[None]],
        *,
        elicits: bool,
    ) -> None:
        self._client = client
        self._updates = updates
        self._decided = decided
        self._elicits = elicits
        self.session_id = ""
        self.read: Read = _read_nothing
        self.questions: asyncio.Queue[PendingQuestion] = asyncio.Queue()
        """Questions that wait for the next prompt."""

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        await self._updates.flush()
        asked = "\n".join([question, *numbered(options)])
        if self._elicits:
            return choice_of(await self._elicit(asked), options)
        pending = PendingQuestion(asked)
        self.questions.put_nowait(pending)
        return choice_of(await pending.answer, options)

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        """Ask in the editor's dialog. A dialog that was closed or could not be shown counts as a refusal."""
        await self._updates.flush()
        options = [schema.PermissionOption(kind=kind, name=name, option_id=kind) for kind, name in OPTIONS]
        shown = await self._described(request)
        try:
            response = await self._client.request_permission(
                session_id=self.session_id, tool_call=shown, options=options
            )
            outcome = response.outcome
        except RequestError:
            outcome = None
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else "reject_once"
        grant = {"allow_once": Grant.ONCE, "allow_always": Grant.ALWAYS}.get(chosen, Grant.NO)
        denied = [replace(rule, action=Action.DENY) for rule in request.grants]
        await self._decided(request, grant.permits, denied if chosen == "reject_always" else ())
        return PermissionAnswer(grant=grant)

    async def _elicit(self, question: str) -> str:
        fields = schema.ElicitationSchema(
            properties={ANSWER: schema.ElicitationStringPropertySchema(type="string", title="Answer")},
            required=[ANSWER],
        )
        mode = schema.ElicitationFormSessionMode(session_id=self.session_id, requested_schema=fields)
        try:
            response = await self._client.create_elicitation(message=question, mode=mode)
        except RequestError as error:
            raise UserAborted(f"the editor could not ask the user: {error}") from error
        content = response.content if isinstance(response, schema.AcceptElicitationResponse) else None
        answer = str((content or {}).get(ANSWER, "")).strip()
        if not answer:
            raise UserAborted("the user did not answer")
        return answer

    async def _described(self, request: PermissionRequest) -> schema.ToolCallUpdate:
        """Return the call with the changes it would make, and exactly the rules that "always" would add."""
        diffs: list[Any] = [
            diff for each in await self._proposed(request) for diff in self._updates.diffs(each)
        ]
        added = [f"for this session: {rule}" for rule in request.grants]
        why = [f"read as a whole: {request.reason}"] if request.reason else []
        words = tool_content(text_block(presentable("\n".join([*request.asks, *why, *added]))))
        shown = update_tool_call(
            self._updates.editors_id(request.call_id),
            title=title(request.tool, request.arguments),
            kind=KINDS.get(request.tool, "other"),
            status="pending",
            content=[*diffs, words],
            raw_input={
                key: presentable(value) if isinstance(value, str) else value
                for key, value in request.arguments.items()
            },
        )
        return schema.ToolCallUpdate.model_validate(shown.model_dump(exclude={"session_update"}))

    async def _proposed(self, request: PermissionRequest) -> list[Edit]:
        """Return the edit that `edit` or `write` would make; nothing when the call would fail."""
        arguments = request.arguments
        if request.tool not in {"edit", "write"}:
            return []
        path = arguments["path"]
        try:
            before: bytes | None = await self.read(path)
        except FileNotFoundError:
            before = None
        except (OSError, SandboxError):
            return []
        try:
            if request.tool == "write":
                after = contents.rewritten(before, arguments["content"], path)
            else:
                old, new = arguments["old_string"], arguments["new_string"]
                found = contents.decode(before or b"", path)
                everywhere = arguments.get("replace_all", False)
                after = found.encoded(edit.replace(found.text, old, new, replace_all=everywhere))
        except ToolError:
            return []
        return [Edit(path=path, before=before, after=after)]
