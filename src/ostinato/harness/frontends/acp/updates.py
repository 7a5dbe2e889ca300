"""The `session/update` notifications that show an editor what a session does, in order.

::

    agent ─ text, reply, call, output, edited, result ─► Updates ─► queue ─► editor

The agent queues updates without waiting; `flush` waits until all updates so far have been sent to the editor.
"""

import asyncio
import json
import posixpath
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from acp import schema
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_available_commands,
    update_plan,
    update_tool_call,
    update_user_message_text,
)

from ostinato.harness.client import Reply
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.execute import ToolResult
from ostinato.harness.profiles.profile import named_by
from ostinato.harness.tools.names import presentable, shown
from ostinato.types import new_id

KINDS: Mapping[str, schema.ToolKind] = {
    **{"read": "read", "write": "edit", "edit": "edit", "apply_patch": "edit", "bash": "execute"},
    **{"ls": "search", "grep": "search", "glob": "search", "semantic_search": "search"},
}
SUBJECTS = {
    **{"read": "path", "write": "path", "edit": "path", "bash": "command", "grep": "pattern"},
    **{"glob": "pattern", "semantic_search": "query", "ask_user": "question", "ls": "path"},
}
QUIET = {"todo_write"}
"""Tools whose calls the editor shows in a form of their own: the plan instead of a tool call."""
TITLE_CHARS = 200
OUTPUT_EVERY_S = 0.1
OUTPUT_CHARS = 20_000
Send = Callable[[Any], Awaitable[None]]


class Updates:
    """An Observer of one session. `send` sends one update to the editor."""

    def __init__(self, send: Send, root: str) -> None:
        self._send = send
        self._root = root
        self.max_context = 0
        """The most tokens of a session, which is known once its workbench is open."""
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._pump = asyncio.ensure_future(self._deliver())
        self._message_id = new_id()
        self._open: dict[str, str] = {}
        """The editor's id of each running call by the model's id.

        Two are needed, since models use an id again.
        """
        self._number = 0
        self._edits: dict[str, list[Edit]] = {}
        self._output = ""
        self._output_at = 0.0
        self._warned = False

    def text(self, piece: str) -> None:
        chunk = schema.AgentMessageChunk(
            session_update="agent_message_chunk", content=text_block(piece), message_id=self._message_id
        )
        self._queue.put_nowait(chunk)

    def say(self, text: str, style: str = "") -> None:
        """Show a message of the harness itself; an editor has its own styles."""
        self._message_id = new_id()
        self.text(text)
        self._message_id = new_id()

    def user(self, text: str) -> None:
        """Show the user's words when a session is replayed."""
        self._queue.put_nowait(update_user_message_text(text))

    def reply(self, reply: Reply) -> None:
        self._message_id = new_id()
        if reply.trained_under is not None and not self._warned:
            self._warned = True
            self.say(f"{named_by(reply.trained_under)}\n\n")
        self.usage(reply.tokens)

    def commands(self, commands: Sequence[schema.AvailableCommand]) -> None:
        """Offer the commands that the person can type instead of a prompt."""
        self._queue.put_nowait(update_available_commands(commands))

    def usage(self, tokens: int) -> None:
        self._queue.put_nowait(
            schema.UsageUpdate(session_update="usage_update", used=tokens, size=self.max_context)
        )

    def call(self, call: Call) -> None:
        self._number += 1
        self._open[call.id] = f"call-{self._number}"
        self._output = ""
        if call.tool in QUIET:
            return
        started = start_tool_call(
            self._open[call.id],
            title(call.tool, call.meant.arguments),
            kind=KINDS.get(call.tool, "other"),
            status="pending",
            locations=self._locations(call.meant.arguments),
            raw_input=dict(call.arguments),
        )
        self._queue.put_nowait(started)

    def output(self, call: Call, piece: str) -> None:
        """Show the output of a command while it runs."""
        self._output = (self._output + piece)[-OUTPUT_CHARS:]
        if time.monotonic() - self._output_at < OUTPUT_EVERY_S:
            return
        self._output_at = time.monotonic()
        content = [tool_content(text_block(self._output))]
        running = self.editors_id(call.id)
        self._queue.put_nowait(update_tool_call(running, status="in_progress", content=content))

    def edited(self, call: Call, edit: Edit) -> None:
        self._edits.setdefault(call.id, []).append(edit)

    def result(self, call: Call, observation: ToolResult) -> None:
        if call.tool in QUIET:
            self._open.pop(call.id, None)
            self._plan(call, observation)
            return
        edits = self._edits.pop(call.id, [])
        content: list[Any] = [diff for edit in edits for diff in self.diffs(edit)]
        if observation.error is not None or not content:
            content.append(tool_content(text_block(observation.text)))
        done = update_tool_call(
            self._open.pop(call.id, call.id),
            status="failed" if observation.error is not None else "completed",
            content=content,
            locations=[self._location(edit) for edit in edits] or None,
            raw_output={"text": observation.text},
        )
        self._queue.put_nowait(done)

    def stop(self) -> None:
        """Mark the calls that were running when the turn was cancelled as failed: they return no result."""
        for running in self._open.values():
            self._queue.put_nowait(update_tool_call(running, status="failed"))
        self._open.clear()
        self._edits.clear()

    def editors_id(self, call_id: str) -> str:
        return self._open.get(call_id, call_id)

    def diffs(self, edit: Edit) -> list[schema.FileEditToolCallContent]:
        """Return the diff of an edit; none for a file that is not text.

        A deleted file is shown as an empty one.
        """
        with suppress(UnicodeDecodeError):
            old = None if edit.before is None else edit.before.decode()
            new = "" if edit.after is None else edit.after.decode()
            return [tool_diff_content(self._absolute(edit.path), new, old)]
        return []

    async def flush(self) -> None:
        await self._queue.join()

    async def close(self) -> None:
        self._pump.cancel()
        with suppress(asyncio.CancelledError):
            await self._pump

    def _plan(self, call: Call, observation: ToolResult) -> None:
        if observation.error is not None:
            return
        self.plan(call.meant.arguments["todos"])

    def plan(self, todos: Sequence[Mapping[str, Any]]) -> None:
        entries = [
            plan_entry(
                todo["content"],
                status=todo.get("status", "pending"),
                priority=todo.get("priority", "medium"),
            )
            for todo in todos
        ]
        self._queue.put_nowait(update_plan(entries))

    def _locations(self, arguments: Mapping[str, Any]) -> list[schema.ToolCallLocation] | None:
        path = arguments.get("path")
        if not isinstance(path, str):
            return None
        line = arguments.get("offset")
        return [
            schema.ToolCallLocation(path=self._absolute(path), line=line if isinstance(line, int) else None)
        ]

    def _location(self, edit: Edit) -> schema.ToolCallLocation:
        line = next((first for first, _, _ in edit.lines), None)
        return schema.ToolCallLocation(path=self._absolute(edit.path), line=line)

    def _absolute(self, path: str) -> str:
        """Return the place of a file; a name that is no text is spelled out, since the protocol has text."""
        return presentable(posixpath.normpath(posixpath.join(self._root, shown(path))))

    async def _deliver(self) -> None:
        while True:
            update = await self._queue.get()
            try:
                await self._send(update)
            except ConnectionError:
                pass  # the editor has closed the connection; the end of standard input ends this process
            finally:
                self._queue.task_done()


def title(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return one line that says what a call does.

    >>> title("bash", {"command": "make test"})
    'bash: make test'
    """
    subject = arguments.get(SUBJECTS.get(tool, ""), "")
    if not subject and tool not in SUBJECTS and arguments:
        subject = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    first, _, rest = presentable(str(subject)).strip().partition("\n")
    shown = f"{tool}: {first}{' …' if rest else ''}" if first else tool
    return shown if len(shown) <= TITLE_CHARS else shown[: TITLE_CHARS - 1] + "…"
