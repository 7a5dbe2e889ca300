"""Our end of `guest.py`: it sends the program, calls it, and reads its responses."""

import asyncio
import base64
import functools
import io
import json
import secrets
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import ostinato
from ostinato.sandbox.base import EndedWithinError, SandboxError
from ostinato.sandbox.foreign.engine import ForeignMachine
from ostinato.sandbox.foreign.guest import ERRORS, SMALL

FOLDER = "ostinato-sandbox"
"""The name of our folder in the engine's own."""
CALL_S = 120.0
GRACE_S = 30.0
"""Seconds that a call may take beyond the time limit of its command."""
_PROGRAM = f"{FOLDER}/program.zip"
_SENT = (
    *("__init__.py", "sandbox/__init__.py", "sandbox/base.py"),
    *("sandbox/foreign", "sandbox/protocol", "sandbox/linux", "sandbox/files"),
    *("sandbox/backends/__init__.py", "sandbox/backends/environment.py", "sandbox/backends/process"),
)
"""The parts of the package that the program imports from."""
_NEEDED = "its template needs Python 3.11 or later as `python3`, and room for files"


class GuestClient:
    """The program in one machine. Calls may run at the same time."""

    def __init__(self, machine: ForeignMachine) -> None:
        self.machine = machine

    async def open(self, repo: Path, layer: bytes | None) -> str:
        """Send program and repository, and the layer above it; return the path of the repository there.

        Raises SandboxError: what fails before any command of a session ran is not the fault of one.
        """
        packed = await asyncio.to_thread(_packed, repo)
        await self.machine.run(f"mkdir -p {FOLDER}", CALL_S)
        await self.machine.upload(_PROGRAM, _program())
        await self.machine.upload(f"{FOLDER}/repo.tar.gz", packed)
        message = {"archive": "repo.tar.gz"}
        if layer is not None:
            await self.machine.upload(f"{FOLDER}/layer", layer)
            message["layer"] = "layer"
        try:
            opened = await self.call("open", message)
        except EndedWithinError as error:
            raise SandboxError(f"sandbox {self.machine.id} did not open: {_NEEDED} ({error})") from error
        return str(opened["root"])

    async def call(self, name: str, message: dict[str, Any], within_s: float = CALL_S) -> Any:
        """Make a call and return its value. Raises the guest's error, SandboxError when the engine failed,
        and EndedWithinError when only the program did: a command in the sandbox broke it.
        """
        request = base64.b64encode(json.dumps({"call": name, **message}).encode())
        argument = request.decode()
        if len(request) > SMALL:
            argument = f"@in-{secrets.token_hex(8)}"
            await self.machine.upload(f"{FOLDER}/{argument[1:]}", request)
        command = f"python3 -I -S {_PROGRAM} {FOLDER} {argument}"  # without the template's own packages
        output = await self.machine.run(command, within_s)
        return _value(await self._whole(output), output)

    async def _whole(self, output: str) -> str:
        """Return the response, which is the last line of the output, or in the file that this line names."""
        line = output.rstrip().rpartition("\n")[2]
        if not line.startswith("@out-"):
            return line
        path = f"{FOLDER}/{line[1:]}"
        try:
            data = await self.machine.download(path)
        except FileNotFoundError:
            return ""
        await self.machine.run(f"rm -f {path}", CALL_S)
        return data.decode(errors="backslashreplace")


def _value(line: str, output: str) -> Any:
    try:
        response = json.loads(base64.b64decode(line, validate=True))
        value, error = response.get("value"), response.get("error")
        raised = error and ERRORS.get(error["kind"], SandboxError)(str(error["message"]))
    except (ValueError, AttributeError, LookupError, TypeError) as wrong:
        said = output.strip()[-300:] or "nothing"
        raise EndedWithinError(f"the program that serves the sandbox said {said!r}") from wrong
    if raised:
        raise raised
    return value


def _packed(repo: Path) -> bytes:
    """Return the files, links and directories of a repository as an archive, without times and owners."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            return None
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        archive.add(repo, "repo", filter=plain)
    return buffer.getvalue()


@functools.cache
def _program() -> bytes:
    """Return the sources of the program as an archive that Python runs."""
    top, buffer = Path(ostinato.__file__).parent, io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("__main__.py", _MAIN)
        for part in _SENT:
            files = [top / part] if part.endswith(".py") else sorted((top / part).rglob("*.py"))
            for file in files:
                packed.write(file, f"ostinato/{file.relative_to(top)}")
    return buffer.getvalue()


_MAIN = "import runpy\nrunpy.run_module('ostinato.sandbox.foreign.guest', run_name='__main__')\n"
