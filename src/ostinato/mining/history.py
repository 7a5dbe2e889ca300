"""The commits of a git repository that a task can be made of, read from a bare clone.

A clone takes no hooks and no settings along, so nothing of a hostile repository runs. Each commit that cannot
be used raises a MiningError with its kind: a merge, a submodule, a binary change and so on.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.git import QUIET, start
from ostinato.mining.archive import MAX_BYTES, MAX_FILES, checked_tree, licence, why_odd
from ostinato.mining.base import MiningError, SourceTree, is_test, repository_name, settings_of
from ostinato.mining.python_source import PythonSourceError, python_source

GIT_TIMEOUT_S = 300
SUBMODULE, LINK = "160000", "120000"
TRAILER = re.compile(r"^(signed-off-by|co-authored-by|reviewed-by|acked-by|cc|change-id|[\w-]+-by):.*$", re.I)
REFERENCE = re.compile(
    r"\s*\(?(?:\b(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?|refs?|see)\b)?:?\s*(?:gh-|#)\d+\)?", re.I
)
ADDRESS = re.compile(r"https?://\S+")
COMMIT_ID = re.compile(r"\b[0-9a-f]{7,40}\b")
CONVENTIONAL = re.compile(r"^\w+(\([^)]*\))?!?:\s+")
CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
LEAK_CHARACTERS = 14
"""The length from which a changed line of code in a message gives the answer away."""
MIN_WORDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit that changes sources and tests.

    >>> Commit(id="1f", parent="0a", date="2026-01-01", message="correct the sign", sources={}, tests={},
    ...        before={}, name="toolz", licence="BSD").message
    'correct the sign'
    """

    id: str
    parent: str
    date: str
    message: str
    """The message without trailers, references and addresses."""
    sources: Mapping[str, bytes | None]
    """The changed files that are no tests, as they are afterwards; None for one that is deleted."""
    tests: Mapping[str, bytes]
    """The changed files of the tests, as they are afterwards."""
    before: Mapping[str, bytes]
    """The whole tree before, with the settings of the tests as they are afterwards, without deleted tests."""
    name: str
    licence: str

    @property
    def tree(self) -> SourceTree:
        """The repository before the commit."""
        return SourceTree(name=self.name, version=self.parent[:12], files=self.before, licence=self.licence)


class History:
    """The history of one repository, in a bare clone in `folder`; its name is `name`, or its folder's."""

    def __init__(self, repository: Path, folder: Path, name: str = "") -> None:
        self._clone = folder.resolve() / "clone.git"
        self._name = repository_name(name or repository.resolve().name)
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **QUIET,
            "GIT_ALLOW_PROTOCOL": "file",
            "LC_ALL": "C.UTF-8",
        }
        clone = ("clone", "--bare", "--quiet", "--", str(repository.resolve()), str(self._clone))
        self._start(*clone)

    def head(self) -> SourceTree:
        """Return the files of the newest commit, without what git ignores. Raises MiningError."""
        try:
            id = self._run("rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        except MiningError:
            if not self._run("for-each-ref", "--count=1"):
                raise MiningError("no commits", self._name, "commit its files first") from None
            raise
        left_out = Counter[str]()
        return checked_tree(self._name, id[:12], self._tree(f"{self._name}@{id[:9]}", id, left_out), left_out)

    def commits(self, limit: int) -> list[str]:
        """Return the newest commits of the first-parent history."""
        return self._run("log", "--first-parent", f"-{limit}", "--format=%H").decode().split()

    def commit(self, id: str) -> Commit:
        """Read one commit. Raises MiningError when no task can be made of it."""
        head = self._run("show", "-s", "--format=%P%x00%cs%x00%B", id).decode(errors="replace")
        parents, date, text = head.split("\0", 2)
        where = f"{self._name}@{id[:9]}"
        if len(parents.split()) != 1:
            raise MiningError("merge" if parents else "first commit", where, f"it has parents {parents!r}")
        changed = list(self._changes(where, parents, id))
        sources = [path for path in changed if path.endswith(".py") and not is_test(path)]
        tests = [path for path in changed if is_test(path)]
        if not sources or not any(path.endswith(".py") for path in tests):
            raise MiningError("changes no sources and tests", where, f"{len(changed)} files")
        before, after = self._tree(where, parents), self._tree(where, id)
        tests = [path for path in tests if path in after]
        if not any(path.endswith(".py") for path in tests):
            raise MiningError("changes no sources and tests", where, "it only deletes tests")
        self._check_binary(where, changed, before)
        self._check_binary(where, changed, after)
        before |= settings_of(after)
        for path in changed:
            if is_test(path) and path not in after:
                before.pop(path, None)
        message = cleaned(text)
        self._check_message(
            where, message, {path: (before.get(path, b""), after.get(path, b"")) for path in sources}
        )
        return Commit(
            id=id,
            parent=parents,
            date=date,
            message=message,
            sources={
                path: after.get(path)
                for path in changed
                if not is_test(path) and before.get(path) != after.get(path)
            },
            tests={path: after[path] for path in tests},
            before=before,
            name=self._name,
            licence=licence(before),
        )

    def _changes(self, where: str, parent: str, id: str) -> Iterator[str]:
        raw = self._run("diff-tree", "-r", "-z", "--raw", "--no-renames", parent, id)
        fields = raw.decode("utf-8", "surrogateescape").split("\0")
        for head, path in zip(fields[::2], fields[1::2], strict=False):
            modes = set(head.lstrip(":").split()[:2])
            if SUBMODULE in modes:
                raise MiningError("submodule", where, path)
            if LINK in modes:
                raise MiningError("link in history", where, path)
            yield path

    def _check_binary(self, where: str, changed: list[str], files: Mapping[str, bytes]) -> None:
        for path in changed:
            if b"\0" in (data := files.get(path, b"")):
                raise MiningError("binary change", where, path)
            try:
                _ = python_source(data) if path.endswith(".py") else None
            except PythonSourceError as error:
                raise MiningError("unreadable change", where, f"{path} is {error}") from error

    def _check_message(self, where: str, message: str, changed: Mapping[str, tuple[bytes, bytes]]) -> None:
        if len(message.split()) < MIN_WORDS:
            raise MiningError("message says nothing", where, repr(message))
        flat = "".join(message.split())
        for before, after in changed.values():
            old = set(before.decode(errors="replace").splitlines())
            for line in after.decode(errors="replace").splitlines():
                code = "".join(line.split())
                if line not in old and len(code) >= LEAK_CHARACTERS and code in flat:
                    raise MiningError("message gives the answer away", where, line.strip())

    def _tree(self, where: str, id: str, left_out: Counter[str] | None = None) -> dict[str, bytes]:
        files = files_of(where, id, self._run, left_out)
        if len(files) > MAX_FILES:
            raise MiningError("bomb", where, f"{len(files)} files, more than {MAX_FILES}")
        return files

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        return self._start(f"--git-dir={self._clone}", *arguments, given=given)

    def _start(self, *arguments: str, given: bytes = b"") -> bytes:
        return output(
            self._name,
            lambda: start(
                "/", *arguments, given=given, environment=self._environment, timeout_s=GIT_TIMEOUT_S
            ),
        )


def output(where: str, command: Callable[[], subprocess.CompletedProcess[bytes]]) -> bytes:
    """Return the output of a git command. Raises MiningError, which names `where`, when it fails."""
    try:
        done = command()
        done.check_returncode()
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[-300:]
        raise MiningError("unreadable repository", where, said) from error
    except (subprocess.SubprocessError, OSError) as error:
        raise MiningError("unreadable repository", where, str(error)) from error
    return done.stdout


def files_of(
    where: str, tree: str, run: Callable[..., bytes], left_out: Counter[str] | None = None
) -> dict[str, bytes]:
    """Return the files of a tree, read by `run`, a git in the repository that has it.

    Links, submodules and odd files are left out, and counted in `left_out`. Raises MiningError for more than
    `MAX_BYTES` before any file is read.
    """
    listing = run("ls-tree", "-r", "-z", "-l", "--full-tree", tree).decode("utf-8", "surrogateescape")
    files: list[tuple[str, ...]] = []
    for head, path in (line.split("\t", 1) for line in listing.split("\0")[:-1]):
        mode, kind, _, stated = head.split()
        if kind == "blob" and not stated.isdigit():
            raise MiningError("unreadable repository", where, f"the content of {path} is missing")
        why = "a link" if mode == LINK else "a submodule" if kind == "commit" else why_odd(path, int(stated))
        if not why:
            files.append((*head.split(), path))
        elif left_out is not None:
            left_out[why] += 1
    if sum(int(size) for *_, size, _ in files) > MAX_BYTES:
        raise MiningError("bomb", where, f"more than {MAX_BYTES >> 20} MiB")
    blobs = "".join(f"{blob}\n" for _, _, blob, *_ in files)
    stream = run("cat-file", "--batch=%(objectsize)", given=blobs.encode())
    contents, at = dict[str, bytes](), 0
    for *_, path in files:
        end = stream.index(b"\n", at)
        size = int(stream[at:end])
        contents[path] = stream[end + 1 : end + 1 + size]
        at = end + 2 + size
    return contents


def cleaned(message: str) -> str:
    """Return what a commit's message asks for: no trailers, references, addresses, ids, code and type."""
    text = ADDRESS.sub("", CODE_BLOCK.sub("", message))
    lines = [line.rstrip() for line in text.splitlines() if not TRAILER.match(line.strip())]
    text = COMMIT_ID.sub("", REFERENCE.sub("", "\n".join(lines)))
    return CONVENTIONAL.sub("", re.sub(r"\n{3,}", "\n\n", text).strip(), count=1)
