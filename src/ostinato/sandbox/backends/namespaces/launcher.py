"""Starts and stops the zygote process."""

import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from ostinato import extras
from ostinato.sandbox.backends.agent_sandbox import GRACE_S
from ostinato.sandbox.backends.environment import command_environment
from ostinato.sandbox.base import EndedWithinError, MachineRefusesError, SandboxError
from ostinato.sandbox.linux import cgroup
from ostinato.sandbox.protocol.connection import AgentConnection, ConnectionLostError
from ostinato.sandbox.protocol.order import MAX_REQUEST, Order

START_S = 60.0
"""The seconds that loading pytest may take on a busy machine."""
STOP_S = 5.0
AT_ONCE = 4 * (os.cpu_count() or 1)
"""The sandboxes that are begun at once: twice as many as the zygote has children waiting."""
_START = (
    "from ostinato.sandbox.linux import cheap_fork; cheap_fork.defer_fork_hooks(); "
    "import ostinato.sandbox.backends.namespaces.zygote as zygote; zygote.main()"
)


class ZygoteProcess:
    """A running zygote, with the sockets for its orders and exams."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        orders: socket.socket,
        exams: socket.socket,
        groups: cgroup.CgroupDirectory | None,
    ) -> None:
        self._groups = groups
        self._process = process
        self._orders = orders
        self._exams = exams
        self._order_lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @classmethod
    async def start(cls, confinement: str) -> "ZygoteProcess":
        """Start a zygote with the confinement `ns` or `landlock`, and wait until it is ready.

        Raises MachineRefusesError with the reason where this machine refuses it, SandboxError when it cannot
        run for another reason, such as a package that is missing.
        """
        if find_spec("pytest") is None:
            raise SandboxError(extras.sentence("pytest", "a sandbox"))
        orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        exams, also_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        groups = cgroup.create_directory()
        with theirs, also_theirs:
            process = _spawn(confinement, (theirs.fileno(), also_theirs.fileno()), groups)
        zygote = cls(process, orders, exams, groups)
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
        ended = {
            "error": "the zygote ended at its start, and standard error has the reason",
            "refused": False,
        }
        packet = json.loads(data) if data else ended
        if "error" in packet:
            kind = MachineRefusesError if packet["refused"] else SandboxError
            raise kind(
                f"sandboxes cannot be started here: {packet['error']}; mend that, or name a weaker backend"
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    async def ends(self) -> bool:
        """Return True when the zygote ends within half a second; called after a sign of that."""
        for _ in range(50):
            if not self.alive():
                return True
            await asyncio.sleep(0.01)
        return False

    async def blame(self, error: SandboxError) -> SandboxError:
        """Return the error to raise for a lost agent: the same one if the zygote ends, too.

        Otherwise return an EndedWithinError, since then only code in the sandbox can have ended the agent. No
        command is known that can; if one is found, it does not avoid a bad verdict this way.
        """
        return error if await self.ends() else EndedWithinError(f"ended by what ran in it: {error}")

    async def order(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Send an order with its descriptors; raises ConnectionLostError when the zygote is gone."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock belongs to one event loop, the zygote may outlive it
            self._order_lock, self._loop = asyncio.Lock(), loop
        async with self._order_lock:  # when the socket is full only the first of many orders polls it
            await _send(self._orders, request, files)

    async def begin(self, order: Order, files: Mapping[str, int]) -> AgentConnection:
        """Return the connection to the agent of a new sandbox; `files` are the other descriptors it needs.

        Raises ConnectionLostError when the zygote is gone, and SandboxError.
        """
        async with self.place():
            ours, theirs = socket.socketpair()
            with theirs:
                named = {"control": theirs.fileno(), **files}
                request = {"files": list(named), "order": dataclasses.asdict(order)}
                try:
                    await self.order(request, list(named.values()))
                except BaseException:
                    ours.close()
                    raise
            return await _connected(ours)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for one of AT_ONCE places, and hold it while a sandbox is begun.

        In a burst the time that a sandbox has to get ready would otherwise pass while others are begun.
        """
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:  # a semaphore belongs to one event loop
            self._places = loop, asyncio.Semaphore(AT_ONCE)
        async with self._places[1]:
            yield

    async def examine(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Send an exam with its descriptors; raises ConnectionLostError when the zygote is gone."""
        await _send(self._exams, request, files)

    async def stop(self) -> None:
        """Hang up, and wait until the zygote and all its children have ended; kill it after five seconds."""
        self._orders.close()
        self._exams.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        groups, self._groups = self._groups, None
        if groups is not None:
            await asyncio.to_thread(groups.close)


async def _connected(ours: socket.socket) -> AgentConnection:
    """Return the connection to an agent, once it is ready."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(AgentConnection, sock=ours)
    try:
        await connection.wait_until_ready(GRACE_S)
    except BaseException:
        await connection.close("the sandbox was not created")
        raise
    return connection


async def _send(sock: socket.socket, request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Send a packet, waiting while the socket is full."""
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


def _spawn(
    confinement: str, sockets: Sequence[int], groups: cgroup.CgroupDirectory | None
) -> subprocess.Popen[bytes]:
    # standard error stays the runner's, where a zygote that fails prints the reason
    named = () if groups is None else (groups.version, groups.directory)
    return subprocess.Popen(
        [sys.executable, "-c", _START, confinement, *map(str, (*sockets, *named))],
        pass_fds=(*sockets, *named[1:]),
        cwd="/",
        env=command_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
