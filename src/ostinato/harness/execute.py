"""The executor of tool calls: runs one call against a sandbox and returns the short text that the model
reads.
"""

import asyncio
import re
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.extend import failure
from ostinato.harness.errors import (
    InvalidArguments,
    ProviderError,
    ToolError,
    ToolTimeout,
    file_error,
)
from ostinato.harness.git import guarded
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.profiles.profile import CORE, Profile
from ostinato.harness.providers.base import NONE, Providers
from ostinato.harness.tools.definitions import ADDED
from ostinato.harness.tools.files import Files
from ostinato.harness.tools.find import FileFinder
from ostinato.harness.tools.names import presentable, shown
from ostinato.harness.tools.normalise import normalise
from ostinato.harness.users import Answering
from ostinato.sandbox.base import OnOutput, Sandbox, SandboxError, SandboxPathError

OUTPUT_CHARS = 20_000
LEFT_OUT = re.compile(r"\A\[(\d+) bytes left out\]\n")
"""The sandbox's own note that it kept only the end of an output."""
HITS, MOST_HITS = 5, 20
PLAIN = re.compile(r"(python3?|pytest)( [\w./:=,@%+-]+)*")

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The text that the model reads after a call.

    >>> ToolResult(text="ok").error is None
    True
    """

    text: str
    error: ToolError | None = None

    @property
    def broken(self) -> bool:
        """True when the call itself was wrong, as opposed to the environment being unexpected."""
        return isinstance(self.error, InvalidArguments)


class Executor:
    """The tools over one sandbox and one user.

    Errors of a call become text; only failures of ours are raised.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        user: Answering,
        *,
        command_timeout_s: float,
        profile: Profile = CORE,
        providers: Providers = NONE,
    ) -> None:
        self._profile = profile
        self._providers = providers
        self._on_output: OnOutput | None = None
        self._sandbox = sandbox
        self._user = user
        self._command_timeout_s = command_timeout_s
        files = Files(sandbox, read_before_edit=profile.read_before_edit)
        finder = FileFinder(sandbox)
        self._tools: Mapping[str, Callable[[Arguments], Awaitable[str]]] = {
            "read": files.read,
            "write": files.write,
            "edit": files.edit,
            "apply_patch": files.apply_patch,
            "grep": finder.grep,
            "glob": finder.glob,
            "ls": finder.ls,
            "bash": self._bash,
            "ask_user": self._ask_user,
            "semantic_search": self._semantic_search,
            "todo_write": self._todo_write,
        }

    async def run(self, name: str, arguments: Arguments, on_output: OnOutput | None = None) -> ToolResult:
        """Run one call, in the words of the profile, and return its result. Calls that only read may run at
        the same time, every other one alone.

        Raises only the errors of a sandbox that is itself broken.
        """
        self._on_output = on_output
        reading = self._profile.reading(name, arguments)
        if reading.error is not None:
            return _tool_error(reading.error, str(reading.error))
        return await self._run(name, reading)

    async def _run(self, name: str, reading: Reading) -> ToolResult:
        arguments = reading.arguments
        try:
            return ToolResult(text=presentable(await self._answer(reading.tool, arguments)))
        except ToolError as error:
            return _tool_error(error, self._profile.worded(name, str(error)))
        except ConnectionError:
            raise
        except (OSError, SandboxPathError) as error:
            return _file_observation(arguments, error)
        except SandboxError as error:
            # A pipe or a huge file cannot be read, which is no failure of ours as long as the sandbox lives.
            await self._sandbox.list(".")
            return _file_observation(arguments, error)

    async def _answer(self, tool: str, arguments: Arguments) -> str:
        if tool in self._tools:
            return await self._tools[tool](arguments)
        if tool in ADDED:
            return await self._added(tool, arguments)
        if self._providers.tools is None:
            raise AssertionError(f"the profile {self._profile.name} offers {tool}, which nobody runs")
        return await self._providers.tools.call(tool, arguments)

    async def _added(self, tool: str, arguments: Arguments) -> str:
        """Run the tool of a plug-in, for as long as a command may take."""
        try:
            async with asyncio.timeout(self._command_timeout_s):
                return await ADDED[tool](self._sandbox, arguments)
        except (ToolError, SandboxError, OSError):
            raise
        except Exception as error:
            raise failure(f"the tool {tool}", ADDED.plugin(tool), error, self._command_timeout_s) from error

    async def _bash(self, arguments: Arguments) -> str:
        result = await self._sandbox.exec(
            _in_bash(guarded(arguments["command"])),
            timeout_s=self._timeout(arguments),
            on_output=self._on_output,
        )
        text = _tail(normalise(result.output, self._sandbox.root))
        if result.timed_out:
            raise ToolTimeout(f"timed out after {result.duration_s:.0f} s\n{text}".rstrip())
        return "\n".join(filter(None, (text, _failure(result.exit_code)))) or "(no output)"

    def _timeout(self, arguments: Arguments) -> float | None:
        wanted = arguments.get("timeout")
        if wanted is None:
            return None
        if wanted < 1:
            raise InvalidArguments("timeout is at least 1 second")
        return min(float(wanted), self._command_timeout_s)

    async def _semantic_search(self, arguments: Arguments) -> str:
        search = self._providers.search
        if search is None:
            raise ProviderError(
                "no search service: set OSTINATO_SEARCH_URL to that of `ostinato search serve`"
            )
        k = min(arguments.get("k", HITS), MOST_HITS)
        hits = await search.search(arguments["query"], path=arguments.get("path"), k=k)
        return (
            "\n\n".join(f"{shown(hit.path)}:{hit.first}-{hit.last}\n{hit.text}" for hit in hits)
            or "no matches"
        )

    async def _todo_write(self, _: Arguments) -> str:
        return "ok"  # the plan is in the conversation, and the observer shows it

    async def _ask_user(self, arguments: Arguments) -> str:
        return await self._user.answer(arguments["question"], arguments.get("options", []))


def _file_observation(arguments: Arguments, error: Exception) -> ToolResult:
    known = file_error(arguments.get("path", "."), error)
    return _tool_error(known, str(known))


def _tool_error(error: ToolError, text: str) -> ToolResult:
    return ToolResult(text=f"error: {presentable(text)}", error=error)


def _failure(status: int) -> str:
    """Return the line that tells the model of a failure; empty for a command that succeeded.

    A command that a signal ended has the status that a shell gives it, whether a shell saw it or the sandbox.

    >>> _failure(0), _failure(3), _failure(-9), _failure(137)
    ('', '[exit code 3]', '[exit code 137: SIGKILL]', '[exit code 137: SIGKILL]')
    """
    if not status:
        return ""
    code = 128 - status if status < 0 else status
    names = {128 + each: f": {each.name}" for each in signal.Signals}
    return f"[exit code {code}{names.get(code, '')}]"


def _in_bash(command: str) -> str:
    """Return what runs a command in bash, whose language models write, where there is one.

    It reads no start file and no function of the environment. A run of Python or pytest means the same to
    every shell, and stays plain: a sandbox can answer it from a warm interpreter.

    >>> print(_in_bash("pytest -q"))
    pytest -q
    >>> print(_in_bash("echo {1..2}"))
    c='echo {1..2}'; command -v bash >/dev/null && exec bash -pc "$c"; eval "$c"
    """
    if PLAIN.fullmatch(command):
        return command
    return f'c={shlex.quote(command)}; command -v bash >/dev/null && exec bash -pc "$c"; eval "$c"'


def _tail(text: str) -> str:
    """Return the end of an output, with a line above it that says how much was cut and how to get at it."""
    noted = LEFT_OUT.match(text) if len(text) > OUTPUT_CHARS else None  # a short output was never cut
    cut = int(noted[1]) if noted else 0
    text = text[noted.end() :] if noted else text
    cut += max(0, len(text) - OUTPUT_CHARS)
    if not cut:
        return text
    return f"[cut: {cut} bytes before this; send them to a file with > and read that]\n{text[-OUTPUT_CHARS:]}"
