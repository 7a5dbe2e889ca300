"""A patch in a sandbox: computed first, then written, and taken back when it cannot be finished."""

import asyncio
import shlex
from collections.abc import Sequence

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment, file_error
from ostinato.harness.tools import edit
from ostinato.harness.tools.apply_patch import Change, ChangeKind, apply, parse
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
    await _carry_out(sandbox, staged.before, staged.after, staged.modes)
    return sorted(staged.touched)


class _Staged:
    """The files of a patch before and after it; later changes see earlier ones."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.before: Files = {}
        self.after: Files = {}
        self.modes: dict[str, str] = {}
        """The old path by the new one of each move, since the executable bit moves along."""

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
        changed = apply(edit.decode(data, path), change.hunks, path).encode() if change.hunks else data
        if change.move_to is None:
            self.after[path] = changed
            return
        target = self._name(change.move_to)
        await self._must_be_free(target)
        self.modes[target] = path
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


async def _carry_out(sandbox: Sandbox, before: Files, after: Files, modes: dict[str, str]) -> None:
    """Write the new state of the files, or restore the old one."""
    changed = [path for path in after if after[path] != before[path]]
    # Files are removed last, so that nothing is lost before.
    changed.sort(key=lambda path: after[path] is None)
    done: list[str] = []
    try:
        for path in changed:
            done.append(path)
            await _put(sandbox, path, after[path], modes.get(path))
    except BaseException:  # also when the turn is cancelled half-way
        await asyncio.shield(_take_back(sandbox, done, before))
        raise


async def _take_back(sandbox: Sandbox, paths: Sequence[str], before: Files) -> None:
    for path in reversed(paths):
        await _put(sandbox, path, before[path], None)


async def _put(sandbox: Sandbox, path: str, data: bytes | None, like: str | None) -> None:
    if data is None:
        await _run(sandbox, f"rm -f -- {shlex.quote(path)}")
        return
    await sandbox.write(path, data)
    if like is not None:
        await _run(sandbox, f"test ! -x {shlex.quote('./' + like)} || chmod +x -- {shlex.quote(path)}")


async def _run(sandbox: Sandbox, command: str) -> None:
    result = await sandbox.exec(command)
    if result.exit_code:
        raise OSError(result.exit_code, result.output.strip() or "the file could not be changed")
