"""The tools that look for files and text. In shell patterns `**` crosses directories.

Files that git ignores are left out where the sandbox's root is a git repository and git is installed;
elsewhere every file is searched. Only the repository's own rules count, never those of a person or a machine,
so that the same tree gives the same result in production and in practice.
"""

import asyncio
import fnmatch
import itertools
import os
import posixpath
import re
import shlex
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ostinato.git import QUIET
from ostinato.harness.errors import InvalidArguments, ToolTimeout, UnexpectedEnvironment
from ostinato.harness.tools.contents import decode
from ostinato.harness.tools.names import presentable, shown
from ostinato.harness.tools.normalise import normalise
from ostinato.harness.tools.patterns import extended
from ostinato.sandbox.base import ExecResult, Sandbox

GREP_MATCHES = 100
GLOB_FILES = 200
LINE_CHARS = 500
"""The most characters of a matching line that are shown."""
OUTPUT_BYTES = 2**24
"""The most bytes of a search's output that are read."""
GREP_FAILED = 2

SKIPPED = (".git", "__pycache__", "node_modules", ".venv")
"""The directories whose files nobody wrote here."""
GREP = "grep -anHEZs"
"""The search of files that are known to be text, whatever their encoding."""
WALKING = "grep -rlZs " + " ".join(f"--exclude-dir={name}" for name in SKIPPED)
"""The command that lists files without git."""
GIT = (
    f"env {' '.join(f'{name}={value}' for name, value in QUIET.items())} "
    "git -c safe.directory='*' -c core.fsmonitor=false -c core.excludesFile=/dev/null"
)
"""The git command; it runs nothing that the repository's settings name and reads no rules of the machine.
What is missing is not fetched, even if it is a file of attributes: a remote may be a program."""
LISTING = "grep --no-recurse-submodules --no-color -lz"
"""The command that lists files by git; links and submodules are not among them."""
TEXT = "-I -e ''"
"""The arguments that list text files: in the C locale those without a NUL, as git sees them."""
MARKED = r"""-e "$(printf '^\377\376')" -e "$(printf '^\376\377')" """
"""The beginnings of files in UTF-16, which every other search takes for binary: they are converted."""
UNSEEN = " ".join(f"':(exclude,glob)**/{name}/**'" for name in SKIPPED)
IN_GIT = f"[ -e .git ] && {GIT} rev-parse --is-inside-work-tree >/dev/null 2>&1"
IGNORED = f"{IN_GIT} && {GIT} ls-files -oiz --exclude-standard --directory 2>/dev/null"
ROW = re.compile(rb"([^\0]+)\0(\d+:[^\n]*)(?:\n|\Z)")
"""A match as grep writes it; the name may hold newlines."""
UNREAD = 0
"""The number in place of a line's, of a file that could not be converted: iconv fails or is not there."""
NAMED = 5
"""The files that a sentence about many names."""
MEANS_MORE = re.compile(r"[*?\[\]\\]")
OTHERWISE = re.compile(r"\\(.)|\[\^")
BRACES = re.compile(r"\{([^{}]*)\}")
MOST_ALTERNATIVES = 64

Arguments = Mapping[str, Any]


class FileFinder:
    """The tools that look for files and for text in them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def grep(self, arguments: Arguments) -> str:
        path, limit = self._below(arguments.get("path", ".")), arguments.get("limit", GREP_MATCHES)
        glob = arguments.get("glob")
        command = _grep_command(arguments["pattern"], path, glob)
        result, output = await _run(self._sandbox, command)
        if result.timed_out:
            raise ToolTimeout("grep timed out, narrow the path")
        if result.exit_code >= GREP_FAILED and output and b"\0" not in output:
            said = presentable(os.fsdecode(output))
            raise UnexpectedEnvironment(normalise(said, self._sandbox.root).removeprefix("grep: "))
        rows = [(row[0].removeprefix(b"./"), row[1]) for row in ROW.findall(output)]
        if glob and "/" in glob:  # grep's own walk compares names alone
            fitting = set(matching([os.fsdecode(row[0]) for row in rows], f"**/{glob}", path))
            rows = [row for row in rows if os.fsdecode(row[0]) in fitting]
        return _matches(rows, min(limit, GREP_MATCHES))

    async def ls(self, arguments: Arguments) -> str:
        names = await self._sandbox.list(arguments.get("path", "."))
        return (
            "\n".join(map(shown, sorted(name for name in names if name.rstrip("/") != ".git"))) or "(empty)"
        )

    async def glob(self, arguments: Arguments) -> str:
        below, limit = self._below(arguments.get("path", ".")), arguments.get("limit", GLOB_FILES)
        pattern = self._below(arguments["pattern"])
        seen = without(await self._sandbox.files(), await self._ignored())
        found = [shown(path) for path in matching(seen, pattern, below)]
        return _cut(found, min(limit, GLOB_FILES), "files") or "no files"

    def _below(self, path: str) -> str:
        """Return a path or a pattern within the repository; raises UnexpectedEnvironment for another."""
        path = path.removeprefix(f"{self._sandbox.root}/") if path != self._sandbox.root else "."
        if path.startswith("/") or ".." in path.split("/"):
            raise UnexpectedEnvironment(f"{path} is outside the repository")
        return path

    async def _ignored(self) -> list[str]:
        """Return the paths that git ignores, whole folders with a slash at the end; none outside a
        repository.
        """
        result, output = await _run(self._sandbox, IGNORED)
        return [] if result.exit_code else [os.fsdecode(path) for path in output.split(b"\0")[:-1]]


async def _run(sandbox: Sandbox, command: str) -> tuple[ExecResult, bytes]:
    """Return the result of a command and its output, which `exec` would cut and decode; raises
    UnexpectedEnvironment for more than OUTPUT_BYTES.
    """
    process = await sandbox.start(command)
    output = bytearray()
    try:
        async for data in process.output():
            output += data
            if len(output) > OUTPUT_BYTES:
                raise UnexpectedEnvironment(
                    f"more than {OUTPUT_BYTES >> 20} MiB are found: narrow the search"
                )
    except BaseException:
        await asyncio.shield(process.signal(signal.SIGKILL))
        raise
    finally:
        result = await asyncio.shield(process.wait())
    return result, bytes(output)


def _grep_command(pattern: str, path: str, glob: str | None) -> str:
    looked_for, ignores_case = extended(pattern)
    looked_for, where = shlex.quote(looked_for), shlex.quote(path)
    search = f"{GREP} -i" if ignores_case else GREP
    globs = _expanded(glob) if glob else [None]
    include = " ".join(f"--include={shlex.quote(one)}" for one in globs if one and "/" not in one)
    specs = f"{' '.join(shlex.quote(spec) for one in globs for spec in _pathspecs(path, one))} {UNSEEN}"
    # git grep --untracked leaves out ignored files even where they are tracked: search them too.

    def listed(of_files: str) -> str:
        return (
            f"{{ if ! {{ {IN_GIT}; }}; then LC_ALL=C {WALKING} {include} {of_files} -- {where}; else\n"
            f"LC_ALL=C {GIT} {LISTING} {of_files} --untracked -- {specs}\n"
            f"{GIT} ls-files -ciz --exclude-standard -- {specs} |\n"
            f"LC_ALL=C xargs -0r {GIT} --literal-pathspecs {LISTING} {of_files} --; fi; }}"
        )

    return (
        f"[ -e {where} ] || {{ echo no such file {where}; exit {GREP_FAILED}; }}\n"
        f"{search} -e {looked_for} /dev/null; [ $? -lt {GREP_FAILED} ] || exit {GREP_FAILED}\n"
        f"{listed(TEXT)} |\n"
        f"""xargs -0r sh -c '{search} -e "$0" -- "$@"; [ $? -lt {GREP_FAILED} ]' {looked_for} &&\n"""
        f"{listed(MARKED)} |\n"
        f"""xargs -0r sh -c 'exec 3>&1; for each; do {{ iconv -f UTF-16 -t UTF-8 "./$each" 2>/dev/null ||\n"""
        f"""printf "%s\\000{UNREAD}:\\n" "$each" >&3; }} |\n"""
        f"""{search} --label="$each" -e "$0" -; done; true' {looked_for}"""
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
    folder = posixpath.normpath(below)
    prefix = "" if folder == "." else f"{folder}/"
    patterns = [_segments(each) for each in _expanded(pattern.removeprefix("./"))]
    for path in paths:
        parts = path.removeprefix(prefix).split("/")
        wanted = path.startswith(prefix) and not set(SKIPPED).intersection(parts[:-1])
        if wanted and any(_fits(parts, each) for each in patterns):
            yield path


def _expanded(pattern: str) -> list[str]:
    """Return the alternatives of a pattern: `ab` and `ac` for `a{b,c}`."""
    if pattern.startswith("!"):
        raise InvalidArguments(f"{pattern}: a pattern says which files are meant, not which are not")
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
    """Return the pattern of each name of a path, for `fnmatch`, which has neither `[^a]` nor escapes."""
    segments = pattern.split("/") if "/" in pattern else ["**", pattern]
    return [OTHERWISE.sub(lambda found: f"[{found[1]}]" if found[1] else "[!", each) for each in segments]


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of a path fit the segments of a pattern; `**` is any number of names."""
    ends = {0}  # the numbers of names that the segments so far may have consumed
    for segment in pattern:
        if segment == "**":
            ends = set(range(min(ends), len(parts) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(parts) and fnmatch.fnmatchcase(parts[at], segment)}
    return len(parts) in ends


def _matches(rows: list[tuple[bytes, bytes]], limit: int) -> str:
    """Return `path:line:text` sorted by path, since grep follows the order of the directory on disk."""
    unread = sorted({shown(os.fsdecode(path)) for path, row in rows if row == b"%d:" % UNREAD})
    rows = sorted((row for row in rows if row[1] != b"%d:" % UNREAD), key=lambda row: row[0])
    found = [f"{shown(os.fsdecode(path))}:{_line(rest)}" for path, rest in rows[:limit]]
    text = _cut([*found, *[""] * (len(rows) - len(found))], limit, "matches") or "no matches"
    if not unread:
        return text
    more = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
    files = ", ".join(unread[:NAMED])
    return f"{text}\n[not searched, since iconv here cannot convert their UTF-16: {files}{more}]"


def _line(row: bytes) -> str:
    """Return the number and text of a line; of a long one its beginning, and how to read on."""
    number, _, data = row.removesuffix(b"\r").partition(b":")
    try:
        text = decode(data, "").text
    except UnexpectedEnvironment:  # a NUL that stands far behind the beginning of the file
        text = data.decode("utf-8", "backslashreplace")
    left = len(text) - LINE_CHARS
    more = f" [cut: {left} more characters, read with offset {number.decode()}]" if left > 0 else ""
    return f"{number.decode()}:{text[:LINE_CHARS]}{more}"


def _cut(lines: Sequence[str], limit: int, what: str) -> str:
    left = len(lines) - limit
    more = f"\n[{left} more {what}, narrow the search]" if left > 0 else ""
    return "\n".join(lines[:limit]) + more
