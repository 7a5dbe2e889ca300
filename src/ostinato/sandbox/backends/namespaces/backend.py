"""Sandboxes of Linux namespaces: a boundary against malicious code, without root, containers or a daemon.

    NsBackend ──starts──► zygote (pytest loaded) ──forks──► agent, process 1 of its own user, mount, pid,
        │                                                   network, ipc and uts namespaces; the repository
        └──────────────── frames on a socket pair ────────► is an overlay

A sandbox sees the machine's programs and the Python in use, read-only, and its repository, but no network, no
other process, no home directory and no hidden test. All that it writes is in memory and ends with it.
"""

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ostinato.sandbox.backends.agent_sandbox import AgentSandbox, all_or_none
from ostinato.sandbox.backends.environment import spec_environment
from ostinato.sandbox.backends.namespaces.launcher import ZygoteProcess
from ostinato.sandbox.base import (
    Capabilities,
    Exam,
    ExecResult,
    Isolation,
    Mount,
    OnOutput,
    Sandbox,
    SandboxError,
    Spec,
)
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.egress.route import FILE, Route
from ostinato.sandbox.exam.judged.host import UNFINISHED, runs
from ostinato.sandbox.exam.judged.worker import module_names
from ostinato.sandbox.files import rootfs, scratch
from ostinato.sandbox.files.exec_cache import CacheKey, ExecCache, identity
from ostinato.sandbox.guest import pytest_command
from ostinato.sandbox.linux import cgroup, landlock
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import (
    AgentConnection,
    ConnectionLostError,
    Response,
    ResponseTimeoutError,
)
from ostinato.sandbox.protocol.order import Order


class NsBackend:
    """Sandboxes forked from one zygote, which is started when first needed and again when it has died.

    `resolve` looks up the names of hosts for sandboxes, by default as the system does.
    """

    name = "ns"
    root = rootfs.REPO

    def __init__(self, *, resolve: Resolve | None = None) -> None:
        self._resolve = resolve
        self.cache = ExecCache()
        self._zygote: ZygoteProcess | None = None
        self._starting = asyncio.Lock()
        self._sandboxes: set[NsSandbox] = set()

    @property
    def capabilities(self) -> Capabilities:
        lost = () if landlock.abi() else ("this kernel has no Landlock: only mounts protect files",)
        return capabilities(Isolation.NAMESPACES, {"pids"}, lost, egress=True)

    async def create(self, spec: Spec) -> Sandbox:
        return await self.begin(spec)

    async def begin(
        self, spec: Spec, *, calls: socket.socket | None = None, base: int | None = None
    ) -> "NsSandbox":
        """Create a sandbox, with the socket of an exam's worker and an open layer to start from, if given."""
        order = await self._order(spec)
        route, egress = None, spec.egress
        files = {"calls": calls.fileno()} if calls is not None else {}
        files |= {"layer": base} if base is not None else {}
        try:
            route = await Route.open(egress, order.id, self._resolve) if egress is not None else None
            begun = await (self._begin(order, files) if route is None else self._open(order, files, route))
        except BaseException:
            await self.drop(order.scratch)
            if route is not None:
                await route.aclose()
            raise
        sandbox = NsSandbox(begun, spec, order, self, route)
        self._sandboxes.add(sandbox)
        return sandbox

    async def _open(self, order: Order, files: Mapping[str, int], route: Route) -> "Begun":
        """Begin a sandbox with egress, through the sockets that it opens."""
        inner, outer = socket.socketpair()
        with inner, outer:
            begun = await self._begin(route.add_to(order), {**files, FILE: inner.fileno()})
            await route.serve(outer)
        return begun

    async def _begin(self, order: Order, files: Mapping[str, int]) -> "Begun":
        zygote = await self._ready_zygote(None)
        try:
            return await zygote.begin(order, files), zygote
        except ConnectionLostError:  # the child, or the zygote, died with the order: try once more
            dead = zygote if await zygote.ends() else None
        zygote = await self._ready_zygote(dead)
        return await zygote.begin(order, files), zygote

    async def _order(self, spec: Spec) -> Order:
        """Return the order for a sandbox; raises SandboxError, Unsupported for what cannot be given."""
        self._check_spec(spec)
        if not spec.repo.is_dir():
            raise SandboxError(f"no repository at {spec.repo}: give a directory")
        for mount in spec.mounts:
            self._check_mount(mount)
        return Order(
            id=uuid.uuid4().hex,
            repo=_absolute(spec.repo),
            scratch=await self._scratch(),
            limits=spec.limits,
            mounts=tuple((_absolute(mount.source), mount.target) for mount in spec.mounts),
            environment=spec_environment(spec),
            image=None if spec.image is None else (_absolute(spec.image.root), spec.image.workdir),
        )

    def _check_spec(self, spec: Spec) -> None:
        """Check the rest of a spec; raises SandboxError, Unsupported."""
        if spec.image is not None:
            rootfs.check_image(spec.image)

    def _check_mount(self, mount: Mount) -> None:
        """Check a mount; raises SandboxError, Unsupported."""
        rootfs.check_mount(mount)

    async def _scratch(self) -> str:
        """Return a directory for a new sandbox; empty where it has a file system of its own."""
        return ""

    async def drop(self, scratch: str) -> None: ...

    def forget(self, sandbox: "NsSandbox") -> None:
        self._sandboxes.discard(sandbox)

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        """Hold an exam with the judge in a fork of the zygote, and each run's worker in a fresh sandbox."""
        ours, results = socket.socketpair()
        with ours, results:
            zygote = await self._start_judge(exam, results)  # it starts while sandbox and worker start
            results.close()
            outcomes = await runs(ours, exam, lambda variation: self._working(exam, variation))
        if UNFINISHED in outcomes[-1] and await zygote.ends():
            raise SandboxError("the zygote ended, and the judge with it: the exam is void, run it again")
        return outcomes

    async def _start_judge(self, exam: Exam, results: socket.socket) -> ZygoteProcess:
        request = {
            "tests": _absolute(exam.tests),
            "names": module_names(str(exam.repo)),
            "wall_s": exam.limits.wall_s,
        }
        zygote = await self._ready_zygote(None)
        await zygote.examine(request, [results.fileno()])
        return zygote

    @asynccontextmanager
    async def _working(self, exam: Exam, variation: int) -> AsyncIterator[socket.socket]:
        """See `exam.Working`."""
        asks, answers = socket.socketpair()
        with asks:
            with answers:
                sandbox = await self.begin(Spec(repo=exam.repo, limits=exam.limits), calls=answers)
            try:
                await sandbox.prepare_worker(exam.changes, variation)
                yield asks
                await sandbox.check()
            finally:
                await sandbox.destroy()

    async def _ready_zygote(self, dead: ZygoteProcess | None) -> ZygoteProcess:
        """Return the running zygote, a new one when there is none or it is the `dead` one."""
        async with self._starting:
            if self._zygote is not None and (self._zygote is dead or not self._zygote.alive()):
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                await asyncio.to_thread(scratch.sweep)
                self._zygote = await ZygoteProcess.start(self.name)
            return self._zygote

    async def aclose(self) -> None:
        for sandbox in tuple(self._sandboxes):
            await sandbox.destroy()
        if self._zygote is not None:
            await self._zygote.stop()
            self._zygote = None


Begun = tuple[AgentConnection, ZygoteProcess]
"""The connection to an agent, and the zygote that it was forked from."""


def capabilities(
    isolation: Isolation, limits: Set[str], lost: tuple[str, ...], *, egress: bool = False
) -> Capabilities:
    """Return the capabilities of sandboxes of a zygote, which depend on whether cgroups work."""
    group = cgroup.usable()
    if group is None:
        lost = (*lost, "no cgroup: the memory of each process is bounded, not their sum")
    return Capabilities(
        isolation=isolation,
        fork=True,
        egress=egress,
        limits=frozenset({"rlimit", *limits, *([f"cgroup{group[0]}"] if group else [])}),
        lost=lost,
    )


def _absolute(path: Path) -> str:
    return str(path.absolute())


class NsSandbox(AgentSandbox):
    """One sandbox, whose agent was forked from the zygote."""

    def __init__(
        self, begun: Begun, spec: Spec, order: Order, backend: NsBackend, route: Route | None
    ) -> None:
        connection, self._zygote = begun
        super().__init__(connection, spec, f"{order.scratch}{backend.root}", route)
        self.id = order.id
        self._scratch = order.scratch
        self._backend = backend
        self._base = identity(spec)
        self._runs = 0
        self._running = 0

    async def _run(
        self, command: str, timeout_s: float | None, on_output: OnOutput | None, *, state: bool = False
    ) -> tuple[ExecResult, Mapping[str, Any]]:
        """Run a command, or return its remembered result.

        Remembered are runs of the tests that changed nothing, for an equal tree.
        """
        key = await self._key(command)
        if key is None:
            return await self._run_here(command, timeout_s, on_output, state=state)
        async with self._backend.cache.turn(key):
            known = self._backend.cache.get(key)
            if known is None:
                return await self._run_to_remember(key, timeout_s, on_output)
        if on_output is not None and known.output:
            on_output(known.output)
        return known, {}

    async def _run_to_remember(
        self, key: CacheKey, timeout_s: float | None, on_output: OnOutput | None
    ) -> tuple[ExecResult, Mapping[str, Any]]:
        """Run a command, and remember its result if it was alone and changed nothing."""
        run, alone = self._runs + 1, not self._running
        result, header = await self._run_here(key.command, timeout_s, on_output, state=True)
        same = header["pure"] and header["tree"] == key.tree
        if same and alone and run == self._runs and not result.timed_out:
            self._backend.cache.put(key, result)
        return result, header

    async def _run_here(
        self, command: str, timeout_s: float | None, on_output: OnOutput | None, *, state: bool
    ) -> tuple[ExecResult, Mapping[str, Any]]:
        self._runs += 1
        self._running += 1
        try:
            return await super()._run(command, timeout_s, on_output, state=state)
        except ConnectionLostError as error:
            raise await self._zygote.blame(error) from error
        finally:
            self._running -= 1

    async def _key(self, command: str) -> CacheKey | None:
        """Return all that decides a command's result; None when that is more than the tree.

        Only runs of the tests have a key: tests are written to depend on their tree alone, while other
        commands show randomness, time and names.
        """
        if self._route is not None or self._spec.image is not None or pytest_command.parse(command) is None:
            return None
        state, _ = await self._ask("state")
        return CacheKey(repo=self._base, tree=state["tree"], command=command) if state["pure"] else None

    async def _ask(
        self, op: str, body: bytes = b"", *, max_body: int = frames.SMALL, **request: object
    ) -> Response:
        try:
            return await super()._ask(op, body, max_body=max_body, **request)
        except ConnectionLostError as error:
            raise await self._zygote.blame(error) from error

    async def check(self) -> None:
        """Check that the agent responds; raises EndedWithinError when code in the sandbox prevents that."""
        try:
            await self._ask("hello")
        except ResponseTimeoutError as error:
            raise await self._zygote.blame(error) from error

    async def prepare_worker(self, changes: Mapping[str, bytes | None], variation: int) -> None:
        """Apply an exam's changes and start the worker on the socket that `begin` was given."""
        body = frames.pack_files(changes)
        applied = self._connection.send_request({"op": "apply"}, body, within_s=self._within_s)
        await self._ask("worker", variation=variation)
        await self._connection.response(applied)

    async def fork(self, n: int = 1) -> list[Sandbox]:
        memory = os.memfd_create("fork")
        try:
            await self.pack(memory)
            return await all_or_none(self._backend.begin(self._spec, base=memory) for _ in range(n))
        finally:
            os.close(memory)

    async def destroy(self) -> None:
        self._backend.forget(self)
        await super().destroy()
        scratch, self._scratch = self._scratch, ""
        await self._backend.drop(scratch)
