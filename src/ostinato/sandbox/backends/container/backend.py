"""Sandboxes that are containers of the engine that a team has already.

    ContainerBackend ──podman run──► agent, process 1 of its container; /repo is a copy of the repository
                     ◄──frames, by standard input and output──►

A container has no network, no capability and a read-only root; what commands write is in memory and ends with
it. With the runtime `runsc` it has gVisor's kernel in place of the machine's.
"""

import asyncio
import dataclasses
import os
import socket
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO

from ostinato.sandbox.backends.agent_sandbox import AgentProcess, AgentSandbox, all_or_none
from ostinato.sandbox.backends.container import command_line
from ostinato.sandbox.backends.container.command_line import ContainerEngine
from ostinato.sandbox.base import (
    Capabilities,
    Exam,
    Isolation,
    Sandbox,
    SandboxError,
    Spec,
    Unsupported,
)
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.exam.judged.host import judged_by_process
from ostinato.sandbox.files import rootfs
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection

START_S, END_S = 120.0, 10.0
"""Seconds for a container's first frame on a busy machine, and for its end."""
_MIB = 1 << 20
_UNBOUNDED = "the memory of each process is bounded, not their sum: that needs root or cgroups of version 2"


class ContainerBackend:
    """Containers of `program`, which is `podman` or `docker`."""

    def __init__(self, program: str, config: SandboxConfig) -> None:
        """Prepare what all containers have in common. Raises SandboxError."""
        self.name = program
        self._home = Scratch(program)
        self._engine = ContainerEngine(program, config, self._home.path)
        self._sandboxes: set[ContainerSandbox] = set()
        try:
            self._engine.prepare()
        except BaseException:
            self._home.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        bounded = self._engine.bounded
        group = f"cgroup{2 if command_line.UNIFIED else 1}"
        return Capabilities(
            isolation=Isolation.USERSPACE_KERNEL if self._engine.own_kernel else Isolation.NAMESPACES,
            fork=True,
            limits=frozenset({"rlimit", "pids", group} if bounded else {"rlimit"}),
            lost=() if bounded else (_UNBOUNDED,),
        )

    async def create(self, spec: Spec) -> Sandbox:
        return await self.begin(spec)

    async def begin(self, spec: Spec, layer: int | None = None) -> "ContainerSandbox":
        """Create a sandbox, from the layer in an open file if it is given."""
        self._check(spec)
        identity = uuid.uuid4().hex
        with tempfile.TemporaryFile(dir=self._home.path) as repo:
            client = await asyncio.to_thread(self._start, identity, spec, repo)
            connection = AgentConnection()
            try:
                await client.connect(connection)
                await self._enter(connection, spec, [repo.fileno(), *([] if layer is None else [layer])])
            except BaseException as error:
                await connection.close("the sandbox was not created")
                said = client.said()
                await self.end(client, identity)
                if isinstance(error, SandboxError):
                    raise SandboxError(f"{error}; {self.name} said: {said}") from error
                raise
        sandbox = ContainerSandbox(connection, spec, client, identity, self)
        self._sandboxes.add(sandbox)
        return sandbox

    def _check(self, spec: Spec) -> None:
        if spec.egress is not None:
            raise Unsupported(self.name, "let anything out", "ns")
        if spec.image is not None:
            raise Unsupported(
                self.name, "have unpacked files as its root", "ns, or name an image of the engine"
            )
        if not spec.repo.is_dir():
            raise SandboxError(f"no repository at {spec.repo}: give a directory")
        for mount in spec.mounts:
            rootfs.check_mount(mount)

    def _start(self, identity: str, spec: Spec, repo: IO[bytes]) -> "Client":
        """Start a container, and write the repository as an archive to an open file."""
        with tarfile.open(fileobj=repo, mode="w") as archive:
            archive.add(spec.repo, ".", filter=_carried)
        command = self._engine.create(_container(identity), spec, repo.tell() // _MIB + 1)
        log = tempfile.TemporaryFile(dir=self._home.path)  # noqa: SIM115 - closed by the client
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        return Client(process, log)

    async def _enter(self, connection: AgentConnection, spec: Spec, parts: Sequence[int]) -> None:
        """Send what a sandbox starts from: its limits, the repository, and perhaps a layer above it."""
        order = {
            "limits": dataclasses.asdict(spec.limits),
            "environment": dict(spec.environment),
            "layer": len(parts) > 1,
            "own_kernel": self._engine.own_kernel,
        }
        connection.send({"id": 0, "op": "enter", "order": order})
        for part in parts:
            offset = 0
            while data := os.pread(part, frames.CHUNK, offset):
                connection.send({"id": 0, "op": "part"}, data)
                offset += len(data)
            connection.send({"id": 0, "op": "part"})
        await connection.wait_until_ready(START_S)

    async def end(self, client: "Client", identity: str) -> None:
        """Wait for the end of a container whose connection is closed; end one that does not end itself."""
        try:
            await asyncio.to_thread(client.process.wait, END_S)
        except subprocess.TimeoutExpired:
            await asyncio.to_thread(self._engine.run, "kill", _container(identity), check=False)
            await asyncio.to_thread(client.process.wait)
        client.close()

    def forget(self, sandbox: "ContainerSandbox") -> None:
        self._sandboxes.discard(sandbox)

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        """Hold an exam with each run's worker in a fresh container; its calls go through the agent."""
        return await judged_by_process(exam, lambda variation: self._working(exam, variation))

    @asynccontextmanager
    async def _working(self, exam: Exam, variation: int) -> AsyncIterator[socket.socket]:
        """Yield the socket of a worker in a fresh container (see `exam.judged.host.WorkerFactory`)."""
        sandbox = await self.begin(Spec(repo=exam.repo, limits=exam.limits))
        asks, answers = socket.socketpair()
        try:
            await sandbox.apply(exam.changes)
            working = asyncio.create_task(sandbox.work(answers, variation))
            try:
                yield asks
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        finally:
            asks.close()
            answers.close()
            await sandbox.destroy()

    async def aclose(self) -> None:
        for sandbox in tuple(self._sandboxes):
            await sandbox.destroy()
        await asyncio.to_thread(self._home.close)


class Client:
    """The engine's process of one container, which ends with it."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        self.process, self._log = process, log
        self._pipes: list[asyncio.BaseTransport] = []

    async def connect(self, connection: AgentConnection) -> None:
        loop = asyncio.get_running_loop()
        writing, _ = await loop.connect_write_pipe(lambda: connection, self.process.stdin)
        reading, _ = await loop.connect_read_pipe(lambda: _PipeReader(connection), self.process.stdout)
        self._pipes = [writing, reading]

    def said(self) -> str:
        """Return the end of the engine's messages."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-500:] or "nothing"

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._log.close()


class _PipeReader(asyncio.Protocol):
    """Passes the data of a pipe on to a connection."""

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)


class ContainerSandbox(AgentSandbox):
    """One sandbox, which is one container."""

    def __init__(
        self,
        connection: AgentConnection,
        spec: Spec,
        client: Client,
        identity: str,
        backend: ContainerBackend,
    ) -> None:
        super().__init__(connection, spec, rootfs.REPO)
        self.id = identity
        self._client, self._backend = client, backend

    async def apply(self, changes: Mapping[str, bytes | None]) -> None:
        """Write or, for None, delete each path; raises SandboxPathError."""
        await self._ask("apply", frames.pack_files(changes))

    async def work(self, calls: socket.socket, variation: int) -> None:
        """Run an exam's worker on `calls`, the socket of a judge, until either hangs up."""
        request = {"op": "worker", "variation": variation, "stdin": True}
        worker = AgentProcess(self._connection, request, within_s=self._within_s, keep=0)
        await between(calls, worker)

    async def fork(self, n: int = 1) -> list[Sandbox]:
        memory = os.memfd_create("fork")
        try:
            await self.pack(memory)
            return await all_or_none(self._backend.begin(self._spec, memory) for _ in range(n))
        finally:
            os.close(memory)

    async def destroy(self) -> None:
        self._backend.forget(self)
        await super().destroy()
        await self._backend.end(self._client, self.id)


async def between(calls: socket.socket, worker: AgentProcess) -> None:
    """Copy data between a judge, at the other end of `calls`, and the worker, until either ends.

    Neither is further ahead of the other than a command of its reader: data that the judge has not read yet
    waits in the worker's container.
    """
    reader, writer = await asyncio.open_connection(sock=calls)

    async def copy_output() -> None:
        async for data in worker.output():
            writer.write(data)
            await writer.drain()

    async def copy_input() -> None:
        while data := await reader.read(frames.CHUNK):
            await worker.send(data)

    directions = [asyncio.create_task(copy_output()), asyncio.create_task(copy_input())]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        writer.close()


def _container(identity: str) -> str:
    return f"ostinato-{identity}"


def _carried(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return an entry of a repository without its owner; None for a device, a pipe or a socket."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.isdev() else member
