"""Linux namespaces: a boundary against code that means harm, without root, containers or a daemon.

    NsBackend ──starts──► zygote (pytest loaded) ──forks──► agent, process 1 of its own user, mount, pid,
        │                                                   network, ipc and uts namespaces; the repository
        └──────────────── frames on a socket pair ────────► is an overlay

A sandbox sees the machine's programs and the Python in use, read-only, and its repository; no network, no
other process, no home directory, no hidden test. What it writes lies in memory and ends with it.
"""

import asyncio
import dataclasses
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.sandbox import frames, layout
from ostinato.sandbox.base import DEFAULT_LIMITS, Exam, ExecResult, Limits, OnOutput, Sandbox, SandboxError
from ostinato.sandbox.cache import CacheKey, ExecCache
from ostinato.sandbox.exam import outcomes
from ostinato.sandbox.launch import ZygoteProcess
from ostinato.sandbox.wire import Wire
from ostinato.sandbox.worker import module_names

GRACE_S = 10.0
"""How much longer than its command's time limit the backend waits for an agent, e.g. on a busy machine."""


class NsBackend:
    """Sandboxes forked from one zygote, which is started when first needed and again when it died."""

    name = "ns"
    boundary = True

    def __init__(self) -> None:
        self.cache = ExecCache()
        self._zygote: ZygoteProcess | None = None
        self._starting = asyncio.Lock()
        self._sandboxes: set[NsSandbox] = set()

    async def open(self, repo: Path, limits: Limits = DEFAULT_LIMITS) -> Sandbox:
        return await self._open(repo, limits, None)

    async def _open(self, repo: Path, limits: Limits, calls: socket.socket | None) -> "NsSandbox":
        base = _identity(repo)
        await self._ready_zygote(None)
        ours, theirs = socket.socketpair()
        with theirs:
            request = {"op": "sandbox", "repo": _absolute(repo), "limits": dataclasses.asdict(limits)}
            await self._send(request, [theirs] if calls is None else [theirs, calls])
        wire = await Wire.connect(ours)
        try:
            await wire.first(GRACE_S)
        except BaseException:
            await wire.close("the sandbox did not open")
            raise
        sandbox = NsSandbox(wire, limits, base, self.cache, self._sandboxes)
        self._sandboxes.add(sandbox)
        return sandbox

    async def examine(self, exam: Exam) -> dict[str, str]:
        """The worker in a fresh sandbox, the judge beside the zygote; they share one socket pair."""
        asks, answers = socket.socketpair()
        with asks, answers:
            sandbox = await self._open(exam.repo, exam.limits, answers)
            answers.close()
            try:
                await sandbox.prepare_worker(exam)
                return await self._judge(exam, asks)
            finally:
                await sandbox.close()

    async def _judge(self, exam: Exam, asks: socket.socket) -> dict[str, str]:
        ours, results = socket.socketpair()
        with ours:
            with results:
                request = {
                    "op": "judge",
                    "tests": _absolute(exam.tests),
                    "names": module_names(str(exam.repo)),
                }
                await self._send({**request, "wall_s": exam.limits.wall_s}, [results, asks])
            asks.close()
            return await outcomes(ours, exam)

    async def _send(self, request: Mapping[str, Any], sockets: Sequence[socket.socket]) -> None:
        """Give the zygote a request; one that died meanwhile is replaced, once."""
        zygote = await self._ready_zygote(None)
        try:
            zygote.send(request, sockets)
        except SandboxError:
            (await self._ready_zygote(zygote)).send(request, sockets)

    async def _ready_zygote(self, dead: ZygoteProcess | None) -> ZygoteProcess:
        """The running zygote, a new one when there is none or it is known to be `dead`."""
        async with self._starting:
            if self._zygote is not None and (self._zygote is dead or not self._zygote.alive()):
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await ZygoteProcess.start()
            return self._zygote

    async def aclose(self) -> None:
        for sandbox in tuple(self._sandboxes):
            await sandbox.close()
        if self._zygote is not None:
            await self._zygote.stop()
            self._zygote = None


def _absolute(path: Path) -> str:
    return str(path.absolute())


def _identity(repo: Path) -> str:
    """Path and birth of a repository; raises SandboxError when there is none."""
    try:
        status = (repo / ".git").stat() if (repo / ".git").exists() else repo.stat()
    except OSError as error:
        raise SandboxError(f"no repository at {repo}: give a directory ({error})") from error
    return f"{repo}:{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}"


class NsSandbox:
    """The backend's handle on one agent."""

    root = layout.REPO

    def __init__(
        self, wire: Wire, limits: Limits, base: str, cache: ExecCache, registry: "set[NsSandbox]"
    ) -> None:
        self._wire = wire
        self._limits = limits
        self._base = base
        self._cache = cache
        self._registry = registry
        self._within_s = limits.wall_s + GRACE_S

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        result = await self._exec(command, timeout_s)
        if on_output is not None and result.output:
            on_output(result.output)
        return result

    async def _exec(self, command: str, timeout_s: float | None) -> ExecResult:
        state, _ = await self._wire.ask({"op": "state"}, within_s=self._within_s)
        key = CacheKey(repo=self._base, tree=state["tree"], command=command) if state["pure"] else None
        known = self._cache.get(key) if key else None
        if known is not None:
            return known
        within_s = (timeout_s or self._limits.wall_s) + GRACE_S
        request = {"op": "exec", "command": command, "timeout_s": timeout_s}
        answer, output = await self._wire.ask(request, within_s=within_s)
        result = ExecResult(
            exit_code=answer["exit_code"],
            output=output.decode(),
            timed_out=answer["timed_out"],
            duration_s=answer["duration_s"],
        )
        if key and answer["pure"] and answer["tree"] == key.tree and not result.timed_out:
            self._cache.put(key, result)
        return result

    async def read(self, path: str) -> bytes:
        _, body = await self._wire.ask({"op": "read", "path": path}, within_s=self._within_s)
        return body

    async def write(self, path: str, data: bytes) -> None:
        await self._wire.ask({"op": "write", "path": path}, data, within_s=self._within_s)

    async def files(self) -> list[str]:
        answer, _ = await self._wire.ask({"op": "files"}, within_s=self._within_s)
        return [str(name) for name in answer["names"]]

    async def tree_hash(self) -> str:
        answer, _ = await self._wire.ask({"op": "state"}, within_s=self._within_s)
        return str(answer["tree"])

    async def changes(self) -> dict[str, bytes | None]:
        answer, body = await self._wire.ask({"op": "changes"}, within_s=self._within_s)
        return frames.unpack_files(answer["files"], body)

    async def prepare_worker(self, exam: Exam) -> None:
        """Bring in the exam's changes and start the worker on the socket given at the opening."""
        table, body = frames.pack_files(exam.changes)
        await self._wire.ask({"op": "apply", "files": table}, body, within_s=self._within_s)
        await self._wire.ask({"op": "worker"}, within_s=self._within_s)

    async def close(self) -> None:
        self._registry.discard(self)
        await self._wire.close("the sandbox is closed: open another")

    async def list(self, path: str = ".") -> list[str]:
        answer, _ = await self._wire.ask({"op": "list", "path": path}, within_s=self._within_s)
        return [str(name) for name in answer["names"]]
