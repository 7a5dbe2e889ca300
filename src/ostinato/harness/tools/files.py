"""The tools that read and change files. Some profiles require that a file is read before it is changed."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools import edit
from ostinato.harness.tools.apply_patch import ChangeKind, parse
from ostinato.harness.tools.patching import patch
from ostinato.harness.tools.paths import inside
from ostinato.sandbox.base import Sandbox

READ_LINES = 2_000
READ_CHARS = 50_000

Arguments = Mapping[str, Any]


class Files:
    """The files of one session, read and written by its tools."""

    def __init__(self, sandbox: Sandbox, *, read_before_edit: bool) -> None:
        self._sandbox = sandbox
        self._guarded = read_before_edit
        self._seen: dict[str, bytes] = {}
        """The digest of each file as the model last knew it."""

    async def read(self, arguments: Arguments) -> str:
        path = arguments["path"]
        data = await self._sandbox.read(path)
        text = edit.decode(data, path)
        if edit.is_crlf(text):
            text = text.replace("\r\n", "\n")
        first, limit = arguments.get("offset", 1), arguments.get("limit", READ_LINES)
        if first < 1 or limit < 1:
            raise InvalidArguments("offset and limit start at 1")
        window = _window(text, first - 1, min(limit, READ_LINES))
        self._note(path, data)
        return window

    async def write(self, arguments: Arguments) -> str:
        path, data = arguments["path"], arguments["content"].encode()
        if self._guarded:
            await self._check_known(path)
        await self._put(path, data)
        return "ok"

    async def edit(self, arguments: Arguments) -> str:
        path = arguments["path"]
        data = await self._sandbox.read(path)
        self._check_read(path, data)
        old, new = arguments["old_string"], arguments["new_string"]
        replace_all = arguments.get("replace_all", False)
        changed = edit.replace(edit.decode(data, path), old, new, replace_all=replace_all)
        await self._put(path, changed.encode())
        return "ok"

    async def apply_patch(self, arguments: Arguments) -> str:
        if self._guarded:
            for change in parse(arguments["patch"]):
                if change.kind is not ChangeKind.ADD:
                    await self._check_known(change.path)
        for path in await patch(self._sandbox, arguments["patch"]):
            self._seen.pop(self._name(path), None)
        return "ok"

    async def _put(self, path: str, data: bytes) -> None:
        await self._sandbox.write(path, data)
        self._note(path, data)

    async def _check_known(self, path: str) -> None:
        """Raise unless the model has read the file; a new file need not be read."""
        try:
            self._check_read(path, await self._sandbox.read(path))
        except FileNotFoundError:
            return

    def _check_read(self, path: str, data: bytes) -> None:
        if not self._guarded:
            return
        seen = self._seen.get(self._name(path))
        if seen is None:
            raise UnexpectedEnvironment(f"read {path} before you change it")
        if seen != _digest(data):
            raise UnexpectedEnvironment(f"{path} changed since you read it: read it again")

    def _note(self, path: str, data: bytes) -> None:
        if self._guarded:
            self._seen[self._name(path)] = _digest(data)

    def _name(self, path: str) -> str:
        return inside(path, self._sandbox.root)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _window(text: str, skip: int, limit: int) -> str:
    """Return lines `skip` to `skip + limit` within READ_CHARS, with the place to go on when more follow."""
    lines = text.removesuffix("\n").split("\n") if text else []
    if skip and skip >= len(lines):
        raise UnexpectedEnvironment(f"the file has {len(lines)} lines")
    shown: list[str] = []
    size = 0
    for line in lines[skip : skip + limit]:
        size += len(line) + 1
        if size > READ_CHARS and shown:
            break
        shown.append(line[:READ_CHARS])
    end = skip + len(shown)
    more = f"\n[{len(lines) - end} more lines, continue with offset {end + 1}]" if end < len(lines) else ""
    return "\n".join(shown) + more or "(empty)"
