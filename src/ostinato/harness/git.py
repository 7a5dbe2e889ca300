"""Git in a person's repository: the top of its working tree, its commands, and its guard against hooks."""

import asyncio
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from ostinato.git import reason, run, start, trusting, where
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
        return Path(await locate(directory, "--show-toplevel"))
    except GitError as error:
        raise GitError(f"no git working tree at {directory} ({error}): {await _advice(directory)}") from error


async def _advice(directory: Path) -> str:
    try:
        bare = await locate(directory, "--is-bare-repository") == "true"
    except GitError:
        bare = False
    if bare:
        return "it is bare, `git worktree add` gives it one"
    return "git does not read the .git there" if _is_marked(directory) else "run `git init` there first"


def _is_marked(directory: Path) -> bool:
    """Return whether the directory, or one above it, has a `.git`, whether or not git can read it."""
    here = directory.absolute()
    return any((each / ".git").exists() for each in (here, *here.parents))


async def locate(directory: Path, *question: str) -> str:
    """Return what `git rev-parse` says about the place of a repository; raises GitError."""
    return os.fsdecode(await _ended(lambda: where(directory, *question))).rstrip("\n")


async def git(
    directory: Path,
    *arguments: str,
    own: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    accepted: tuple[int, ...] = (0,),
) -> bytes:
    """Return the output of one git command, which runs nothing that the repository names; raises GitError.

    `own` has the variables of a repository of our own, whose settings nobody else has written. A caller that
    is cancelled waits for the end of the command, which may hold the lock of an index that the next command
    needs.
    """

    def command() -> bytes:
        if own is None:
            done = run(directory, *arguments, given=stdin)
        else:
            done = start(directory, *arguments, environment={**trusting(), **own}, given=stdin)
        if done.returncode not in accepted:
            raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr)
        return done.stdout

    return await _ended(command)


async def _ended(command: Callable[[], bytes]) -> bytes:
    """Return the result of a git command in a thread, which has ended even where the caller is cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(command))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
    except (subprocess.SubprocessError, FileNotFoundError) as error:
        raise GitError(reason(error)) from error


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
