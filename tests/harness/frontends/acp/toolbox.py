"""`ostinato acp` as an editor sees it: a process behind the SDK's own client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp import schema

FORMS = schema.ClientCapabilities(
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
)


@dataclass
class Editor:
    """The SDK's Client: keeps every update, answers dialogs as told."""

    permits: list[str] = field(default_factory=list)
    """Option ids to choose, in turn; `cancel` closes the dialog, `wait` leaves it open."""
    answers: list[str | None] = field(default_factory=list)
    updates: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.arrived.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, [option.kind for option in options]))
        self.arrived.set()
        choice = self.permits.pop(0)
        if choice == "fail":
            raise acp.RequestError(-32603, "no dialogs today")
        if choice == "wait":
            await asyncio.Event().wait()
        if choice == "cancel":
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=choice)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append(message)
        answer = self.answers.pop(0)
        if answer == "fail":
            raise acp.RequestError(-32603, "no forms today")
        if answer is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content={"answer": answer})

    def of(self, kind: type) -> list[Any]:
        return [update for update in self.updates if isinstance(update, kind)]

    @property
    def noticed(self) -> list[str]:
        """What each process said of the recording."""
        return [text for text in self._texts() if text.startswith("the gateway records")]

    @property
    def said(self) -> str:
        return "".join(text for text in self._texts() if text not in self.noticed)

    def _texts(self) -> list[str]:
        return [update.content.text for update in self.of(schema.AgentMessageChunk)]

    @property
    def calls(self) -> list[tuple[str, str | None]]:
        """Title and last status of every call."""
        ended = {update.tool_call_id: update.status for update in self.of(schema.ToolCallProgress)}
        starts = self.of(schema.ToolCallStart)
        return [(start.title, ended.get(start.tool_call_id, start.status)) for start in starts]

    async def until(self, condition: Any) -> None:
        while not condition():
            self.arrived.clear()
            await self.arrived.wait()


@dataclass
class Desk:
    """An editor, the connection, and the process at its other end."""

    editor: Editor
    agent: Any
    process: asyncio.subprocess.Process
    cwd: Path

    async def begin(self, **options: Any) -> str:
        return (await self.agent.new_session(cwd=str(self.cwd), mcp_servers=[], **options)).session_id

    async def prompt(self, session_id: str, text: str = "calc.py is off") -> str:
        reply = await self.agent.prompt(session_id=session_id, prompt=[acp.text_block(text)])
        return reply.stop_reason


def command(url: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "ostinato.cli", "acp", "--url", url, *options]


def environment(state: Path, key: str = "key") -> dict[str, str]:
    return {**os.environ, "OSTINATO_KEY": key, "OSTINATO_STATE": str(state), "XDG_CONFIG_HOME": str(state)}


@asynccontextmanager
async def desk(
    url: str, cwd: Path, state: Path, *options: str, key: str = "key", version: int = 1, forms: bool = False
) -> AsyncIterator[Desk]:
    """An initialized connection; the process is ended with it."""
    editor = Editor()
    argv = command(url, *options)
    started = acp.spawn_agent_process(
        editor,
        *argv,
        env=environment(state, key),
        use_unstable_protocol=True,
        transport_kwargs={"stderr": None},
    )
    async with started as (agent, process):
        capabilities = FORMS if forms else None
        await agent.initialize(protocol_version=version, client_capabilities=capabilities)
        yield Desk(editor, agent, process, cwd)
