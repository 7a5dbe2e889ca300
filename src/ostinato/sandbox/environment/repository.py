"""The repository of a task whose image brings its files: they are copied, and become one commit.

Only files are copied. Git's data, caches of interpreters and checkers, and archives of the project itself
with a version above its stated one are left out: they could hold the solution.
"""

import os
import re
import shutil
import tempfile
import tomllib
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
_DATE = "2026-01-01T00:00:00+0000"
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "ostinato"), ("EMAIL", "ostinato@localhost"), ("DATE", _DATE))
}


def write_repository(source: Path, target: Path) -> str:
    """Copy the files of a directory to `target`, as a repository of one commit, and return the commit's id.

    The same files give the same id on every machine. Raises SandboxError, and leaves no `target`.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as scratch:
        draft = Path(scratch, "repo")
        shutil.copytree(source, draft, symlinks=True, ignore=_ignored)
        _check_links(draft)
        for path in newer_archives(draft):
            path.unlink()
        commit = _commit(draft)
        draft.rename(target)
    return commit


def _ignored(folder: str, names: list[str]) -> set[str]:
    return {
        name
        for name in names
        if _FILES.match(name) or (name in _FOLDERS and (name == ".git" or Path(folder, name).is_dir()))
    }


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


def _commit(repo: Path) -> str:
    """Make one commit of all files, without a trace of this machine; return its id."""
    environment = {**_alone(), **_WHO}

    def git(*arguments: str) -> str:
        settings = ("-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0")
        done = start(repo, *settings, *arguments, environment=environment)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[:300]
            raise SandboxError(f"git {arguments[0]} failed in {repo}: {said}")
        return os.fsdecode(done.stdout).strip()

    git("init", "--quiet", "--initial-branch=main", "--template=")
    git("add", "--all", "--force")
    git("commit", "--quiet", "--allow-empty", "--no-verify", "--message=start")
    for name in ("COMMIT_EDITMSG", "index.lock", "ORIG_HEAD"):
        (repo / ".git" / name).unlink(missing_ok=True)
    shutil.rmtree(repo / ".git" / "logs", ignore_errors=True)
    return git("rev-parse", "HEAD")


def _alone() -> dict[str, str]:
    """Return an environment in which git reads no configuration and asks nothing."""
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
    alone |= {"GIT_TERMINAL_PROMPT": "0", "GIT_TEMPLATE_DIR": ""}
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **alone}
