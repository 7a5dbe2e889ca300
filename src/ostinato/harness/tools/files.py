"""The tools that read and change files. Some profiles require that a file is read before it is changed."""

import codecs
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ostinato.harness.errors import InvalidArguments, UnexpectedEnvironment
from ostinato.harness.tools import contents, edit
from ostinato.harness.tools.apply_patch import ChangeKind, parse
from ostinato.harness.tools.contents import FileText
from ostinato.harness.tools.names import meant, shown
from ostinato.harness.tools.patching import patch
from ostinato.harness.tools.paths import inside
from ostinato.sandbox.base import Sandbox

READ_LINES = 2_000
READ_CHARS = 50_000
PIECE_BYTES = 20_000
"""The bytes of a long line that one command shows, which is what a command's output may have."""

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
        found = contents.decode(data, path)
        first, limit = arguments.get("offset", 1), arguments.get("limit", READ_LINES)
        if first < 1 or limit < 1:
            raise InvalidArguments("offset and limit start at 1")
        window = _window(found, first - 1, min(limit, READ_LINES))
        self._note(path, data)
        return window

    async def write(self, arguments: Arguments) -> str:
        path, content = arguments["path"], arguments["content"]
        try:
            before: bytes | None = await self._sandbox.read(path)
        except FileNotFoundError:  # a new file need not be read
            before = None
        if before is not None:
            self._check_read(path, before)
        data = contents.rewritten(before, content, path)
        await self._put(path, data, before)
        return "ok" + _end_kept(content, data, path)

    async def edit(self, arguments: Arguments) -> str:
        path = arguments["path"]
        data = await self._sandbox.read(path)
        self._check_read(path, data)
        old, new = arguments["old_string"], arguments["new_string"]
        replace_all = arguments.get("replace_all", False)
        found = contents.decode(data, path)
        if found.mark:
            old, new = old.removeprefix(contents.MARK), new.removeprefix(contents.MARK)
        changed = edit.replace(found.text, old, new, replace_all=replace_all)
        await self._put(path, found.encoded(changed), data)
        return "ok"

    async def apply_patch(self, arguments: Arguments) -> str:
        if self._guarded:
            for change in parse(arguments["patch"]):
                if change.kind is not ChangeKind.ADD:
                    await self._check_known(change.path)
        for path in await patch(self._sandbox, arguments["patch"]):
            self._seen.pop(self._name(path), None)
        return "ok"

    async def _put(self, path: str, data: bytes, before: bytes | None) -> None:
        try:
            await self._sandbox.write(path, data)
        except OSError:
            if before is not None:  # a full disk may have cut the file
                with suppress(OSError):
                    await self._sandbox.write(path, before)
            raise
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


def _end_kept(content: str, data: bytes, path: str) -> str:
    """Return the words that tell a model of an end of its text that was not taken over."""
    ends = contents.decode(data, path).text.endswith("\n")
    if ends == content.endswith("\n"):
        return ""
    return f", the last line {'has a newline' if ends else 'has no newline'} as before"


def _window(found: FileText, skip: int, limit: int) -> str:
    """Return lines `skip` to `skip + limit` within READ_CHARS, with the place to go on when more follow."""
    text = found.shown
    lines = text.removesuffix("\n").split("\n") if text else []
    if skip and skip >= len(lines):
        raise UnexpectedEnvironment(f"the file has {len(lines)} lines")
    shown: Sequence[str] = lines[skip : skip + limit]
    size = 0
    for number, line in enumerate(shown):
        size += len(line) + 1
        if size > READ_CHARS:
            shown = shown[: number or 1]
            break
    end = skip + len(shown)
    notes = []
    if len(shown) == 1 and len(shown[0]) > READ_CHARS:
        notes.append(f"[cut: {_rest(found, shown[0], end)}]")
        shown = [shown[0][:READ_CHARS]]
    if end < len(lines):
        notes.append(f"[{len(lines) - end} more lines, continue with offset {end + 1}]")
    return "\n".join([*shown, *notes]) or "(empty)"


def _word(path: str) -> str:
    """Return the name of a file, as the model was shown it, as one word of a command that is no option."""
    name = meant(path)
    name = f"./{name}" if name.startswith("-") else name
    if shown(name) == name:
        return shlex.quote(name)
    odd = b"\\%'"
    octal = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in odd else f"\\{byte:03o}" for byte in os.fsencode(name)
    )
    return f"\"$(printf '{octal}')\""


def _rest(found: FileText, line: str, number: int) -> str:
    """Return how many characters of a line are left, and the command that shows the first of them."""
    name = _word(found.path)
    mark = found.mark if number == 1 else b""
    text = f"sed -n {number}p {name}"
    if found.encoding != "utf-8":
        wide = found.encoding.startswith(("utf-16", "utf-32"))  # whose mark says which
        encoding = found.encoding[:6] if wide else codecs.lookup(found.encoding).name
        mark, text = b"", f"iconv -f {encoding} -t utf-8 {name} | sed -n {number}p"
    start = len(mark + line[:READ_CHARS].encode()) + 1
    left = len(line) - READ_CHARS
    return f"{left} more characters of line {number}, {text} | tail -c +{start} | head -c {PIECE_BYTES}"
