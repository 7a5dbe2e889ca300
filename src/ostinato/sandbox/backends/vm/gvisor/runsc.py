"""One gVisor sandbox as a child process, in user, mount, pid and network namespaces of its own.

    setpriv, unshare ──► sh ──► runsc create, an empty sandbox ─waits─► runsc start | restore ──► the guest
    nsenter ──► runsc checkpoint

The shell reads its task as the first line of the guest's own input. An empty sandbox takes most of the time
that gVisor needs to start, so one may be made ahead. Killing the first process ends the pid namespace, and so
all that belongs to the sandbox; it is killed when this process ends. So runsc never has to delete anything,
which would take it a second.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from ostinato.sandbox.backends.vm.machine import killed_with_us
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.linux import process_tree
from ostinato.sandbox.protocol.connection import AgentConnection

_FENCE = ("unshare", "-Urmpnf", "--mount-proc", "--kill-child=KILL", "--")
_ENTER = ("nsenter", "--user", "--mount", "--pid", "--net", "--preserve-credentials", "--target")
_FLAGS = (
    *("--network=none", "--ignore-cgroups", "--platform=systrap", "--overlay2=none"),
    "--file-access-mounts=exclusive",  # no other process changes what is mounted, so it may be cached
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
"""`read` takes no more than its line from the pipe; afterwards only the guest has the pipes' ends open."""
_SAVE_S = 60.0
_ERROR_CHARS = 500


class _PipeReader(asyncio.Protocol):
    """Passes the data of a pipe on to a connection."""

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)


class RunscMachine:
    """A `VirtualMachine` that is an empty sandbox until `begin`.

    `home` has its bundle, runsc's state and its messages; it is deleted at the end.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / "state").mkdir()
        self._root = f"--root={home}/state"
        self._pipes: list[asyncio.BaseTransport] = []
        with (home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*killed_with_us(), *_FENCE, "sh", "-c", _SCRIPT, "sh", self._root, *_FLAGS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "HOME": str(home)},
                start_new_session=True,
            )

    def begin(self, image: Path | None) -> None:
        """Load what `save` wrote, or start the guest of the bundle; called once, before `connect`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: waiting for its first frame raises an error
            os.write(self._process.stdin.fileno(), f"{image or ''}\n".encode())

    def alive(self) -> bool:
        return self._process.poll() is None

    async def connect(self, connection: AgentConnection) -> None:
        loop = asyncio.get_running_loop()
        writing, _ = await loop.connect_write_pipe(lambda: connection, self._process.stdin)
        reading, _ = await loop.connect_read_pipe(lambda: _PipeReader(connection), self._process.stdout)
        self._pipes = [writing, reading]

    async def pause(self) -> None:
        """Do nothing: the agent has stopped all other processes, and itself only waits."""

    async def resume(self) -> None:
        """Do nothing, as `pause` did."""

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
        """Return the process in whose namespaces the sandbox is: the child of `unshare`."""
        children = process_tree.children(self._process.pid)
        if not children:
            raise SandboxError(f"the sandbox is gone: {self.why()}")
        return children[0]

    async def usage(self) -> tuple[float, int]:
        return await asyncio.to_thread(process_tree.usage, self._process.pid)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        for pipe in self._pipes:
            pipe.close()
        if not self._pipes and self._process.stdin and self._process.stdout:  # `connect` was never called
            self._process.stdin.close()
            self._process.stdout.close()
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=not self._home.exists())

    def why(self) -> str:
        """Return the last messages of runsc."""
        return _end((self._home / "log").read_bytes()) or "runsc said nothing"


def _end(text: bytes) -> str:
    return text.decode(errors="replace").strip()[-_ERROR_CHARS:]
