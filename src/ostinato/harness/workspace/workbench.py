"""The workbench: a person's repository, the agent in it, and one session at a time. Every frontend works with
one.

::

    Workbench.open ─► prompt ─► prompt ─► undo ─► prompt ─► new | resume ─► prompt ─► … ─► close
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from ostinato.config import ConfigError
from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import GatewayClient, GatewayRefused, GatewayUnavailable, Reply, open_http
from ostinato.harness.conversation import Call, Conversation, Edit, Outcome
from ostinato.harness.execute import ToolResult
from ostinato.harness.git import git, worktree
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Permissions, Rule
from ostinato.harness.profiles.profile import profile
from ostinato.harness.providers import mcp, mcp_config
from ostinato.harness.providers.base import Providers
from ostinato.harness.providers.mcp_config import McpServer
from ostinato.harness.providers.search import SearchAt
from ostinato.harness.roles import Frontend, Observer
from ostinato.harness.session_log import LogError, LogEvent, LogEventKind, SessionLog, Sessions
from ostinato.harness.tools.names import presentable, shown
from ostinato.harness.users import Permitting, User
from ostinato.harness.workspace import undo
from ostinato.harness.workspace.checkpoints import Checkpoints, Restored
from ostinato.harness.workspace.edit_journal import EditJournal
from ostinato.harness.workspace.facts import FAREWELL_S, Facts
from ostinato.harness.workspace.served import Served, named, recording_notice
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Limits, Sandbox, Spec
from ostinato.types import Ending, Signal, SignalKind, new_id

PEOPLE = HarnessConfig(
    max_turns=50, max_tokens=2048, max_context=32_000, temperature=0.3, command_timeout_s=600.0
)
"""The limits for a person, who waits longer than practice does and wants the likely answer. The context is
that of the served model where the gateway says it."""
LIMITS = Limits(wall_s=120.0)
PATIENCE_S = 10.0
"""The seconds for which a request is tried again while a person waits."""
CONNECT_S = 1.5
"""The seconds after which an address that does not respond counts as away; a person is told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options with which a person started the agent.

    >>> Options(directory=Path(), url="http://127.0.0.1:8080", key="k").auto
    False
    """

    directory: Path
    url: str
    key: str
    config: HarnessConfig = PEOPLE
    fits_profile: bool = False
    """Takes another profile than that of `config` where the model was trained under it."""
    rules: tuple[Rule, ...] = ()
    """Rules that come after the defaults and those of the person's file."""
    auto: bool = False
    """Permits every request; denials stay."""
    sessions: Sessions = field(default_factory=Sessions.of_user)
    servers: tuple[McpServer, ...] = ()
    """MCP servers beside those of the person's file."""
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        """Check the address; raises ConfigError."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            meant = self.url if "/" not in self.url and ":" in self.url else "127.0.0.1:8080"
            raise ConfigError(f"{self.url!r} is no address of a gateway: write it as http://{meant}")


class Workbench:
    """A workbench, made by `open`. It takes one prompt at a time; cancelling it leaves the session usable."""

    def __init__(
        self,
        options: Options,
        root: Path,
        checkpoints: Checkpoints,
        journal: EditJournal,
        *,
        user: User,
        screen: Frontend,
    ) -> None:
        self.root = root
        self.checkpoints = checkpoints
        self.config = options.config
        """The limits of a session, with the context of the model that is served."""
        self._options = options
        self._journal = journal
        self._backend = ProcessBackend(in_place=True)
        self._http = open_http(CONNECT_S)
        self._client = GatewayClient(
            options.url, options.key, patience_s=options.patience_s, http=self._http, on_wait=self._say_away
        )
        self._user = Permitting(user) if options.auto else user
        self._screen = screen
        self._wished = profile(options.config.profile)
        self.served = Served()
        self.branch = ""
        """The branch that is checked out, or the commit where none is."""
        self._works = True
        self._away = False
        """True while the person knows that the gateway does not answer."""
        self._ending = Ending.ABANDONED
        self._open = AsyncExitStack()
        unsent = options.sessions.directory.parent / "unsent"
        self._facts = Facts(self._client, options.url, unsent, has_key=bool(options.key))
        self.notices = self._facts.notices
        """Notices for the person: MCP servers that did not respond, facts that the gateway refused."""
        self._first = ""
        self.version: int | None = None
        """The version of the last reply's newest token."""
        self.conversation: Conversation
        self.sandbox: Sandbox
        self.permissions: Permissions
        """The permissions with which every session begins."""
        self._offered: Providers
        self._agent: Agent

    @classmethod
    async def open(
        cls, options: Options, user: User, screen: Frontend, *, session_id: str = "", works: bool = True
    ) -> "Workbench":
        """Open a new session, or a named one of this repository. One that `works` not asks no gateway and
        starts no server.

        Raises GitError without a working tree, ConfigError for unusable rules, LogError, SandboxError.
        """
        root = await worktree(options.directory)
        own = [*policy.DEFAULT, *policy.keeping_programs(root)]
        rules = [*own, *policy.load(policy.file()), *options.rules]
        checkpoints = await Checkpoints.open(root, options.sessions.directory.parent / "checkpoints")
        bench = cls(options, root, checkpoints, await EditJournal.of(root), user=user, screen=screen)
        bench.sandbox = await bench._backend.create(
            Spec(repo=root, limits=LIMITS, environment=_environment())
        )
        bench.permissions = Permissions([*rules, *await checkpoints.unkept()], root=str(root))
        bench._works = works
        if works:
            await bench._look()
        bench._offered = await bench._providers() if works else Providers()
        bench._employ()
        await bench._see_branch()
        await bench._begin(options.sessions.open(session_id or new_id()))
        return bench

    @property
    def place(self) -> str:
        """Return the model with its version, and the branch."""
        model = named(self.served.name, self.version or self.served.version)
        return f"{model} · {shown(self.branch)}" if self.branch else model

    @property
    def farewell(self) -> str:
        """Return how to go on with the session; empty where nothing was said in it."""
        session_id = self.conversation.session_id
        return f"`ostinato code --resume {session_id}` goes on here" if self.conversation.messages else ""

    @property
    def fullness(self) -> str:
        """Return the length of the session, and the most tokens that the model can read."""
        tokens = f"{self.conversation.tokens:,}"
        most = self.config.max_context
        whole = self._ending is not Ending.TOKEN_LIMIT or self.conversation.tokens >= most
        return f"{tokens} of {most:,} tokens" if whole else f"{tokens} tokens"

    @property
    def filled(self) -> float:
        """Return the share of the context that the session fills, as far as it is known."""
        return self.conversation.tokens / max(1, self.config.max_context)

    def earlier(self) -> Iterator[tuple[str, list[LogEvent]]]:
        """Yield the other sessions of this repository, the newest first; a damaged one has no events."""
        here = self._options.sessions.newest(str(self.root))
        return ((name, events) for name, events in here if name != self.conversation.session_id)

    async def prompt(self, text: str) -> Outcome:
        """Work on a prompt; raises GatewayRefused, and CancelledError, after which the session can go on."""
        self._ending = Ending.ABANDONED
        outcome = await self._agent.prompt(self.conversation, presentable(text))
        self._ending = outcome.ending
        await self._see_branch()
        return outcome

    async def _see_branch(self) -> None:
        """Look which branch is checked out, which a command may have changed."""
        named = await git(self.root, "symbolic-ref", "--quiet", "--short", "HEAD", accepted=(0, 1, 128))
        head = named or await git(self.root, "rev-parse", "--quiet", "--short", "HEAD", accepted=(0, 1, 128))
        self.branch = os.fsdecode(head).rstrip("\n")

    async def undo(self) -> Restored | None:
        """Take back the changes of the last prompt; None when nothing is left to undo."""
        restored = await undo.undo(self.checkpoints, self.conversation)
        if restored is not None and (restored.restored or restored.left) and self.conversation.messages:
            await self.post(SignalKind.EDIT_REVERTED, 1.0, f"undo-{len(self.conversation.messages)}")
        return restored

    async def diff(self) -> str:
        """Return the diff since the session's first checkpoint."""
        return await self.checkpoints.diff(self._first, await self.checkpoints.take())

    async def new(self) -> None:
        """End the session and begin another."""
        await self._finish()
        await self._begin(self._options.sessions.open(new_id()))

    async def resume(self, session_id: str = "") -> None:
        """Go on with a session of this repository, the last one by default; raises LogError."""
        here = [found for found, _ in self._options.sessions.newest(str(self.root))]
        others = [found for found in here if found != self.conversation.session_id]
        wanted = self._options.sessions.meant(session_id) if session_id else next(iter(others), "")
        if not wanted:
            raise LogError(f"no session to resume in {self.root}")
        if wanted not in here:
            self._options.sessions.load(wanted)  # raises LogError when it is damaged
            raise LogError(f"session {wanted} is of another repository: go there to resume it")
        if wanted != self.conversation.session_id:
            log = self._options.sessions.open(wanted)
            await self._finish()
            await self._begin(log)

    async def close(self, ending: Ending | None = None) -> None:
        """Close it; `ending` is that of a session which neither its agent nor a person ended."""
        self._ending = ending or self._ending
        await self._finish()
        await self._journal.drain()
        await self._open.aclose()
        await self._http.close()
        await self._backend.aclose()
        self.checkpoints.close()

    def replied(self, reply: Reply) -> None:
        is_known = reply.version is not None and reply.version >= 0  # engines of others have no versions
        self.version, self._away = reply.version if is_known else None, False

    def tell_journal(self, call: Call, edit: Edit) -> None:
        model = "ostinato" if self.version is None else f"ostinato-{self.version}"
        self._journal.tell(self.conversation.session_id, self.conversation.last_turn, model, call, edit)

    async def _look(self) -> None:
        """Ask what is served. A gateway that knows nothing of this key says so to the first prompt."""
        try:
            self.served = await asyncio.wait_for(Served.of(self._client, self._wished.hash), FAREWELL_S)
        except (TimeoutError, GatewayUnavailable) as error:
            self.notices.append(self._gone(error))
        except GatewayRefused:
            return
        else:
            await self._facts.post_kept()
        if self.served.recording is not None:
            self.notices.append(recording_notice(self.served.recording))

    def _employ(self) -> None:
        """Make the agent for the model that is served, with a context as long as it reads."""
        self.config = self._options.config
        if self.served.context is not None:
            self.config = replace(self.config, max_context=self.served.context)
        if self._options.fits_profile:
            fitting = self.served.fitting(self._wished, self.config.max_context)
            self.config = replace(self.config, profile=fitting.name)
        self._agent = Agent(
            self._client,
            self.sandbox,
            self._user,
            self.config,
            observer=_Journalled(self._screen, self),
            permissions=self.permissions,
            keeper=self.checkpoints,
            providers=self._offered,
            model=self.served.name,
        )

    async def model(self, name: str = "") -> str:
        """Return what is served, after the choice of another model where a name is given.

        Raises GatewayRefused for a name that is not served, GatewayUnavailable.
        """
        self.served = await Served.of(self._client, self._wished.hash, name or self.served.name)
        if name:
            self.version = None
            self._employ()
        return self.served.described(self.version or self.served.version)

    def _say_away(self, cause: Exception) -> None:
        if not self._away:
            self._screen.say(f"ostinato: {self._gone(cause)}", "yellow")

    def _gone(self, cause: Exception) -> str:
        """Note that the gateway is away, and return what a person reads of it, once."""
        self._away = True
        again = f"each request is tried again for {self._options.patience_s:.0f} s"
        why = f" ({cause})" if str(cause) else ""
        return f"the gateway at {self._options.url} does not answer; {again}{why}"

    async def _providers(self) -> Providers:
        url, key = os.environ.get("OSTINATO_SEARCH_URL"), self._options.key
        search = SearchAt(url=url, key=key).of(self.sandbox) if url else None
        servers = [*mcp_config.of_person(), *self._options.servers]
        if not servers:
            return Providers(search=search)
        tools, missing = await self._open.enter_async_context(mcp.opened(servers))
        self.notices += missing
        return Providers(search=search, tools=tools)

    async def _begin(self, log: SessionLog) -> None:
        self._ending = Ending.ABANDONED
        kept = (event.data["tree"] for event in log.events if event.kind is LogEventKind.CHECKPOINT)
        self._first = next(kept, "") or await self.checkpoints.take()
        self.conversation = self._agent.converse(log.path.stem, log=log)
        await undo.complete(self.checkpoints, self.conversation)

    async def _finish(self) -> None:
        """Post the ending of the session if the gateway responds quickly, since people want their prompt
        back.
        """
        conversation, log = self.conversation, self.conversation.log
        ends = self._works and (self._has_reply or not self._away)
        if conversation.messages and ends:
            await self.post(SignalKind.ENDING, self._ending.value, "ending")
        if log is not None:
            log.close()
            if not log.events:
                log.path.unlink()

    @property
    def _has_reply(self) -> bool:
        return any(message["role"] == "assistant" for message in self.conversation.messages)

    async def post(self, kind: SignalKind, value: float | str, name: str, turn: int | None = None) -> None:
        """Post a signal of this session to the gateway, now or when it answers again.

        The same `name` makes it the same signal when posted again.
        """
        session_id = self.conversation.session_id
        signal = Signal(
            session_id=session_id,
            kind=kind,
            value=value,
            observed_at=time.time(),
            turn=turn,
            id=f"{session_id}/{name}",
        )
        await self._facts.post(signal, known=self._has_reply)


def _environment() -> dict[str, str]:
    """Return the variables that give a command one meaning everywhere: `cd` and programs are looked up in
    fixed places.
    """
    return {"CDPATH": "", "PATH": policy.search_path()}


class _Journalled:
    """An observer that passes everything on, and edits to the journal as well."""

    def __init__(self, observer: Observer, bench: Workbench) -> None:
        self._observer = observer
        self._bench = bench

    def text(self, piece: str) -> None:
        self._observer.text(piece)

    def reply(self, reply: Reply) -> None:
        self._bench.replied(reply)
        self._observer.reply(reply)

    def call(self, call: Call) -> None:
        self._observer.call(call)

    def edited(self, call: Call, edit: Edit) -> None:
        self._bench.tell_journal(call, edit)
        self._observer.edited(call, edit)

    def output(self, call: Call, piece: str) -> None:
        self._observer.output(call, piece)

    def result(self, call: Call, observation: ToolResult) -> None:
        self._observer.result(call, observation)
