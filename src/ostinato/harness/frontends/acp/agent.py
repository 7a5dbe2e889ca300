"""The agent's side of the protocol: one object for each connection, which holds many sessions."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.connection import StreamDirection, StreamEvent

from ostinato import __version__
from ostinato.config import ConfigError
from ostinato.harness.frontends.acp.replay import title_of
from ostinato.harness.frontends.acp.servers import servers_of
from ostinato.harness.frontends.acp.session import (
    AUTH_REQUIRED,
    MODES,
    NOT_FOUND,
    EditorSession,
    with_profile,
)
from ostinato.harness.frontends.acp.wire import INVALID_PARAMS
from ostinato.harness.git import GitError, worktree
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.providers.mcp import McpMissing
from ostinato.harness.session_log import LogError, LogEvent
from ostinato.harness.workspace.workbench import Options
from ostinato.sandbox.base import SandboxError

PAGE = 50
COMMANDS = [
    schema.AvailableCommand(name="undo", description="Take back what the last prompt changed in the files"),
]


class EditorAgent:
    """The requests of an editor. The methods are those of the SDK's Agent; every error is a RequestError."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sessions: dict[str, EditorSession] = {}
        self._client: Any = None
        self._elicits = False

    def on_connect(self, client: Any) -> None:
        self._client = client

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        """Return version 1 whichever version the editor names.

        The protocol leaves it to an editor that cannot speak this version to close the connection.
        """
        elicitation = client_capabilities.elicitation if client_capabilities else None
        self._elicits = elicitation is not None and elicitation.form is not None
        sessions = schema.SessionCapabilities(
            list=schema.SessionListCapabilities(),
            resume=schema.SessionResumeCapabilities(),
            close=schema.SessionCloseCapabilities(),
        )
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                mcp_capabilities=schema.McpCapabilities(http=True),
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                session_capabilities=sessions,
            ),
            agent_info=schema.Implementation(name="ostinato", title="Ostinato", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        raise RequestError(
            INVALID_PARAMS, f"no method {method_id!r}: set OSTINATO_KEY where the editor starts"
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        root = await self._root(cwd)
        session = await self._open(replace(self._options, servers=servers_of(mcp_servers)), root)
        return schema.NewSessionResponse(session_id=session.id, config_options=config_options(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Continue a session and show its history first."""
        session, events = await self._resume(cwd, session_id, mcp_servers)
        await session.replay(events)
        session.updates.commands(COMMANDS)
        return schema.LoadSessionResponse(config_options=config_options(session))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        """Continue a session whose history the editor still has."""
        session, _events = await self._resume(cwd, session_id, mcp_servers)
        return schema.ResumeSessionResponse(config_options=config_options(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """Return PAGE sessions, the newest first; the cursor is the number of sessions already returned."""
        root = None if cwd is None else str(await self._root(cwd))
        start = int(cursor) if cursor and cursor.isdecimal() else 0
        recorded_sessions = [pair for pair in self._options.sessions.newest(root) if title_of(pair[1])]
        infos = [_info(session_id, events) for session_id, events in recorded_sessions[start : start + PAGE]]
        more = str(start + PAGE) if len(recorded_sessions) > start + PAGE else None
        return schema.ListSessionsResponse(sessions=infos, next_cursor=more)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        text = "\n\n".join(_text(block) for block in prompt).strip()
        if not text:
            raise RequestError(INVALID_PARAMS, "the prompt is empty")
        return schema.PromptResponse(stop_reason=await self._session(session_id).prompt(text))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._sessions:
            await self._sessions[session_id].cancel()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id == "mode":
            session.set_mode(str(value))
        elif config_id == "profile":
            session = await self._with_profile(session, str(value))
        else:
            raise RequestError(INVALID_PARAMS, f"no option {config_id!r}: use mode or profile")
        return schema.SetSessionConfigOptionResponse(config_options=config_options(session))

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        await self._session(session_id).close()
        del self._sessions[session_id]
        return schema.CloseSessionResponse()

    def observe(self, event: StreamEvent) -> None:
        """Send a new session's commands after the response with its id, since they name that id."""
        result = event.message.get("result")
        if event.direction is StreamDirection.OUTGOING and isinstance(result, dict):
            session = self._sessions.get(str(result.get("sessionId")))
            if session is not None:
                session.updates.commands(COMMANDS)

    async def close(self) -> None:
        """Close every session. Their last signals to the gateway take a few seconds at most."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        self._sessions.clear()

    async def _root(self, cwd: str) -> Path:
        if not Path(cwd).is_absolute():
            raise RequestError(INVALID_PARAMS, f"cwd {cwd!r} is not an absolute path")
        if not await asyncio.to_thread(Path(cwd).is_dir):
            raise RequestError(INVALID_PARAMS, f"cwd {cwd!r} is no directory")
        try:
            return await worktree(Path(cwd))
        except GitError as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error

    async def _resume(
        self, cwd: str, session_id: str, servers: Any
    ) -> tuple[EditorSession, Sequence[LogEvent]]:
        root = await self._root(cwd)
        if session_id in self._sessions:
            await self.close_session(session_id)
        try:
            events = self._options.sessions.load(session_id)
        except LogError as error:
            raise RequestError(NOT_FOUND, str(error)) from error
        recorded, profile = (str(events[0].data.get(key)) if events else "" for key in ("root", "profile"))
        if recorded != str(root):
            raise RequestError(
                INVALID_PARAMS, f"session {session_id} is of {recorded or 'no repository'}, not {cwd}"
            )
        offered = replace(self._options, servers=servers_of(servers))
        options = with_profile(offered, profile if profile in PROFILES else "core")
        return await self._open(options, root, session_id), events

    async def _open(self, options: Options, root: Path, session_id: str = "") -> EditorSession:
        if not options.key:
            raise RequestError(
                AUTH_REQUIRED, "no API key: set OSTINATO_KEY where the editor starts, or give --key-file"
            )
        try:
            session = await EditorSession.open(
                self._client, options, root, session_id=session_id, elicits=self._elicits
            )
        except (GitError, ConfigError, SandboxError, LogError, McpMissing) as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
        self._sessions[session.id] = session
        return session

    async def _with_profile(self, session: EditorSession, name: str) -> EditorSession:
        """Return the session with the tools of another profile. The model must not have read anything yet."""
        if name not in PROFILES:
            raise RequestError(INVALID_PARAMS, f"no profile {name!r}: use one of {', '.join(PROFILES)}")
        if name == session.bench.config.profile:
            return session
        if session.begun:
            raise RequestError(INVALID_PARAMS, "a session keeps the profile it began with: start a new one")
        mode = session.mode
        await self.close_session(session.id)
        changed = await self._open(with_profile(session.options, name), session.bench.root, session.id)
        changed.set_mode(mode)
        return changed

    def _session(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise RequestError(NOT_FOUND, f"no session {session_id!r} is open: load or resume it first")
        return self._sessions[session_id]


def config_options(session: EditorSession) -> list[Any]:
    """Return the options that the person can set, with their current values."""
    modes = [
        schema.SessionConfigSelectOption(value=key, name=mode.name, description=mode.description)
        for key, mode in MODES.items()
    ]
    profiles = [schema.SessionConfigSelectOption(value=name, name=name) for name in PROFILES]
    chosen = session.bench.config.profile
    return [
        schema.SessionConfigOptionSelect(
            id="mode",
            name="Permissions",
            category="mode",
            type="select",
            current_value=session.mode,
            options=modes,
        ),
        schema.SessionConfigOptionSelect(
            id="profile", name="Tool dialect", type="select", current_value=chosen, options=profiles
        ),
    ]


def _info(session_id: str, events: Sequence[LogEvent]) -> schema.SessionInfo:
    at = events[-1].at if events else time.time()
    return schema.SessionInfo(
        session_id=session_id,
        cwd=str(events[0].data.get("root", "/")) if events else "/",
        title=title_of(events),
        updated_at=datetime.fromtimestamp(at, UTC).isoformat(),
    )


def _text(block: Any) -> str:
    """Return a part of a prompt as the model reads it. Raise RequestError for images and sound."""
    match block:
        case schema.TextContentBlock():
            return block.text
        case schema.ResourceContentBlock():
            return f"[{block.name}]({block.uri})"
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
            return f"{resource.uri}:\n```\n{resource.text}\n```"
        case _:
            raise RequestError(
                INVALID_PARAMS, f"the model reads text only, not {getattr(block, 'type', 'this')}"
            )
