"""The sandboxes of one node: their states, their time, what runs in them."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from ostinato.fleet.scheduler.pod import SCORING_S
from ostinato.fleet.server.running import Command, Running
from ostinato.fleet.server.templates import Templates
from ostinato.fleet.server.wishes import ControlError, Info, State, Wish, now
from ostinato.sandbox.base import Backend, Sandbox, SandboxError, Snapshot, SnapshotKind, Spec, Unsupported
from ostinato.sandbox.files import tree

log = logging.getLogger(__name__)
T = TypeVar("T")
SWEEP_S = 1.0
LOG_LINES = 1000
MOST_PROCESSES = 64
"""Commands of one sandbox that are remembered, ended ones included."""


class Pod:
    """One sandbox. Changes of its state exclude each other; commands and files do not."""

    def __init__(self, wish: Wish, sandbox: Sandbox, spent: dict[str, float]) -> None:
        self.wish, self.sandbox, self.spent = wish, sandbox, spent
        self.state = State.RUNNING
        self.started_at, self.born = now(), time.monotonic()
        self.ends_at = self.born + wish.timeout_s
        self.processes: dict[int, Running] = {}
        self.environment: dict[str, str] = {}
        """Added to what every later command sees."""
        self.log: deque[tuple[float, str]] = deque(maxlen=LOG_LINES)
        self._changing = ""
        self._pids = 0

    def info(self, node: str) -> Info:
        return Info(
            wish=self.wish,
            state=self.state,
            started_at=self.started_at,
            end_at=self.started_at + self.ends_at - self.born,
            node=node,
            spent=self.spent,
            root=self.sandbox.root,
        )

    @asynccontextmanager
    async def change(self, what: str, *states: State) -> AsyncIterator[None]:
        """One change at a time, from one of `states`; else ControlError 409."""
        if self._changing or self.state not in states:
            is_now = self._changing or str(self.state)
            raise ControlError(409, f"sandbox {self.wish.id} is {is_now}: it cannot be {what} now")
        self._changing = what
        try:
            yield
        finally:
            self._changing = ""

    async def run(self, command: Command, *, timeout_s: float | None, stdin: bool, tag: str) -> Running:
        self._pids += 1
        running = await Running.start(
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
            raise ControlError(429, f"{MOST_PROCESSES} commands run in sandbox {self.wish.id}", 1.0)
        del self.processes[oldest]

    def belongs_to(self, wish: Wish) -> None:
        self.wish = wish
        self.started_at, self.born = now(), time.monotonic()
        self.ends_at = self.born + wish.timeout_s
        self.environment.update(wish.environment)
        self.spent = {"started": 0.0, "cpu_s": 0.0}

    def say(self, text: str) -> None:
        self.log.append((now(), text))

    async def destroy(self) -> None:
        for each in self.processes.values():
            each.cancel()
        await self.sandbox.destroy()


class Pods:
    """The node's side of `Control`, in front of any backend."""

    def __init__(self, backend: Backend, templates: Templates, name: str = "local") -> None:
        self.backend, self.templates, self.name = backend, templates, name
        self._pods: dict[str, Pod] = {}
        self._snapshots: dict[str, tuple[Snapshot, Path]] = {}
        """And the template that each lies above."""
        self._starting: set[str] = set()

    def take_up(self, found: Iterable[Snapshot]) -> None:
        """Snapshots of a node before this one; those whose template is gone cannot be restored any more."""
        templates = {tree.digest(str(path)): path for path in self.templates.paths()}
        for snapshot in found:
            if snapshot.template in templates and snapshot.backend == self.backend.name:
                self._snapshots[snapshot.id] = snapshot, templates[snapshot.template]

    def pod(self, name: str) -> Pod:
        """ControlError 404 when there is none."""
        try:
            return self._pods[name]
        except KeyError:
            raise ControlError(404, f"there is no sandbox {name}: it ended, or its time was over") from None

    async def create(self, wish: Wish) -> Info:
        if wish.id in self._pods:
            return self._pods[wish.id].info(self.name)
        kept = self._snapshots.get(wish.template)
        if kept is not None:
            snapshot, repo = kept
            return await self._begin(wish, lambda: self.backend.restore(snapshot, _spec(wish, repo)))
        repo_found = self.templates.find(wish.template)
        if repo_found is None:
            raise ControlError(404, f"there is no template {wish.template}: send it first")
        return await self._begin(wish, lambda: self.backend.create(_spec(wish, repo_found)))

    async def _begin(self, wish: Wish, make: Callable[[], Awaitable[Sandbox]]) -> Info:
        """Starts a sandbox and enters it; what it cost is measured."""
        if wish.id in self._starting:
            raise ControlError(409, f"sandbox {wish.id} is being started already")
        self._starting.add(wish.id)
        try:
            start, cpu = time.monotonic(), time.process_time()
            sandbox = await make()
            spent = {"started": time.monotonic() - start, "cpu_s": time.process_time() - cpu}
            spent["cpu_s"] += await _cpu_s(sandbox)
        except Unsupported as error:
            raise ControlError(400, str(error)) from error
        except (SandboxError, OSError) as error:
            raise ControlError(500, f"sandbox {wish.id} did not start: {error}") from error
        finally:
            self._starting.discard(wish.id)
        return self._enter(wish, sandbox, spent)

    def _enter(self, wish: Wish, sandbox: Sandbox, spent: dict[str, float]) -> Info:
        pod = self._pods[wish.id] = Pod(wish, sandbox, spent)
        return pod.info(self.name)

    async def claim(self, warm: str, wish: Wish) -> Info:
        """A pod that was started for a pool becomes what somebody wants; its time begins now."""
        pod = self.pod(warm)
        async with pod.change("claimed", State.RUNNING):
            del self._pods[warm]
            pod.belongs_to(wish)
            self._pods[wish.id] = pod
        return pod.info(self.name)

    async def info(self, pod: str) -> Info:
        return self.pod(pod).info(self.name)

    async def every(self) -> list[Info]:
        return [pod.info(self.name) for pod in self._pods.values()]

    async def kill(self, pod: str) -> None:
        found = self.pod(pod)
        del self._pods[pod]
        await found.destroy()

    async def pause(self, pod: str) -> None:
        found = self.pod(pod)
        async with found.change("paused", State.RUNNING):
            await _asked(found.sandbox.pause())
            found.state = State.PAUSED

    async def resume(self, pod: str, timeout_s: float | None) -> Info:
        """Also of one that runs: then only its time is set."""
        found = self.pod(pod)
        async with found.change("resumed", State.RUNNING, State.PAUSED):
            if found.state is State.PAUSED:
                await _asked(found.sandbox.resume())
                found.state = State.RUNNING
        if timeout_s is not None:
            await self.extend(pod, timeout_s)
        return found.info(self.name)

    async def extend(self, pod: str, timeout_s: float) -> None:
        self.pod(pod).ends_at = time.monotonic() + timeout_s

    async def snapshot(self, pod: str, kind: SnapshotKind) -> Snapshot:
        found = self.pod(pod)
        async with found.change("snapshotted", State.RUNNING, State.PAUSED):
            snapshot = await _asked(found.sandbox.snapshot(kind))
        self._snapshots[snapshot.id] = snapshot, self._repo_of(found.wish)
        return snapshot

    def _repo_of(self, wish: Wish) -> Path:
        kept = self._snapshots.get(wish.template)
        found = kept[1] if kept is not None else self.templates.find(wish.template)
        if found is None:
            raise ControlError(404, f"template {wish.template} was removed meanwhile")
        return found

    async def forget(self, template: str) -> None:
        kept = self._snapshots.pop(template, None)
        if kept is not None:
            await _asked(self.backend.remove(kept[0]))
        elif not await self.templates.remove(template):
            raise ControlError(404, f"there is no template {template}")

    async def fork(self, pod: str, wishes: list[Wish]) -> list[Info | ControlError]:
        """All or none, as the backend forks; the parent goes on."""
        parent = self.pod(pod)
        async with parent.change("forked", State.RUNNING, State.PAUSED):
            start, cpu = time.monotonic(), time.process_time()
            children = await _asked(parent.sandbox.fork(len(wishes)))
        share = 1 / max(len(children), 1)
        spent = {
            "started": time.monotonic() - start,
            "cpu_s": (time.process_time() - cpu) * share,
        }
        return [self._enter(wish, child, dict(spent)) for wish, child in zip(wishes, children, strict=True)]

    async def logs(self, pod: str) -> list[tuple[float, str]]:
        return list(self.pod(pod).log)

    async def sweep(self, label: str, value: str) -> list[str]:
        found = [name for name, pod in self._pods.items() if pod.wish.metadata.get(label) == value]
        for name in found:
            await self.kill(name)
        return found

    async def watch_time(self) -> None:
        """Ends what is over its time, scoring included; for as long as the node runs."""
        while True:
            await asyncio.sleep(SWEEP_S)
            late = time.monotonic() - SCORING_S
            for name in [name for name, pod in self._pods.items() if pod.ends_at < late]:
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
        """Seconds since each sandbox was created."""
        return {name: time.monotonic() - pod.born for name, pod in self._pods.items()}

    async def aclose(self) -> None:
        self._pods.clear()
        await self.backend.aclose()


async def _asked(doing: Awaitable[T]) -> T:
    """What a client asked of a sandbox: its failure is an answer."""
    try:
        return await doing
    except Unsupported as error:
        raise ControlError(400, str(error)) from error
    except (SandboxError, OSError) as error:
        raise ControlError(500, str(error)) from error


async def _cpu_s(sandbox: Sandbox) -> float:
    """CPU seconds that the sandbox's own processes have taken; 0 where nobody counts them."""
    try:
        return (await sandbox.usage()).cpu_s
    except Unsupported:
        return 0.0


def _spec(wish: Wish, repo: Path) -> Spec:
    return Spec(
        repo=repo,
        limits=wish.limits,
        environment=wish.environment,
        egress=wish.egress,
        labels=wish.metadata,
    )
