"""Starts and stops the zygote process."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.sandbox.backends.process.backend import COMMAND_ENVIRONMENT
from ostinato.sandbox.base import EndedWithinError, SandboxError
from ostinato.sandbox.linux import cgroup
from ostinato.sandbox.protocol.connection import ConnectionLostError
from ostinato.sandbox.protocol.order import MAX_REQUEST

START_S = 60.0
"""How long loading pytest may take, on a busy machine."""
STOP_S = 5.0
_START = (
    "from ostinato.sandbox.linux import cheap_fork; cheap_fork.defer_fork_hooks(); "
    "from ostinato.sandbox.backends.namespaces import zygote; zygote.main()"
)


class ZygoteProcess:
    """A running zygote and the sockets its orders and exams go to."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        orders: socket.socket,
        exams: socket.socket,
        room: cgroup.CgroupDirectory | None,
    ) -> None:
        self._room = room
        self._process = process
        self._orders = orders
        self._exams = exams
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    async def start(cls, ground: str) -> "ZygoteProcess":
        """Start one on a ground of `ns` or `landlock` and wait until it is ready.

        Raises SandboxError with the reason when it cannot run.
        """
        orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        exams, also_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = cgroup.create_directory()
        groups = (room.version, room.directory) if room is not None else ()
        with theirs, also_theirs:
            process = _spawn(ground, (theirs.fileno(), also_theirs.fileno()), groups)
        zygote = cls(process, orders, exams, room)
        try:
            await zygote._wait_until_ready()
        except BaseException:
            await zygote.stop()
            raise
        return zygote

    async def _wait_until_ready(self) -> None:
        self._orders.setblocking(False)
        self._exams.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            data = await asyncio.wait_for(loop.sock_recv(self._exams, 65536), START_S)
        except TimeoutError:
            raise SandboxError(
                f"the zygote was not ready after {START_S:.0f} s: is the machine overloaded?"
            ) from None
        answer = (
            json.loads(data) if data else {"error": "it ended at its start: try `python -m pytest --version`"}
        )
        if "error" in answer:
            raise SandboxError(
                f"sandboxes cannot be started here: {answer['error']}; use the process backend"
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    async def ends(self) -> bool:
        """Whether it is ending, after a sign of that."""
        for _ in range(50):
            if not self.alive():
                return True
            await asyncio.sleep(0.01)
        return False

    async def blame(self, error: SandboxError) -> SandboxError:
        """Whose fault it is that an agent forked from here is gone: the same error when this one ends too.

        Otherwise EndedWithinError: what ran in the sandbox did it. No command is known that can; should one
        be found, it is not a way out of a bad verdict.
        """
        return error if await self.ends() else EndedWithinError(f"ended by what ran in it: {error}")

    async def order(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Send an order with its descriptors; raises ConnectionLostError when the zygote is gone."""
        async with self._one_at_a_time():
            await _send(self._orders, request, files)

    def _one_at_a_time(self) -> asyncio.Lock:
        """More is ordered at once than is begun: the first waits for room, the others for it."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock is of one event loop, this process outlives some
            self._turn, self._loop = asyncio.Lock(), loop
        return self._turn

    async def examine(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Send an exam with its descriptors; raises ConnectionLostError when the zygote is gone."""
        await _send(self._exams, request, files)

    async def stop(self) -> None:
        """Hang up, wait until it and all its children ended, by force after a while."""
        self._orders.close()
        self._exams.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        room, self._room = self._room, None
        if room is not None:
            await asyncio.to_thread(room.close)


async def _send(sock: socket.socket, request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Waits while the socket is full."""
    data = json.dumps(request).encode()
    if len(data) > MAX_REQUEST:
        raise SandboxError(f"a request of {len(data)} bytes is too large: shorten its environment or mounts")
    while True:
        try:
            socket.send_fds(sock, [data], files)
            return
        except BlockingIOError:
            await asyncio.sleep(0.001)
        except OSError as error:
            raise ConnectionLostError(
                f"the zygote is gone ({error}): create again, another is started"
            ) from error


def _spawn(ground: str, sockets: Sequence[int], groups: Sequence[int]) -> subprocess.Popen[bytes]:
    # standard error stays the runner's: a zygote that fails says why there
    return subprocess.Popen(
        [sys.executable, "-c", _START, ground, *map(str, (*sockets, *groups))],
        pass_fds=(*sockets, *groups[1:]),
        cwd="/",
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def environment() -> dict[str, str]:
    """What commands will see: nothing of the runner's own environment but where its Python finds modules."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**COMMAND_ENVIRONMENT, **own, "PATH": path, "HOME": "/tmp"}  # noqa: S108
