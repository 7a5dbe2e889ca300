"""What of a repository could tell the answer: its history, and what was made from later versions of it.

Copied are files only. Left out are git's data, caches of interpreters and checkers, and archives of the
project itself that are newer than the project says it is.
"""

import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
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
    exact = _git(source, commit, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        _git(source, commit, "archive", "--format=tar", f"--output={archive.name}", exact)
        target.mkdir(parents=True)
        with tarfile.open(archive.name) as opened:
            opened.extractall(target, filter="data")


def _git(source: Path, commit: str, *arguments: str) -> str:
    command = ["git", "-C", str(source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SandboxError(f"{source} has no commit {commit!r}: {done.stderr.strip()[:300]}")
    return done.stdout.strip()


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
