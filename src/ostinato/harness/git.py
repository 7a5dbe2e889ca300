"""Git in a person's repository: the top of its working tree, its commands, and its guard against hooks."""

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ostinato.git import environment as safe_environment
from ostinato.harness.permissions.shell import Opaque, split

LOOKING = {"status", "diff", "log"}
"""The subcommands that people let an agent run without being asked."""
NAMED_PROGRAMS = re.compile(
    r"(core\.(sshcommand|gitproxy)|diff\.external|diff\..*\.(command|textconv)"
    r"|filter\..*\.(clean|smudge|process)|remote\..*\.uploadpack)",
    re.DOTALL,
)
"""The settings of a repository by which git runs a program while it only looks, and which no other setting
undoes.
"""
_NESTED = {"safe.bareRepository": "explicit", "core.fsmonitor": "false"}
_QUIET = {**_NESTED, "core.hooksPath": os.devnull, "log.showSignature": "false"}


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
    """Return the shell command with settings under which git, when it only looks, runs nothing that the
    repository names.

    A bare repository among the files is not used, no file system monitor and no hook is run, no signature is
    checked. Where another git command stands beside it, hooks run, since people want the hooks of a commit. A
    command without `git status`, `git diff` or `git log`, or one that cannot be read, stays as it is.
    """
    try:
        parts = split(command)
    except Opaque:
        return command
    programs = [[word.value for word in part.program[:2]] for part in parts]
    asked = {words[1] if len(words) > 1 else None for words in programs if words and words[0] == "git"}
    if asked.isdisjoint(LOOKING):
        return command
    settings = _QUIET if asked <= LOOKING else _NESTED
    words = [f"GIT_CONFIG_COUNT={len(settings)}"]
    for number, (key, value) in enumerate(settings.items()):
        words += [f"GIT_CONFIG_KEY_{number}={key}", f"GIT_CONFIG_VALUE_{number}={value}"]
    return f"export {shlex.join(words)}; {command}"


async def named_programs(root: Path) -> list[str]:
    """Return the settings of the repository, not of the person, by which git runs programs while it looks."""
    listed = await git(root, "config", "--null", "--show-scope", "--list")
    fields = listed.decode(errors="replace").split("\0")[:-1]
    entries = zip(fields[0::2], fields[1::2], strict=True)
    keys = {entry.partition("\n")[0] for scope, entry in entries if scope in {"local", "worktree"}}
    return sorted(key for key in keys if NAMED_PROGRAMS.fullmatch(key))
