"""The sandboxes of one node: their states, their deadlines and their commands."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from ostinato.fleet.scheduler.types import SCORING_S
from ostinato.fleet.server.commands import Command, RunningCommand
from ostinato.fleet.server.control import ControlError, SandboxInfo, SandboxRequest, SandboxState, now
from ostinato.fleet.server.templates import Templates
from ostinato.sandbox.base import Backend, Sandbox, SandboxError, Snapshot, SnapshotKind, Spec, Unsupported
from ostinato.sandbox.files import tree

log = logging.getLogger(__name__)
T = TypeVar("T")
SWEEP_S = 1.0
LOG_LINES = 1000
MOST_PROCESSES = 64
"""Commands of one sandbox that are remembered, ended ones included."""


class HostedSandbox:
    """One sandbox. Changes of its state exclude each other; calls to its commands and files do not."""

    def __init__(self, request: SandboxRequest, sandbox: Sandbox, spent: dict[str, float]) -> None:
        self.request, self.sandbox, self.spent = request, sandbox, spent
        self.state = SandboxState.RUNNING
        self.started_at, self.born = now(), time.monotonic()
        self.ends_at = self.born + request.timeout_s
        self.processes: dict[int, RunningCommand] = {}
        self.environment: dict[str, str] = {}
        """Variables for every later command."""
        self.log: deque[tuple[float, str]] = deque(maxlen=LOG_LINES)
        self._changing = ""
        self._pids = 0

    def info(self, node: str) -> SandboxInfo:
        return SandboxInfo(
            request=self.request,
            state=self.state,
            started_at=self.started_at,
            end_at=self.started_at + self.ends_at - self.born,
            node=node,
            spent=self.spent,
            root=self.sandbox.root,
        )

    @asynccontextmanager
    async def change(self, what: str, *states: SandboxState) -> AsyncIterator[None]:
        """Allow one change of state at a time, from one of `states`; else raise ControlError 409."""
        if self._changing or self.state not in states:
            is_now = self._changing or str(self.state)
            raise ControlError(409, f"sandbox {self.request.id} is {is_now}: it cannot be {what} now")
        self._changing = what
        try:
            yield
        finally:
            self._changing = ""

    async def run(
        self, command: Command, *, timeout_s: float | None, stdin: bool, tag: str
    ) -> RunningCommand:
        self._pids += 1
        running = await RunningCommand.start(
            self.sandbox, self._pids, command, timeout_s=timeout_s, stdin=stdin, tag=tag
        )
        self.processes[running.pid] = running
        while len(self.processes) > MOST_PROCESSES:
            self._forget_one()
        self.say(f"$ {command.line}")
        return running

    def _forget_one(self) -> None:
        ended = (pid for pid, each in self.processes.items() if each.ended)
        oldest = next(ended, None)
        if oldest is None:
            raise ControlError(429, f"{MOST_PROCESSES} commands run in sandbox {self.request.id}", 1.0)
        del self.processes[oldest]

    def hand_over(self, request: SandboxRequest) -> None:
        """Give a warm sandbox to a client's request; its time begins now."""
        self.request = request
        self.started_at, self.born = now(), time.monotonic()
        self.ends_at = self.born + request.timeout_s
        self.environment.update(request.environment)
        self.spent = {"started": 0.0, "cpu_s": 0.0}

    def say(self, text: str) -> None:
        self.log.append((now(), text))

    async def destroy(self) -> None:
        for each in self.processes.values():
            each.cancel()
        await self.sandbox.destroy()


class HostedSandboxes:
    """The node's `Control`, for any backend."""

    def __init__(self, backend: Backend, templates: Templates, name: str = "local") -> None:
        self.backend, self.templates, self.name = backend, templates, name
        self._hosted: dict[str, HostedSandbox] = {}
        self._snapshots: dict[str, tuple[Snapshot, Path]] = {}
        """Each snapshot with the directory of its template."""
        self._starting: set[str] = set()

    def adopt(self, snapshots: Iterable[Snapshot]) -> None:
        """Take over an earlier node's snapshots, except those whose template is gone."""
        templates = {tree.digest(str(path)): path for path in self.templates.paths()}
        for snapshot in snapshots:
            if snapshot.template in templates and snapshot.backend == self.backend.name:
                self._snapshots[snapshot.id] = snapshot, templates[snapshot.template]

    def get(self, name: str) -> HostedSandbox:
        """Return a sandbox. Raise ControlError 404 when there is none."""
        try:
            return self._hosted[name]
        except KeyError:
            raise ControlError(404, f"there is no sandbox {name}: it ended, or its time was over") from None

    async def create(self, request: SandboxRequest) -> SandboxInfo:
        if request.id in self._hosted:
            return self._hosted[request.id].info(self.name)
        saved = self._snapshots.get(request.template)
        if saved is not None:
            snapshot, base = saved
            return await self._start(request, lambda: self.backend.restore(snapshot, _spec(request, base)))
        template = self.templates.find(request.template)
        if template is None:
            raise ControlError(404, f"there is no template {request.template}: send it first")
        return await self._start(request, lambda: self.backend.create(_spec(request, template)))

    async def _start(self, request: SandboxRequest, make: Callable[[], Awaitable[Sandbox]]) -> SandboxInfo:
        """Start a sandbox, measure the cost and register it."""
        if request.id in self._starting:
            raise ControlError(409, f"sandbox {request.id} is being started already")
        self._starting.add(request.id)
        try:
            start, cpu = time.monotonic(), time.process_time()
            sandbox = await make()
            spent = {"started": time.monotonic() - start, "cpu_s": time.process_time() - cpu}
            spent["cpu_s"] += await _cpu_s(sandbox)
        except Unsupported as error:
            raise ControlError(400, str(error)) from error
        except (SandboxError, OSError) as error:
            raise ControlError(500, f"sandbox {request.id} did not start: {error}") from error
        finally:
            self._starting.discard(request.id)
        return self._register(request, sandbox, spent)

    def _register(self, request: SandboxRequest, sandbox: Sandbox, spent: dict[str, float]) -> SandboxInfo:
        hosted = self._hosted[request.id] = HostedSandbox(request, sandbox, spent)
        return hosted.info(self.name)

    async def claim(self, warm: str, request: SandboxRequest) -> SandboxInfo:
        """Give a sandbox that was started for a pool to a client's request."""
        hosted = self.get(warm)
        async with hosted.change("claimed", SandboxState.RUNNING):
            del self._hosted[warm]
            hosted.hand_over(request)
            self._hosted[request.id] = hosted
        return hosted.info(self.name)

    async def info(self, sandbox: str) -> SandboxInfo:
        return self.get(sandbox).info(self.name)

    async def every(self) -> list[SandboxInfo]:
        return [hosted.info(self.name) for hosted in self._hosted.values()]

    async def kill(self, sandbox: str) -> None:
        hosted = self.get(sandbox)
        del self._hosted[sandbox]
        await hosted.destroy()

    async def pause(self, sandbox: str) -> None:
        hosted = self.get(sandbox)
        async with hosted.change("paused", SandboxState.RUNNING):
            await _translate_errors(hosted.sandbox.pause())
            hosted.state = SandboxState.PAUSED

    async def resume(self, sandbox: str, timeout_s: float | None) -> SandboxInfo:
        """Resume a sandbox; of one that already runs only the deadline is set."""
        hosted = self.get(sandbox)
        async with hosted.change("resumed", SandboxState.RUNNING, SandboxState.PAUSED):
            if hosted.state is SandboxState.PAUSED:
                await _translate_errors(hosted.sandbox.resume())
                hosted.state = SandboxState.RUNNING
        if timeout_s is not None:
            await self.extend(sandbox, timeout_s)
        return hosted.info(self.name)

    async def extend(self, sandbox: str, timeout_s: float) -> None:
        self.get(sandbox).ends_at = time.monotonic() + timeout_s

    async def snapshot(self, sandbox: str, kind: SnapshotKind) -> Snapshot:
        hosted = self.get(sandbox)
        async with hosted.change("snapshotted", SandboxState.RUNNING, SandboxState.PAUSED):
            snapshot = await _translate_errors(hosted.sandbox.snapshot(kind))
        self._snapshots[snapshot.id] = snapshot, self._repo_of(hosted.request)
        return snapshot

    def _repo_of(self, request: SandboxRequest) -> Path:
        saved = self._snapshots.get(request.template)
        path = saved[1] if saved is not None else self.templates.find(request.template)
        if path is None:
            raise ControlError(404, f"template {request.template} was removed meanwhile")
        return path

    async def forget(self, template: str) -> None:
        saved = self._snapshots.pop(template, None)
        if saved is not None:
            await _translate_errors(self.backend.remove(saved[0]))
        elif not await self.templates.remove(template):
            raise ControlError(404, f"there is no template {template}")

    async def fork(self, sandbox: str, requests: list[SandboxRequest]) -> list[SandboxInfo | ControlError]:
        """Fork a sandbox: all children start or none does, as in the backend; the parent goes on."""
        parent = self.get(sandbox)
        async with parent.change("forked", SandboxState.RUNNING, SandboxState.PAUSED):
            start, cpu = time.monotonic(), time.process_time()
            children = await _translate_errors(parent.sandbox.fork(len(requests)))
        share = 1 / max(len(children), 1)
        spent = {
            "started": time.monotonic() - start,
            "cpu_s": (time.process_time() - cpu) * share,
        }
        return [
            self._register(request, child, dict(spent))
            for request, child in zip(requests, children, strict=True)
        ]

    async def logs(self, sandbox: str) -> list[tuple[float, str]]:
        return list(self.get(sandbox).log)

    async def sweep(self, label: str, value: str) -> list[str]:
        names = [name for name, each in self._hosted.items() if each.request.metadata.get(label) == value]
        for name in names:
            await self.kill(name)
        return names

    async def watch_time(self) -> None:
        """End the sandboxes whose time, scoring included, is over; for as long as the node runs."""
        while True:
            await asyncio.sleep(SWEEP_S)
            late = time.monotonic() - SCORING_S
            for name in [name for name, each in self._hosted.items() if each.ends_at < late]:
                log.info("sandbox %s is over its time", name)
                await self._end(name)

    async def _end(self, name: str) -> None:
        try:
            await self.kill(name)
        except (SandboxError, OSError):
            log.exception("sandbox %s is over its time and did not end", name)

    def snapshots(self) -> list[Snapshot]:
        return [snapshot for snapshot, _ in self._snapshots.values()]

    def ages(self) -> dict[str, float]:
        """Return the seconds since each sandbox was created."""
        return {name: time.monotonic() - each.born for name, each in self._hosted.items()}

    async def aclose(self) -> None:
        self._hosted.clear()
        await self.backend.aclose()


async def _translate_errors(operation: Awaitable[T]) -> T:
    """Await an operation on a sandbox; raise its failure as ControlError, which becomes the response."""
    try:
        return await operation
    except Unsupported as error:
        raise ControlError(400, str(error)) from error
    except (SandboxError, OSError) as error:
        raise ControlError(500, str(error)) from error


async def _cpu_s(sandbox: Sandbox) -> float:
    """Return the CPU seconds of the sandbox's processes; 0 where the backend does not count them."""
    try:
        return (await sandbox.usage()).cpu_s
    except Unsupported:
        return 0.0


def _spec(request: SandboxRequest, repo: Path) -> Spec:
    return Spec(
        repo=repo,
        limits=request.limits,
        environment=request.environment,
        egress=request.egress,
        labels=request.metadata,
    )
