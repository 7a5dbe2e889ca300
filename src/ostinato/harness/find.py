"""The tools that look for files and text. In shell patterns `**` crosses directories."""

import fnmatch
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ostinato.harness.errors import InvalidArguments, ToolTimeout, UnexpectedEnvironment
from ostinato.harness.normalise import normalise
from ostinato.sandbox.base import ExecResult, Sandbox

GREP_MATCHES = 100
GLOB_FILES = 200
GREP = "grep -rnIEZs --exclude-dir=.git --exclude-dir=__pycache__"
GREP_FAILED = 2

SKIPPED = {".git", "__pycache__", "node_modules", ".venv"}
"""Directories that hold nothing anybody wrote here."""
BRACES = re.compile(r"\{([^{}]*)\}")
MOST_ALTERNATIVES = 64

Arguments = Mapping[str, Any]


class Finder:
    """The tools that look for files and for text in them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def grep(self, arguments: Arguments) -> str:
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

    async def ls(self, arguments: Arguments) -> str:
        names = await self._sandbox.list(arguments.get("path", "."))
        return "\n".join(sorted(name for name in names if name.rstrip("/") != ".git")) or "(empty)"

    async def glob(self, arguments: Arguments) -> str:
        below, limit = arguments.get("path", "."), arguments.get("limit", GLOB_FILES)
        _check_relative(below)
        found = list(matching(await self._sandbox.files(), arguments["pattern"], below))
        return _cut(found, min(limit, GLOB_FILES), "files") or "no files"


def matching(paths: Iterable[str], pattern: str, below: str = ".") -> Iterator[str]:
    """The paths that fit, in their order. A pattern without a slash is for the name alone, at any depth.

    Raises InvalidArguments for one with more alternatives than anybody means.

    >>> list(matching(["calc.py", "pkg/util.py", "notes.txt"], "*.py"))
    ['calc.py', 'pkg/util.py']
    """
    prefix = "" if below.rstrip("/") in (".", "") else below.removeprefix("./").rstrip("/") + "/"
    patterns = [_segments(each) for each in _expanded(pattern.removeprefix("./"))]
    for path in paths:
        parts = path.removeprefix(prefix).split("/")
        wanted = path.startswith(prefix) and not SKIPPED.intersection(parts[:-1])
        if wanted and any(_fits(parts, each) for each in patterns):
            yield path


def _expanded(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    patterns = [pattern]
    while any(BRACES.search(each) for each in patterns):
        patterns = [one for each in patterns for one in _alternatives(each)]
        if len(patterns) > MOST_ALTERNATIVES:
            raise InvalidArguments(f"the pattern has more than {MOST_ALTERNATIVES} alternatives")
    return patterns


def _alternatives(pattern: str) -> list[str]:
    found = BRACES.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [before + choice + after for choice in found[1].split(",")]


def _segments(pattern: str) -> list[str]:
    return pattern.split("/") if "/" in pattern else ["**", pattern]


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path fit the segments of a pattern; `**` stands for any number of names."""
    ends = {0}  # how many names the segments so far may have used up
    for segment in pattern:
        if segment == "**":
            ends = set(range(min(ends), len(parts) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(parts) and fnmatch.fnmatchcase(parts[at], segment)}
    return len(parts) in ends


def _check_relative(path: str) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise UnexpectedEnvironment(f"{path} is outside the repository")


def _matches(output: str, limit: int) -> str:
    """`path:line:text` sorted by path, since grep follows the order of the directory on disk."""
    rows = [line.removeprefix("./").split("\0", 1) for line in output.splitlines() if "\0" in line]
    rows.sort(key=lambda row: row[0])
    return _cut([":".join(row) for row in rows], limit, "matches") or "no matches"


def _cut(lines: Sequence[str], limit: int, what: str) -> str:
    more = f"\n[{len(lines) - limit} more {what}]" if len(lines) > limit else ""
    return "\n".join(lines[:limit]) + more
