"""The tools that look for files and text. In shell patterns `**` crosses directories.

Files that git ignores are left out where the sandbox's root is a git repository and git is installed;
elsewhere every file is searched. Only the repository's own rules count, never those of a person or a machine,
so that the same tree gives the same result in production and in practice.
"""

import fnmatch
import itertools
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ostinato.harness.errors import InvalidArguments, ToolTimeout, UnexpectedEnvironment
from ostinato.harness.tools.normalise import normalise
from ostinato.sandbox.base import Sandbox

GREP_MATCHES = 100
GLOB_FILES = 200
GREP_FAILED = 2

SKIPPED = (".git", "__pycache__", "node_modules", ".venv")
"""The directories whose files nobody wrote here."""
GREP = "grep -nHIEZs"
WALKING = "-r " + " ".join(f"--exclude-dir={name}" for name in SKIPPED)
GIT = "git -c safe.directory='*' -c core.fsmonitor=false -c core.excludesFile=/dev/null"
"""The git command; it runs nothing that the repository's settings name and reads no rules of the machine."""
TEXTS = "grep --no-recurse-submodules --no-color -lzI -e ''"
"""The command that lists text files by git; links and submodules are not among them."""
UNSEEN = " ".join(f"':(exclude,glob)**/{name}/**'" for name in SKIPPED)
IN_GIT = f"[ -e .git ] && {GIT} rev-parse --is-inside-work-tree >/dev/null 2>&1"
IGNORED = f"{IN_GIT} && {GIT} ls-files -oiz --exclude-standard --directory 2>/dev/null"
MEANS_MORE = re.compile(r"[*?\[\]\\]")
BRACES = re.compile(r"\{([^{}]*)\}")
MOST_ALTERNATIVES = 64

Arguments = Mapping[str, Any]


class FileFinder:
    """The tools that look for files and for text in them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def grep(self, arguments: Arguments) -> str:
        path, limit = arguments.get("path", "."), arguments.get("limit", GREP_MATCHES)
        _check_relative(path)
        command = _grep_command(arguments["pattern"], path, arguments.get("glob"))
        result = await self._sandbox.exec(command)
        if result.timed_out:
            raise ToolTimeout("grep timed out, narrow the path")
        if result.exit_code >= GREP_FAILED and result.output and "\0" not in result.output:
            raise UnexpectedEnvironment(normalise(result.output, self._sandbox.root).removeprefix("grep: "))
        return _matches(result.output, min(limit, GREP_MATCHES))

    async def ls(self, arguments: Arguments) -> str:
        names = await self._sandbox.list(arguments.get("path", "."))
        return "\n".join(sorted(name for name in names if name.rstrip("/") != ".git")) or "(empty)"

    async def glob(self, arguments: Arguments) -> str:
        below, limit = arguments.get("path", "."), arguments.get("limit", GLOB_FILES)
        _check_relative(below)
        seen = without(await self._sandbox.files(), await self._ignored())
        found = list(matching(seen, arguments["pattern"], below))
        return _cut(found, min(limit, GLOB_FILES), "files") or "no files"

    async def _ignored(self) -> list[str]:
        """Return the paths that git ignores, whole folders with a slash at the end; none outside a
        repository.
        """
        result = await self._sandbox.exec(IGNORED)
        return [] if result.exit_code else result.output.split("\0")[:-1]


def _grep_command(pattern: str, path: str, glob: str | None) -> str:
    looked_for, where = shlex.quote(pattern), shlex.quote(path)
    include = f"--include={shlex.quote(glob)}" if glob else ""
    specs = f"{' '.join(map(shlex.quote, _pathspecs(path, glob)))} {UNSEEN}"
    # git grep --untracked leaves out ignored files even where they are tracked: search them too.
    return (
        f"[ -e {where} ] || {{ echo no such file {where}; exit {GREP_FAILED}; }}\n"
        f"{IN_GIT} || {{ {GREP} {WALKING} {include} -e {looked_for} -- {where}; exit; }}\n"
        f"{{ {GIT} {TEXTS} --untracked -- {specs}\n"
        f"{GIT} ls-files -ciz --exclude-standard -- {specs} |\n"
        f"xargs -0r {GIT} --literal-pathspecs {TEXTS} --; }} |\n"
        f"""xargs -0r sh -c '{GREP} -e "$0" -- "$@"; [ $? -lt {GREP_FAILED} ]' {looked_for}"""
    )


def _pathspecs(path: str, glob: str | None) -> list[str]:
    """Return the pathspecs for git: names that fit `glob` at any depth below `path`, or `path` itself."""
    below = posixpath.normpath(path)
    if glob is None:
        return [f":(literal){below}"]
    name = posixpath.basename(below)
    itself = [f":(literal){below}"] if below != "." and fnmatch.fnmatchcase(name, glob) else []
    prefix = "" if below == "." else MEANS_MORE.sub(r"\\\g<0>", below) + "/"
    return [f":(glob){prefix}**/{glob}", *itself]


def without(paths: Iterable[str], ignored: Iterable[str]) -> Iterator[str]:
    """Yield the paths that are neither ignored nor below an ignored folder (`build/`), in their order.

    >>> list(without(["a.log", "a.py", "build/x/a.py"], ["a.log", "build/"]))
    ['a.py']
    """
    out = frozenset(ignored)
    for path in paths:
        folders = itertools.accumulate(
            path.split("/")[:-1], lambda above, name: f"{above}{name}/", initial=""
        )
        if path not in out and out.isdisjoint(folders):
            yield path


def matching(paths: Iterable[str], pattern: str, below: str = ".") -> Iterator[str]:
    """Yield the paths that fit, in their order. A pattern without a slash is for the name alone, at any
    depth.

    Raises InvalidArguments for a pattern with too many alternatives.

    >>> list(matching(["calc.py", "pkg/util.py", "notes.txt"], "*.py"))
    ['calc.py', 'pkg/util.py']
    """
    prefix = "" if below.rstrip("/") in (".", "") else below.removeprefix("./").rstrip("/") + "/"
    patterns = [_segments(each) for each in _expanded(pattern.removeprefix("./"))]
    for path in paths:
        parts = path.removeprefix(prefix).split("/")
        wanted = path.startswith(prefix) and not set(SKIPPED).intersection(parts[:-1])
        if wanted and any(_fits(parts, each) for each in patterns):
            yield path


def _expanded(pattern: str) -> list[str]:
    """Return the alternatives of a pattern: `ab` and `ac` for `a{b,c}`."""
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
    """Return whether the names of a path fit the segments of a pattern; `**` is any number of names."""
    ends = {0}  # the numbers of names that the segments so far may have consumed
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
    """Return `path:line:text` sorted by path, since grep follows the order of the directory on disk."""
    rows = [line.removeprefix("./").split("\0", 1) for line in output.splitlines() if "\0" in line]
    rows.sort(key=lambda row: row[0])
    return _cut([":".join(row) for row in rows], limit, "matches") or "no matches"


def _cut(lines: Sequence[str], limit: int, what: str) -> str:
    more = f"\n[{len(lines) - limit} more {what}]" if len(lines) > limit else ""
    return "\n".join(lines[:limit]) + more
