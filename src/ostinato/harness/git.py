"""Git in a person's repository: the top of its working tree, its commands, and its guard against hooks."""

import asyncio
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ostinato.git import environment as safe_environment
from ostinato.harness.permissions.repository import overriding
from ostinato.harness.permissions.shell import Opaque, split


class GitError(Exception):
    """The agent cannot work in this directory, or git failed; the message says what to do."""


async def worktree(directory: Path) -> Path:
    """Return the top of the working tree that `directory` lies in: of a repository, linked worktree or
    submodule.

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
    """Return the output of one git command, which runs nothing that the repository names; raises GitError.

    A caller that is cancelled waits for the end of the command, which may hold the lock of an index that the
    next command needs.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        safe = await asyncio.to_thread(safe_environment, directory, {**kept, **(environment or {})})
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(directory), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=safe,
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise GitError(error.stderr.decode(errors="replace").strip().removeprefix("fatal: ")) from error
    except subprocess.SubprocessError as error:
        raise GitError(str(error)) from error
    communicating = asyncio.ensure_future(process.communicate(stdin))
    try:
        output, errors = await asyncio.shield(communicating)
    except asyncio.CancelledError:
        await asyncio.wait({communicating})
        raise
    if process.returncode not in accepted:
        raise GitError(errors.decode(errors="replace").strip().removeprefix("fatal: "))
    return output


def guarded(command: str) -> str:
    """Return the shell command under the settings that keep git from obeying the repository while it looks.

    A command without `git status`, `git diff` or `git log`, or one that cannot be read, stays as it is.
    """
    try:
        settings = overriding(split(command))
    except Opaque:
        return command
    if not settings:
        return command
    words = [f"GIT_CONFIG_COUNT={len(settings)}"]
    for number, (key, value) in enumerate(settings.items()):
        words += [f"GIT_CONFIG_KEY_{number}={key}", f"GIT_CONFIG_VALUE_{number}={value}"]
    return f"export {shlex.join(words)}; {command}"
