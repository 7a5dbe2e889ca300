"""A person's git repository: where it is, and what a session changed in it, without touching its index."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


class GitError(Exception):
    """Not a repository the agent can work in, or git failed; the message says what to do."""


async def worktree(directory: Path) -> Path:
    """Top of the working tree that `directory` lies in. Raises GitError when there is none."""
    try:
        return Path((await _git(directory, "rev-parse", "--show-toplevel")).decode().rstrip("\n"))
    except GitError as error:
        raise GitError(f"no git working tree at {directory} ({error}): run `git init` there first") from error


class Snapshots:
    """Trees of a working tree at moments, ignored files left out.

    Objects go to a folder of its own, so nothing is left in the repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._scratch = tempfile.TemporaryDirectory(prefix="ostinato-diff-")

    async def take(self) -> str:
        """Id of the tree as it is now."""
        environment = await self._environment()
        await _git(self._root, "add", "--all", environment=environment)
        return (await _git(self._root, "write-tree", environment=environment)).decode().strip()

    async def diff(self, before: str, after: str) -> str:
        """Unified diff of two trees."""
        arguments = ("diff", "--no-color", "--no-ext-diff", before, after)
        output = await _git(self._root, *arguments, environment=await self._environment())
        return output.decode(errors="replace")

    def close(self) -> None:
        self._scratch.cleanup()

    async def _environment(self) -> Mapping[str, str]:
        own = Path(self._scratch.name)
        real = Path((await _git(self._root, "rev-parse", "--git-path", "objects")).decode().strip())
        index = Path((await _git(self._root, "rev-parse", "--git-path", "index")).decode().strip())
        if not (own / "index").exists() and (self._root / index).exists():
            shutil.copyfile(self._root / index, own / "index")
        (own / "objects").mkdir(exist_ok=True)
        return {
            "GIT_INDEX_FILE": str(own / "index"),
            "GIT_OBJECT_DIRECTORY": str(own / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((self._root / real).resolve()),
        }


async def _git(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(directory), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    output, errors = await process.communicate()
    if process.returncode:
        raise GitError(errors.decode(errors="replace").strip().removeprefix("fatal: "))
    return output
