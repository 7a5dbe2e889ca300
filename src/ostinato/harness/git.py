"""A person's git repository: where it is, and git run in it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path


class GitError(Exception):
    """Not a repository the agent can work in, or git failed; the message says what to do."""


async def worktree(directory: Path) -> Path:
    """Top of the working tree that `directory` lies in: a repository's, a linked worktree's or a submodule's.

    Raises GitError where there is none.
    """
    try:
        return Path((await git(directory, "rev-parse", "--show-toplevel")).decode().rstrip("\n"))
    except GitError as error:
        raise GitError(f"no git working tree at {directory} ({error}): {await _advice(directory)}") from error


async def _advice(directory: Path) -> str:
    try:
        bare = await git(directory, "rev-parse", "--is-bare-repository") == b"true\n"
    except GitError:
        bare = False
    return "it is bare, `git worktree add` gives it one" if bare else "run `git init` there first"


async def git(
    directory: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    accepted: tuple[int, ...] = (0,),
) -> bytes:
    """Output of one git command, undisturbed by the GIT_* variables of a hook. Raises GitError."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(directory), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**kept, **(environment or {})},
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    output, errors = await process.communicate(stdin)
    if process.returncode not in accepted:
        raise GitError(errors.decode(errors="replace").strip().removeprefix("fatal: "))
    return output
