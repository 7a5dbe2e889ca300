"""Sandboxes of plain processes: for a user's own repository, and where namespaces do not work.

NOT a security boundary: a command can read and write all that its user can. A time limit is enforced, and
processes left behind in the command's session are killed. In a copy, resource limits are enforced too, and
processes that left the session are killed, unless they gave up their environment as well (see
`linux.stray_processes`).
"""

import asyncio
import builtins
import os
import shutil
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ostinato.git import BINDING
from ostinato.sandbox.backends.environment import COMMAND_ENVIRONMENT
from ostinato.sandbox.backends.process.command import LocalProcess, capped
from ostinato.sandbox.base import (
    Capabilities,
    Exam,
    ExecResult,
    Isolation,
    OnOutput,
    Process,
    Sandbox,
    SandboxError,
    Spec,
    Unsupported,
)
from ostinato.sandbox.exam.judged.host import judged_by_process, worker_process
from ostinato.sandbox.files import layer_restore, tree
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.files.workspace import REPO_AREA, DirectoryWorkspace
from ostinato.sandbox.linux import stray_processes
from ostinato.sandbox.protocol.stream import follow


class ProcessBackend:
    """Sandboxes that work on a copy of the repository, or in the directory itself (`in_place`)."""

    name = "process"

    def __init__(self, *, in_place: bool = False) -> None:
        self._in_place = in_place
        self._alive: set[ProcessSandbox] = set()

    @property
    def capabilities(self) -> Capabilities:
        lost = ("commands can read and write all that their user can, and reach the network",)
        if self._in_place:
            return Capabilities(isolation=Isolation.PROCESS, lost=lost)
        return Capabilities(
            isolation=Isolation.PROCESS,
            fork=True,
            limits=frozenset({"rlimit"}),
            lost=lost,
        )

    async def create(self, spec: Spec) -> Sandbox:
        return await self.begin(spec)

    async def begin(self, spec: Spec, base: Path | None = None) -> "ProcessSandbox":
        """Create a sandbox, from the layer in the file `base` if it is given."""
        if spec.mounts or spec.egress is not None or spec.image is not None:
            what = "mount anything, have an image as its root or restrict the network"
            raise Unsupported(self.name, what, "ns")
        sandbox = await asyncio.to_thread(self._prepare, spec, base)
        self._alive.add(sandbox)
        return sandbox

    def _prepare(self, spec: Spec, base: Path | None) -> "ProcessSandbox":
        if not spec.repo.is_dir():
            raise SandboxError(f"no repository at {spec.repo}: give a directory")
        if self._in_place:
            return ProcessSandbox(spec.repo.resolve(), spec, self, scratch=None)
        scratch = Scratch(self.name)
        try:
            shutil.copytree(spec.repo, scratch.path / "repo", symlinks=True)
            sandbox = ProcessSandbox(scratch.path / "repo", spec, self, scratch=scratch)
            if base is not None:
                _unpack(base, sandbox.root)
        except BaseException:
            scratch.close()
            raise
        return sandbox

    def forget(self, sandbox: "ProcessSandbox") -> None:
        self._alive.discard(sandbox)

    async def examine(self, exam: Exam) -> builtins.list[dict[str, str]]:
        return await judged_by_process(exam, lambda variation: _working(exam, variation))

    async def aclose(self) -> None:
        for sandbox in tuple(self._alive):
            await sandbox.destroy()


@asynccontextmanager
async def _working(exam: Exam, variation: int) -> AsyncIterator[socket.socket]:
    """Yield the socket of a worker in a copy of the repository (see `exam.judged.host.WorkerFactory`)."""
    sandbox = await ProcessBackend().create(Spec(repo=exam.repo, limits=exam.limits))
    try:
        tree.apply(sandbox.root, exam.changes)
        async with worker_process(sandbox.root, variation) as asks:
            yield asks
    finally:
        await sandbox.destroy()


def _unpack(base: Path, root: str) -> None:
    file = os.open(base, os.O_RDONLY | os.O_CLOEXEC)
    try:
        layer_restore.unpack(file, {REPO_AREA: root}, overlay=False)
    finally:
        os.close(file)


class ProcessSandbox:
    """One directory and the commands that run in it."""

    def __init__(
        self, directory: Path, spec: Spec, backend: ProcessBackend, *, scratch: Scratch | None
    ) -> None:
        self.id = uuid.uuid4().hex
        self.root = str(directory)
        self._spec = spec
        self._limits = spec.limits
        self._backend = backend
        self._scratch = scratch
        self._destroyed = False
        self._running: set[LocalProcess] = set()
        self._workspace = DirectoryWorkspace(self.root, git=scratch is not None)

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        process = await self.start(command, timeout_s=timeout_s)
        try:
            if on_output is not None:
                await follow(process, on_output)
            return await process.wait()
        except asyncio.CancelledError:
            await process.signal(signal.SIGKILL)
            raise

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        self._check_alive()
        process = await LocalProcess.start(
            self._argv(command),
            directory=self.root,
            environment=self._environment(),
            wall_s=self._limits.wall_s if timeout_s is None else timeout_s,
            stdin=stdin,
            keep=self._limits.output_bytes,
            on_end=self._running.discard,
            mark=None if self._scratch is None else stray_processes.new_mark(),
        )
        self._running.add(process)
        return process

    def _argv(self, command: str) -> list[str]:
        if self._scratch is None:
            return ["/bin/sh", "-c", command]
        return capped(command, self._limits)

    def _environment(self) -> dict[str, str]:
        if self._scratch is None:
            own = {name: value for name, value in os.environ.items() if name not in BINDING}
            return {**own, **self._spec.environment}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        own = {**COMMAND_ENVIRONMENT, "PATH": path, "HOME": str(self._scratch.path), "PWD": self.root}
        return {**own, **self._spec.environment}

    async def read(self, path: str) -> bytes:
        self._check_alive()
        return tree.read(self.root, path)

    async def write(self, path: str, data: bytes) -> None:
        self._check_alive()
        tree.write(self.root, path, data)

    async def files(self) -> list[str]:
        self._check_alive()
        return tree.files(self.root)

    async def tree_hash(self) -> str:
        self._check_alive()
        return tree.digest(self.root)

    async def changes(self) -> dict[str, bytes | None]:
        self._check_alive()
        return self._workspace.changes(sys.maxsize if self._scratch is None else self._limits.disk_mb << 20)

    def _pack(self, path: Path) -> None:
        self._check_alive()
        if self._running:
            raise SandboxError(f"a command runs in the sandbox at {self.root}: wait for it, or use ns")
        try:
            with path.open("wb") as file:
                file.writelines(self._workspace.pack())
        except OSError as error:
            raise SandboxError(f"the files could not be written: {error}") from error

    async def fork(self, n: int = 1) -> builtins.list[Sandbox]:
        if self._scratch is None:
            raise Unsupported("process", "fork a directory in place", "a copy")
        made: builtins.list[Sandbox] = []
        with Scratch("fork") as scratch:
            path = scratch.path / "layer"
            await asyncio.to_thread(self._pack, path)
            try:
                for _ in range(n):
                    made.append(await self._backend.begin(self._spec, path))
            except BaseException:
                for sandbox in made:
                    await sandbox.destroy()
                raise
        return made

    async def destroy(self) -> None:
        self._destroyed = True
        self._backend.forget(self)
        for process in tuple(self._running):
            await process.kill()
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            await asyncio.to_thread(scratch.close)

    async def list(self, path: str = ".") -> builtins.list[str]:
        self._check_alive()
        return tree.names(self.root, path)

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxError(f"the sandbox at {self.root} is destroyed: create another")
        if self._scratch is not None:
            self._workspace.open_up()
