"""Runs one tool call against a sandbox and says, in few words, what came of it."""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.harness import edit
from ostinato.harness.errors import (
    InvalidArguments,
    ProviderError,
    ToolError,
    ToolTimeout,
    UnexpectedEnvironment,
)
from ostinato.harness.find import matching
from ostinato.harness.normalise import normalise
from ostinato.harness.offers import Reading
from ostinato.harness.patching import patch
from ostinato.harness.profiles import CORE, Profile
from ostinato.harness.providers import Search
from ostinato.harness.users import Answering
from ostinato.sandbox.base import ExecResult, Sandbox, SandboxError, SandboxPathError

READ_LINES = 2_000
READ_CHARS = 50_000
OUTPUT_CHARS = 20_000
GREP_MATCHES = 100
GLOB_FILES = 200
HITS, MOST_HITS = 5, 20
GREP = "grep -rnIEZs --exclude-dir=.git --exclude-dir=__pycache__"
GREP_FAILED = 2

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the model reads after a call.

    >>> Observation(text="ok").error is None
    True
    """

    text: str
    error: ToolError | None = None

    @property
    def broken(self) -> bool:
        """Whether the model called wrongly, as opposed to met something unexpected."""
        return isinstance(self.error, InvalidArguments)


class Executor:
    """The tools over one sandbox and one user. Errors become text; only failures of ours are raised."""

    def __init__(
        self,
        sandbox: Sandbox,
        user: Answering,
        *,
        command_timeout_s: float,
        profile: Profile = CORE,
        search: Search | None = None,
    ) -> None:
        self._profile = profile
        self._search = search
        self.todos: Sequence[Mapping[str, str]] = ()
        """The plan as the model last wrote it down."""
        self._sandbox = sandbox
        self._user = user
        self._command_timeout_s = command_timeout_s
        self._tools: Mapping[str, Callable[[Arguments], Awaitable[str]]] = {
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "bash": self._bash,
            "grep": self._grep,
            "ls": self._ls,
            "ask_user": self._ask_user,
            "apply_patch": self._apply_patch,
            "glob": self._glob,
            "semantic_search": self._semantic_search,
            "todo_write": self._todo_write,
        }

    async def run(self, name: str, arguments: Arguments) -> Observation:
        """The observation of one call in the words of the profile.

        Raises only what the sandbox raises when it is itself broken.
        """
        reading = self._profile.reading(name, arguments)
        if reading.error is not None:
            return _tool_error(reading.error, str(reading.error))
        return await self._run(name, reading)

    async def _run(self, name: str, reading: Reading) -> Observation:
        arguments = reading.arguments
        try:
            return Observation(text=await self._tools[reading.tool](arguments))
        except ToolError as error:
            return _tool_error(error, self._profile.worded(name, str(error)))
        except (OSError, SandboxPathError) as error:
            return self._file_error(arguments, error)
        except SandboxError as error:
            # A pipe or a huge file is no file to read, but not our failure either: does the sandbox live?
            await self._sandbox.list(".")
            return self._file_error(arguments, error)

    def _file_error(self, arguments: Arguments, error: Exception) -> Observation:
        path = arguments.get("path", ".")
        known = {
            FileNotFoundError: f"no such file {path}",
            IsADirectoryError: f"{path} is a directory",
            NotADirectoryError: f"{path} is not a directory",
            PermissionError: f"not allowed to use {path}",
            SandboxPathError: f"{path} is outside the repository",
        }
        if isinstance(error, ConnectionError):
            raise error
        other = f"{path}: {getattr(error, 'strerror', None) or error}"
        text = next((text for kind, text in known.items() if isinstance(error, kind)), other)
        return Observation(text=f"error: {text}", error=UnexpectedEnvironment(text))

    async def _read(self, arguments: Arguments) -> str:
        path = arguments["path"]
        text = edit.decode(await self._sandbox.read(path), path)
        if edit.is_crlf(text):
            text = text.replace("\r\n", "\n")
        first, limit = arguments.get("offset", 1), arguments.get("limit", READ_LINES)
        if first < 1 or limit < 1:
            raise InvalidArguments("offset and limit start at 1")
        return _window(text, first - 1, min(limit, READ_LINES))

    async def _write(self, arguments: Arguments) -> str:
        await self._sandbox.write(arguments["path"], arguments["content"].encode())
        return "ok"

    async def _edit(self, arguments: Arguments) -> str:
        path = arguments["path"]
        text = edit.decode(await self._sandbox.read(path), path)
        old, new = arguments["old_string"], arguments["new_string"]
        changed = edit.replace(text, old, new, replace_all=arguments.get("replace_all", False))
        await self._sandbox.write(path, changed.encode())
        return "ok"

    async def _bash(self, arguments: Arguments) -> str:
        result = await self._sandbox.exec(arguments["command"], timeout_s=self._timeout(arguments))
        text = _tail(normalise(result.output, self._sandbox.root))
        if result.timed_out:
            raise ToolTimeout(f"timed out after {result.duration_s:.0f} s\n{text}".rstrip())
        if not text:
            return f"[exit code {result.exit_code}]" if result.exit_code else "(no output)"
        return text

    def _timeout(self, arguments: Arguments) -> float | None:
        wanted = arguments.get("timeout")
        if wanted is None:
            return None
        if wanted < 1:
            raise InvalidArguments("timeout is at least 1 second")
        return min(float(wanted), self._command_timeout_s)

    async def _grep(self, arguments: Arguments) -> str:
        path, limit = arguments.get("path", "."), arguments.get("limit", GREP_MATCHES)
        _check_relative(path)
        include = f" --include={shlex.quote(arguments['glob'])}" if "glob" in arguments else ""
        command = f"{GREP}{include} -e {shlex.quote(arguments['pattern'])} -- {shlex.quote(path)}"
        result = await self._sandbox.exec(command)
        if result.timed_out:
            raise ToolTimeout("grep timed out, narrow the path")
        if result.exit_code >= GREP_FAILED and "\0" not in result.output:
            raise UnexpectedEnvironment(await self._grep_failure(path, result))
        return _matches(result.output, min(limit, GREP_MATCHES))

    async def _grep_failure(self, path: str, result: ExecResult) -> str:
        message = normalise(result.output, self._sandbox.root).removeprefix("grep: ")
        return message or f"no such file {path}"

    async def _ls(self, arguments: Arguments) -> str:
        names = await self._sandbox.list(arguments.get("path", "."))
        return "\n".join(sorted(name for name in names if name.rstrip("/") != ".git")) or "(empty)"

    async def _apply_patch(self, arguments: Arguments) -> str:
        await patch(self._sandbox, arguments["patch"])
        return "ok"

    async def _glob(self, arguments: Arguments) -> str:
        below, limit = arguments.get("path", "."), arguments.get("limit", GLOB_FILES)
        _check_relative(below)
        found = list(matching(await self._sandbox.files(), arguments["pattern"], below))
        return _cut(found, min(limit, GLOB_FILES), "files") or "no files"

    async def _semantic_search(self, arguments: Arguments) -> str:
        if self._search is None:
            raise ProviderError("no search service: start `ostinato search`")
        k = min(arguments.get("k", HITS), MOST_HITS)
        hits = await self._search.search(arguments["query"], path=arguments.get("path"), k=k)
        return "\n\n".join(f"{hit.path}:{hit.first}-{hit.last}\n{hit.text}" for hit in hits) or "no matches"

    async def _todo_write(self, arguments: Arguments) -> str:
        self.todos = tuple(arguments["todos"])
        return "ok"

    async def _ask_user(self, arguments: Arguments) -> str:
        options = arguments.get("options", [])
        question = arguments["question"] + (f" ({' / '.join(options)})" if options else "")
        return await self._user.answer(question)


def _tool_error(error: ToolError, text: str) -> Observation:
    return Observation(text=f"error: {text.encode(errors='replace').decode()}", error=error)


def _check_relative(path: str) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise UnexpectedEnvironment(f"{path} is outside the repository")


def _window(text: str, skip: int, limit: int) -> str:
    """Lines `skip` to `skip + limit` within READ_CHARS; says where to go on when more follow."""
    lines = text.removesuffix("\n").split("\n") if text else []
    if skip and skip >= len(lines):
        raise UnexpectedEnvironment(f"the file has {len(lines)} lines")
    shown: list[str] = []
    size = 0
    for line in lines[skip : skip + limit]:
        size += len(line) + 1
        if size > READ_CHARS and shown:
            break
        shown.append(line[:READ_CHARS])
    end = skip + len(shown)
    more = f"\n[{len(lines) - end} more lines, continue with offset {end + 1}]" if end < len(lines) else ""
    return "\n".join(shown) + more or "(empty)"


def _tail(text: str) -> str:
    return text if len(text) <= OUTPUT_CHARS else "[cut]\n" + text[-OUTPUT_CHARS:]


def _matches(output: str, limit: int) -> str:
    """`path:line:text` sorted by path, since grep follows the order of the directory on disk."""
    rows = [line.removeprefix("./").split("\0", 1) for line in output.splitlines() if "\0" in line]
    rows.sort(key=lambda row: row[0])
    return _cut([":".join(row) for row in rows], limit, "matches") or "no matches"


def _cut(lines: Sequence[str], limit: int, what: str) -> str:
    more = f"\n[{len(lines) - limit} more {what}]" if len(lines) > limit else ""
    return "\n".join(lines[:limit]) + more
