"""What of a repository could tell the answer: its history, and what was made from later versions of it.

Copied are files only. Left out are git's data, caches of interpreters and checkers, and archives of the
project itself that are newer than the project says it is.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from ostinato.sandbox.base import SandboxError

_FOLDERS = frozenset(
    {
        *(
            ".git",
            "__pycache__",
            ".mypy_cache",
            ".pytest_cache",
            ".ruff_cache",
            ".tox",
            ".nox",
            ".hypothesis",
        ),
        *(".venv", "node_modules", ".eggs", ".gradle", ".idea", ".cache"),
    }
)
_FILES = re.compile(r".*\.py[cod]$|\.coverage(\..*)?$|.*\.orig$|.*\.rej$|.*\.swp$|ORIG_HEAD$")
_ARCHIVE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+?)-(?P<version>\d[\w.!+]*?)(-.*)?\.(whl|tar\.gz|zip|egg)$")


_SHA256 = re.compile(r"^\s*objectformat\s*=\s*sha256", re.IGNORECASE | re.MULTILINE)


def checkout(source: Path, commit: str | None, target: Path) -> None:
    """The files of `source` in `target`: of a commit, or as they lie there. Raises SandboxError."""
    if commit is None:
        shutil.copytree(source, target, symlinks=True, ignore=_ignored)
    else:
        _extract(source, commit, target)
        for path in sorted(target.rglob("*"), reverse=True):
            if path.name in _ignored(str(path.parent), [path.name]):
                _remove(path)
    _check_links(target)
    for path in newer_archives(target):
        path.unlink()


def _ignored(folder: str, names: list[str]) -> set[str]:
    return {
        name
        for name in names
        if _FILES.match(name) or (name in _FOLDERS and (name == ".git" or Path(folder, name).is_dir()))
    }


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _extract(source: Path, commit: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ostinato-objects-") as scratch:
        git = _reader(source, Path(scratch, "git"))
        exact = git(commit, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
        archive = Path(scratch, "files.tar")
        git(commit, "archive", "--format=tar", f"--output={archive}", exact)
        target.mkdir(parents=True)
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")


def _reader(source: Path, ours: Path) -> Callable[..., str]:
    """git over the objects and names of `source` in a fresh repository, with no configuration but our own.

    A repository's configuration can name programs (filters, monitors, helpers for what is missing); none of
    it is read but the kind of its hashes.
    """
    place = _git_directory(source)
    kind = "sha256" if _SHA256.search(_text(place / "config")) else "sha1"
    _git(source, "init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(ours))
    (ours / "objects/info").mkdir(exist_ok=True)
    (ours / "objects/info/alternates").write_text(f"{(place / 'objects').absolute()}\n")
    for name in ("HEAD", "packed-refs"):
        (ours / name).write_text(_text(place / name) or "ref: refs/heads/main\n" * (name == "HEAD"))
    if head := _text(_worktree(source) / "HEAD"):
        (ours / "HEAD").write_text(head)
    for path in (place / "refs").rglob("*"):
        copied = ours / path.relative_to(place)
        if path.is_file() and not path.is_symlink():
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(_text(path))

    def read(commit: str, *arguments: str) -> str:
        try:
            return _git(source, f"--git-dir={ours}", *arguments)
        except SandboxError as error:
            raise SandboxError(f"{source} has no commit {commit!r}: {error}") from None

    return read


def _worktree(source: Path) -> Path:
    """Where git keeps what is of this working tree alone: a file instead of `.git` says where that is."""
    named = source / ".git"
    if not named.exists():
        return source
    if named.is_dir():
        return named
    return source / _text(named).removeprefix("gitdir:").strip()


def _git_directory(source: Path) -> Path:
    """Where objects and names lie, of all working trees together."""
    place = _worktree(source)
    common = _text(place / "commondir").strip()
    return place / common if common else place


def _text(path: Path) -> str:
    """Of a small file of git's; empty when there is none."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _git(source: Path, *arguments: str) -> str:
    """Raises SandboxError with what git says."""
    done = subprocess.run(
        ["git", *arguments], cwd="/", env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SandboxError(done.stderr.strip()[:300] or f"git failed at {source}")
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """What git runs with: nobody's configuration, nothing fetched, nothing asked."""
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
    alone |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_TEMPLATE_DIR": ""}
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **alone}


def _check_links(target: Path) -> None:
    """A link that leads out would show the machine."""
    root = target.resolve()
    for path in target.rglob("*"):
        if path.is_symlink() and not (path.parent / path.readlink()).resolve().is_relative_to(root):
            raise SandboxError(f"{path.relative_to(target)} is a link out of the repository: remove it")


def newer_archives(root: Path) -> list[Path]:
    """Wheels and other archives of this very project with a later version than `pyproject.toml` says."""
    name, version = _project(root)
    found = []
    for path in sorted(root.rglob("*")):
        match = _ARCHIVE.match(path.name)
        if match and path.is_file() and _plain(match["name"]) == name and _later(match["version"], version):
            found.append(path)
    return found


def _project(root: Path) -> tuple[str, str]:
    """Name and version; the directory's name and none, which every version is later than."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (FileNotFoundError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        project = {}
    return _plain(str(project.get("name", root.name))), str(project.get("version", ""))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _later(version: str, than: str) -> bool:
    """By numbers, so far as they go; a version that says less is not later."""
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
