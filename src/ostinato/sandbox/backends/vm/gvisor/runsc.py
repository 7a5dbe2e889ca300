"""One gVisor sandbox as a process of ours, in user, mount, pid and network namespaces of its own.

    setpriv, unshare ──► sh ──► runsc create, an empty sandbox ─waits─► runsc start | restore ──► the guest
    nsenter ──► runsc checkpoint

The shell reads what is to be done as the first line of the guest's own input. An empty sandbox holds the time
that gVisor itself needs to start, so one may be made ahead. Killing the first process ends the pid namespace,
and so all that belongs to the sandbox; it is killed when this process ends. runsc then never has to delete
anything, which would take it a second.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from ostinato.sandbox.backends.vm.machine import tied
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.linux import process_tree
from ostinato.sandbox.protocol.connection import AgentConnection

_FENCE = ("unshare", "-Urmpnf", "--mount-proc", "--kill-child=KILL", "--")
_ENTER = ("nsenter", "--user", "--mount", "--pid", "--net", "--preserve-credentials", "--target")
_FLAGS = (
    *("--network=none", "--ignore-cgroups", "--platform=systrap", "--overlay2=none"),
    "--file-access-mounts=exclusive",  # nobody else changes what is mounted: it need not look again
)
_ID = "sandbox"
_SCRIPT = f"""
runsc "$@" create --bundle="$HOME" {_ID} || exit
read -r place || exit
exec </dev/null >/dev/null
if [ "$place" ]
then runsc "$@" restore --detach --image-path="$place" --bundle="$HOME" {_ID}
else runsc "$@" start {_ID}
fi && exec sleep infinity
"""
"""`read` takes no more than its line from a pipe; the guest alone holds its ends of both afterwards."""
_SAVE_S = 60.0
_ERROR_CHARS = 500


class _Listening(asyncio.Protocol):
    """Gives what a pipe brings to a connection."""

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)


class RunscMachine:
    """See `VirtualMachine`; empty until `begin`.

    `home`: its bundle, runsc's state and what that says; deleted at the end.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "state").mkdir()
        self._root = f"--root={home}/state"
        self._pipes: list[asyncio.BaseTransport] = []
        with (home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*tied(), *_FENCE, "sh", "-c", _SCRIPT, "sh", self._root, *_FLAGS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "HOME": str(home)},
                start_new_session=True,
            )

    def begin(self, image: Path | None) -> None:
        """Load what `save` wrote, or start the guest that the bundle describes; once, before `connect`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone: whoever waits for its first word hears of it
            os.write(self._process.stdin.fileno(), f"{image or ''}\n".encode())

    def alive(self) -> bool:
        return self._process.poll() is None

    async def connect(self, connection: AgentConnection) -> None:
        loop = asyncio.get_running_loop()
        writing, _ = await loop.connect_write_pipe(lambda: connection, self._process.stdin)
        reading, _ = await loop.connect_read_pipe(lambda: _Listening(connection), self._process.stdout)
        self._pipes = [writing, reading]

    async def pause(self) -> None:
        """Nothing to do: the agent has stopped all others, and itself only waits."""

    async def resume(self) -> None:
        """Nothing to do."""

    async def save(self, place: Path) -> None:
        leader = str(await asyncio.to_thread(self._inside))
        checkpoint = ("checkpoint", "--leave-running", "--compression=none", f"--image-path={place}", _ID)
        process = await asyncio.create_subprocess_exec(
            *_ENTER, leader, "--", "runsc", self._root, *_FLAGS, *checkpoint,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            _, errors = await asyncio.wait_for(process.communicate(), _SAVE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise SandboxError(f"runsc did not write {place} within {_SAVE_S:.0f} s") from None
        if process.returncode:
            raise SandboxError(f"runsc could not write {place}: {_end(errors)}; is the disk full?")

    def _inside(self) -> int:
        """The process in whose namespaces the sandbox is: the child of `unshare`."""
        found = process_tree.children(self._process.pid)
        if not found:
            raise SandboxError(f"the sandbox is gone: {self.why()}")
        return found[0]

    async def usage(self) -> tuple[float, int]:
        return await asyncio.to_thread(process_tree.usage, self._process.pid)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        for pipe in self._pipes:
            pipe.close()
        if not self._pipes and self._process.stdin and self._process.stdout:  # nobody ever connected
            self._process.stdin.close()
            self._process.stdout.close()
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=not self._home.exists())

    def why(self) -> str:
        """The last that runsc said."""
        return _end((self._home / "log").read_bytes()) or "runsc said nothing"


def _end(text: bytes) -> str:
    return text.decode(errors="replace").strip()[-_ERROR_CHARS:]
