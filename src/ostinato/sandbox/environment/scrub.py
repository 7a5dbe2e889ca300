"""Copies of repositories without history and traces of later versions, which could hold the solution.

Only files are copied. Git's data, caches of interpreters and checkers, and archives of the project itself
with a version above its stated one are left out.
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

from ostinato.git import start
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
MOST_FILES, MOST_BYTES = 500_000, 1 << 32
"""The files of a commit, and their bytes, that are copied."""
PATIENCE_S = 600.0


def checkout(source: Path, commit: str | None, target: Path) -> None:
    """Copy the files of `source` to `target`, of a commit or as they are. Raises SandboxError."""
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
        git = _git_reader(source, Path(scratch, "git"))
        exact = git(commit, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
        _check_size(git(commit, "ls-tree", "-r", "-l", "-z", "--full-tree", exact), commit)
        archive = Path(scratch, "files.tar")
        git(commit, "archive", "--format=tar", f"--output={archive}", exact)
        target.mkdir(parents=True)
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")


def _check_size(listed: str, commit: str) -> None:
    """Raise SandboxError for a commit that fills a disk: a few small objects can stand for endless files."""
    sizes = [entry.split(maxsplit=4)[3] for entry in listed.split("\0") if entry]
    total = sum(int(size) for size in sizes if size.isdigit())
    if len(sizes) > MOST_FILES or total > MOST_BYTES:
        raise SandboxError(
            f"commit {commit} has {len(sizes)} files of {total >> 20} MiB together, and no more than "
            f"{MOST_FILES} of {MOST_BYTES >> 20} MiB are copied: name a smaller commit"
        )


def _git_reader(source: Path, fresh: Path) -> Callable[..., str]:
    """Return a function that runs git on the objects and refs of `source`, from a fresh repository.

    The source's configuration could name programs (filters, monitors, helpers for missing objects). Nothing
    of it is read but the kind of its hashes.
    """
    directory = _git_directory(source)
    kind = "sha256" if _SHA256.search(_text(directory / "config")) else "sha1"
    _git(source, "init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(fresh))
    (fresh / "objects/info").mkdir(exist_ok=True)
    (fresh / "objects/info/alternates").write_text(f"{(directory / 'objects').absolute()}\n")
    # The repository's own attributes would leave files out of the copy, or write commit messages into them.
    (fresh / "info").mkdir(exist_ok=True)
    (fresh / "info/attributes").write_text("* -export-ignore -export-subst\n")
    for name in ("HEAD", "packed-refs"):
        (fresh / name).write_text(_text(directory / name) or "ref: refs/heads/main\n" * (name == "HEAD"))
    if head := _text(_worktree(source) / "HEAD"):
        (fresh / "HEAD").write_text(head)
    for path in (directory / "refs").rglob("*"):
        copied = fresh / path.relative_to(directory)
        if path.is_file() and not path.is_symlink():
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(_text(path))

    def read(commit: str, *arguments: str) -> str:
        try:
            return _git(source, f"--git-dir={fresh}", *arguments)
        except SandboxError as error:
            raise SandboxError(f"{source} has no commit {commit!r} that can be read: {error}") from None

    return read


def _worktree(source: Path) -> Path:
    """Return the git directory of this working tree, to which `.git` may be a file that points."""
    named = source / ".git"
    if not named.exists():
        return source
    if named.is_dir():
        return named
    return source / _text(named).removeprefix("gitdir:").strip()


def _git_directory(source: Path) -> Path:
    """Return the directory of the objects and refs that all working trees share."""
    place = _worktree(source)
    common = _text(place / "commondir").strip()
    return place / common if common else place


def _text(path: Path) -> str:
    """Return the text of a small file of git, empty if it does not exist."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _git(source: Path, *arguments: str) -> str:
    """Run git. Raises SandboxError with its error."""
    try:
        done = start("/", *arguments, environment=environment(), timeout_s=PATIENCE_S)
    except subprocess.SubprocessError as error:
        raise SandboxError(str(error)) from error
    if done.returncode != 0:
        raise SandboxError(done.stderr.decode(errors="replace").strip()[:300] or f"git failed at {source}")
    return os.fsdecode(done.stdout).strip()


def environment() -> dict[str, str]:
    """Return an environment in which git reads no configuration, fetches nothing and asks nothing."""
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
    alone |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_TEMPLATE_DIR": ""}
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **alone}


def _check_links(target: Path) -> None:
    """Raise SandboxError for a link out of the repository, which would reveal files of this machine."""
    root = target.resolve()
    for path in target.rglob("*"):
        if path.is_symlink() and not (path.parent / path.readlink()).resolve().is_relative_to(root):
            raise SandboxError(f"{path.relative_to(target)} is a link out of the repository: remove it")


def newer_archives(root: Path) -> list[Path]:
    """Return wheels and other archives of this project with a later version than `pyproject.toml` states."""
    name, version = _project(root)
    archives = []
    for path in sorted(root.rglob("*")):
        match = _ARCHIVE.match(path.name)
        if match and path.is_file() and _plain(match["name"]) == name and _later(match["version"], version):
            archives.append(path)
    return archives


def _project(root: Path) -> tuple[str, str]:
    """Return name and version; without `pyproject.toml` the directory's name and an empty, lowest version."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (FileNotFoundError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        project = {}
    return _plain(str(project.get("name", root.name))), str(project.get("version", ""))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _later(version: str, than: str) -> bool:
    """Return True if a version is later by its numbers; the same numbers with fewer parts are not later."""
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
