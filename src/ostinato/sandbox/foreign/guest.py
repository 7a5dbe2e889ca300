"""The program that serves a foreign sandbox from within: one process a call.

    python3 -I -S program.zip HOME REQUEST     # base64 of JSON, or `@` and the name of a file
    ─► the last line of its output: base64 of JSON, or `@` and the name of a file

    HOME/repo      the repository
    HOME/start     its state at the start, by which changes are found
    HOME/command-* the process group of a running command

The code in the sandbox can change all of this, and so what `changes` returns: but the changes are its own
statement anyway, and they are all that is judged.
"""

import asyncio
import base64
import io
import json
import os
import secrets
import signal
import sys
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.sandbox.backends.environment import COMMAND_ENVIRONMENT
from ostinato.sandbox.backends.process.command import LocalProcess, capped
from ostinato.sandbox.base import (
    ChangesError,
    EndedWithinError,
    Limits,
    SandboxError,
    SandboxPathError,
)
from ostinato.sandbox.files import layer_restore, tree
from ostinato.sandbox.files.workspace import REPO_AREA, DirectoryWorkspace
from ostinato.sandbox.linux import stray_processes
from ostinato.sandbox.protocol.entries import packed

SMALL = 60_000
"""Characters that fit into one argument of a command, and into its output; more travels as a file."""
ERRORS: Mapping[str, type[Exception]] = {
    each.__name__: each
    for each in (
        *(FileNotFoundError, IsADirectoryError, NotADirectoryError),
        *(SandboxPathError, ChangesError, EndedWithinError, SandboxError),
    )
}
"""The errors that a call may end with; any other is a defect of this program, and ends it."""
Message = Mapping[str, Any]


class Guest:
    """The calls, by name; each returns what JSON can hold."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._root = str(home / "repo")

    def open(self, message: Message) -> dict[str, str]:
        """Unpack the repository from an archive, and a layer above it if there is one."""
        with tarfile.open(self._home / message["archive"]) as archive:
            archive.extraction_filter = lambda member, _: member  # a repository's links may point anywhere
            archive.extractall(self._home)  # noqa: S202 - our own end packed it, from a tree
        workspace = DirectoryWorkspace(self._root)
        (self._home / "start").write_text(json.dumps(workspace.base))
        if "layer" in message:
            fd = os.open(self._home / message["layer"], os.O_RDONLY | os.O_CLOEXEC)
            try:
                layer_restore.unpack(fd, {REPO_AREA: self._root}, overlay=False)
            finally:
                os.close(fd)
        return {"root": self._root}

    def exec(self, message: Message) -> dict[str, Any]:
        return asyncio.run(self._exec(message))

    async def _exec(self, message: Message) -> dict[str, Any]:
        limits = Limits(**message["limits"])
        own = {"HOME": str(self._home), "PWD": self._root, **message["environment"]}
        process = await LocalProcess.start(
            capped(message["command"], limits),
            directory=self._root,
            environment={**os.environ, **COMMAND_ENVIRONMENT, **own},
            wall_s=message["wall_s"],
            stdin=False,
            keep=limits.output_bytes,
            on_end=lambda _: None,
            mark=stray_processes.new_mark(),
        )
        noted = self._command(message)
        noted.write_text(str(process.pid))
        try:
            return asdict(await process.wait())
        finally:
            noted.unlink(missing_ok=True)

    def signal(self, message: Message) -> None:
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.killpg(int(self._command(message).read_text()), signal.Signals(message["number"]))

    def _command(self, message: Message) -> Path:
        return self._home / f"command-{message['id']}"

    def read(self, message: Message) -> str | None:
        return packed(tree.read(self._tree(), message["path"]))

    def write(self, message: Message) -> None:
        data = base64.b64decode(message["data"])
        tree.write(self._tree(), message["path"], data)

    def files(self, _: Message) -> list[str]:
        return tree.files(self._tree())

    def digest(self, _: Message) -> str:
        return tree.digest(self._tree())

    def names(self, message: Message) -> list[str]:
        return tree.names(self._tree(), message["path"])

    def changes(self, message: Message) -> dict[str, str | None]:
        changes = self._workspace().changes(message["most"])
        return {path: packed(data) for path, data in changes.items()}

    def pack(self, _: Message) -> str:
        """Return all that was written, as a layer."""
        whole = io.BytesIO()
        whole.writelines(self._workspace().pack())
        return base64.b64encode(whole.getvalue()).decode()

    def _tree(self) -> str:
        tree.open_up(self._root)
        return self._root

    def _workspace(self) -> DirectoryWorkspace:
        base = json.loads((self._home / "start").read_text())
        return DirectoryWorkspace(self._tree(), base={path: tuple(stamp) for path, stamp in base.items()})


def respond(home: Path, request: str) -> str:
    """Handle one call and return the line to print."""
    if request.startswith("@"):
        sent = home / request[1:]
        request = sent.read_text()
        sent.unlink()
    asked = json.loads(base64.b64decode(request))
    call: Callable[[Message], Any] = getattr(Guest(home), asked["call"])
    try:
        response = {"value": call(asked)}
    except tuple(ERRORS.values()) as error:
        message = str(error)
        if isinstance(error, OSError) and error.strerror:
            message = f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
        response = {"error": {"kind": type(error).__name__, "message": message}}
    line = base64.b64encode(json.dumps(response).encode()).decode()
    if len(line) <= SMALL:
        return line
    name = f"out-{secrets.token_hex(8)}"
    (home / name).write_text(line)
    return f"@{name}"


if __name__ == "__main__":
    print(respond(Path(sys.argv[1]).absolute(), sys.argv[2]))  # noqa: T201
