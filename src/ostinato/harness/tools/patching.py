"""A patch in a sandbox: computed first, then written, and taken back when it cannot be finished."""

import asyncio
import posixpath
import secrets
import shlex
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment, file_error
from ostinato.harness.tools.apply_patch import Change, ChangeKind, apply, parse
from ostinato.harness.tools.contents import decode
from ostinato.harness.tools.paths import inside
from ostinato.sandbox.base import Sandbox, SandboxPathError

Files = dict[str, bytes | None]
"""The content of each path; None when there is no such file."""


async def patch(sandbox: Sandbox, text: str) -> list[str]:
    """Apply a patch and return the paths it touched, sorted.

    Raises InvalidArguments, UnexpectedEnvironment, and the sandbox's errors for a path that cannot be read or
    written; in each case no file has changed.
    """
    staged = _Staged(sandbox)
    for change in parse(text):
        await staged.take(change)
    await _carry_out(sandbox, staged)
    return sorted(staged.touched)


class _Staged:
    """The files of a patch before and after it; later changes see earlier ones."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.before: Files = {}
        self.after: Files = {}
        self.moved: dict[str, str] = {}
        """The first path by the last one of each file that moves, whose mode moves along."""

    @property
    def touched(self) -> list[str]:
        return [path for path in self.after if self.after[path] != self.before[path]]

    async def take(self, change: Change) -> None:
        path = self._name(change.path)
        if change.kind is ChangeKind.ADD:
            await self._must_be_free(path)
            self.after[path] = change.text.encode()
            return
        data = await self._content(path)
        if data is None:
            raise UnexpectedEnvironment(f"no such file {path}")
        if change.kind is ChangeKind.DELETE:
            self.after[path] = None
            return
        await self._update(path, data, change)

    async def _update(self, path: str, data: bytes, change: Change) -> None:
        changed = data
        if change.hunks:
            found = decode(data, path)
            changed = found.encoded(apply(found.text, change.hunks, path))
        if change.move_to is None:
            self.after[path] = changed
            return
        target = self._name(change.move_to)
        await self._must_be_free(target)
        if (await self._sandbox.exec(f"test ! -L {_quoted(path)}")).exit_code:
            raise UnexpectedEnvironment(f"{path} is a link: move the file it names, or use mv")
        self.moved[target] = self.moved.pop(path, path)
        self.after[path], self.after[target] = None, changed

    async def _must_be_free(self, path: str) -> None:
        if await self._content(path) is not None:
            raise UnexpectedEnvironment(f"{path} exists already: use *** Update File")

    async def _content(self, path: str) -> bytes | None:
        if path not in self.after:
            try:
                self.before[path] = await self._sandbox.read(path)
            except FileNotFoundError:
                self.before[path] = None
            except ConnectionError:
                raise
            except (OSError, SandboxPathError) as error:
                raise file_error(path, error) from error
            self.after[path] = self.before[path]
        return self.after[path]

    def _name(self, path: str) -> str:
        """Return one name for each file, however the patch spells it."""
        name = inside(path, self._sandbox.root)
        if "\0" in name or name in (".", ""):
            raise InvalidArguments(f"{path!r} is no path of a file")
        return name


Step = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]
"""Something to do, and the way to take it back."""


async def _carry_out(sandbox: Sandbox, staged: _Staged) -> None:
    """Write the new state of the files, or restore the old one. A file that moves or goes is renamed, so that
    it is the same file, with its mode, when it comes back.
    """
    steps, removed = _steps(sandbox, staged)
    undoing: list[Callable[[], Awaitable[None]]] = []
    try:
        for do, undo in steps:
            undoing.append(undo)
            await do()
    except BaseException:  # also when the turn is cancelled half-way
        await asyncio.shield(_all(reversed(undoing)))
        raise
    if removed:
        await asyncio.shield(_run(sandbox, f"rm -f -- {' '.join(map(_quoted, removed))}"))


def _steps(sandbox: Sandbox, staged: _Staged) -> tuple[list[Step], list[str]]:
    """Return the steps in order, and the files that are left to remove behind the last one."""
    before, after = staged.before, staged.after
    leaving = {path: _aside(path) for path in after if before[path] is not None and after[path] is None}
    leaving |= {old: _aside(old) for old in staged.moved.values() if old not in leaving}
    steps = [_rename(sandbox, path, aside) for path, aside in leaving.items()]
    steps += [_rename(sandbox, leaving.pop(old), new) for new, old in staged.moved.items()]
    origins = {new: before[old] for new, old in staged.moved.items()}
    for path, data in after.items():
        there = origins.get(path, before[path] if path not in staged.moved.values() else None)
        if data is not None and data != there:
            back = partial(_run, sandbox, f"rm -f -- {_quoted(path)}")
            undo = back if there is None else partial(sandbox.write, path, there)
            steps.append((partial(sandbox.write, path, data), undo))
    return steps, list(leaving.values())


def _rename(sandbox: Sandbox, old: str, new: str) -> Step:
    moved = partial(_move, sandbox, old, new)
    return moved, partial(_move, sandbox, new, old)


async def _move(sandbox: Sandbox, old: str, new: str) -> None:
    """Rename a file; one that is not there, since its step was not reached, stays away."""
    folder = _quoted(posixpath.dirname(new) or ".")
    names = f"{_quoted(old)} {_quoted(new)}"
    absent = f"{{ test ! -e {_quoted(old)} && test ! -L {_quoted(old)}; }}"
    await _run(sandbox, f"{absent} || {{ mkdir -p -- {folder} && mv -f -- {names}; }}")


def _aside(path: str) -> str:
    return posixpath.join(posixpath.dirname(path), f".patch-{secrets.token_hex(6)}")


def _quoted(path: str) -> str:
    return shlex.quote(path if path.startswith("/") else f"./{path}")


async def _all(undoing: Iterable[Callable[[], Awaitable[None]]]) -> None:
    for undo in undoing:
        await undo()


async def _run(sandbox: Sandbox, command: str) -> None:
    result = await sandbox.exec(command)
    if result.exit_code:
        raise OSError(result.exit_code, result.output.strip() or "the file could not be changed")
