"""Sandboxes with a kernel of their own, over any engine (see `ostinato.sandbox.machine`).

    create    fresh machine ─► hello ─► enter ─► wake           full snapshot    quiet ─► save
    fork      quiet ─► save once, load n times, each ─► hello ─► wake

A machine is only saved between two frames: the guest has read all that was sent to it, and what it still had
to say is of an older generation for whoever listens to the copy.
"""

import asyncio
import dataclasses
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ostinato.sandbox import frames, layout, tree
from ostinato.sandbox.base import (
    Capabilities,
    Exam,
    Sandbox,
    SandboxError,
    Snapshot,
    SnapshotKind,
    Spec,
    Unsupported,
    Usage,
)
from ostinato.sandbox.exam import judge_in_process
from ostinato.sandbox.machine import Engine, Machine, Part
from ostinato.sandbox.once import Once
from ostinato.sandbox.snapshots import LAYER, Shelf, open_layer
from ostinato.sandbox.wire import LostError, Wire
from ostinato.sandbox.wired import WireSandbox

START_S = 60.0
"""How long a machine may take to answer for the first time, on a busy host."""
BASE = "base"
_PART_BYTES = 1 << 18
_TEMPLATES = 8
log = logging.getLogger(__name__)


class GuestBackend:
    """Everything but the engine. `snapshots`: where they are kept, else in a temporary directory."""

    def __init__(self, engine: Engine, snapshots: Path | None) -> None:
        self.engine = engine
        self.shelf = Shelf(engine.name, snapshots)
        self._scratch = tempfile.TemporaryDirectory(prefix=f"ostinato-{engine.name}-")
        self._sandboxes: set[GuestSandbox] = set()
        self._templates: dict[str, Once[Path]] = {}

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    async def create(self, spec: Spec) -> Sandbox:
        return await self._create(spec)

    async def _create(self, spec: Spec) -> "GuestSandbox":
        _check(self.name, spec)
        if not self.engine.slow_entry:
            return await self._twice(lambda: self._enter(spec, None))
        return await self._hatch(await self._template(spec), spec)

    async def restore(self, snapshot: Snapshot, spec: Spec) -> Sandbox:
        _check(self.name, spec)
        layer = await asyncio.to_thread(self.shelf.check, snapshot, spec)
        if snapshot.kind is SnapshotKind.FILESYSTEM:
            return await self._twice(lambda: self._enter(spec, layer))
        base = await self.engine.base()
        found = await asyncio.to_thread((snapshot.path / BASE).read_text)
        if found != base:
            raise SandboxError(
                f"{snapshot.id} was taken on the base {found}, this is {base}: take it again on this one"
            )
        return await self._hatch(snapshot.path, spec)

    async def remove(self, snapshot: Snapshot) -> None:
        await asyncio.to_thread(self.shelf.drop, snapshot.path)

    async def examine(self, exam: Exam) -> dict[str, str]:
        """The worker in a fresh sandbox, the judge beside us; what they say goes through the agent."""
        sandbox = await self._create(Spec(repo=exam.repo, limits=exam.limits))
        asks, answers = socket.socketpair()
        try:
            await sandbox.apply(exam.changes)
            working = asyncio.create_task(sandbox.work(answers, exam.variation))
            try:
                return await judge_in_process(exam, asks)
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
        await self.engine.aclose()
        await self.shelf.close()
        await asyncio.to_thread(self._scratch.cleanup)

    def forget(self, sandbox: "GuestSandbox") -> None:
        self._sandboxes.discard(sandbox)

    async def place(self) -> Path:
        """A fresh directory that lives no longer than this backend."""
        return Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch.name))

    async def hatch(self, place: Path, spec: Spec, count: int) -> list[Sandbox]:
        """`count` copies of the machine saved in `place`, or SandboxError and none."""
        found = await asyncio.gather(
            *(self._hatch(place, spec) for _ in range(count)), return_exceptions=True
        )
        failed = [each for each in found if isinstance(each, BaseException)]
        made: list[Sandbox] = [each for each in found if isinstance(each, GuestSandbox)]
        if failed:
            for sandbox in made:
                await sandbox.destroy()
            raise failed[0]
        return made

    async def _hatch(self, place: Path, spec: Spec) -> "GuestSandbox":
        async def once() -> GuestSandbox:
            return await self._wake(await self.engine.load(place, spec), spec)

        return await self._twice(once)

    async def _twice(self, make: Callable[[], Awaitable["GuestSandbox"]]) -> "GuestSandbox":
        """Engines lose one of a thousand machines while they load it, though what they load is whole."""
        try:
            return await make()
        except LostError as error:
            log.warning("%s lost a machine before it answered, and starts another: %s", self.name, error)
        try:
            return await make()
        except LostError as error:
            raise SandboxError(
                f"{self.name} lost two machines before they answered: {error}; is there memory and disk left?"
            ) from error

    async def _enter(self, spec: Spec, layer: Path | None) -> "GuestSandbox":
        parts = self.engine.parts(spec)
        if layer is not None:
            parts.append(Part(kind="layer", at="", read=lambda: _whole(layer)))
        return await self._wake(await self.engine.fresh(spec), spec, parts)

    async def _wake(self, machine: Machine, spec: Spec, parts: list[Part] | None = None) -> "GuestSandbox":
        """Say hello to a machine's guest, let it enter a sandbox if it has not, and give it an identity."""
        identity = uuid.uuid4().hex
        wire = Wire(identity, seek=True)
        try:
            await machine.connect(wire)
            wire.begin({"op": "hello"}, within_s=START_S)  # what follows need not wait for its answer
            if parts is not None:
                await _enter(wire, spec, parts)
            await wire.ask(_wake_up(identity, own_clock=self.engine.own_clock), within_s=START_S)
        except BaseException as error:
            await wire.close("the sandbox was not created")
            said = machine.why()
            await machine.end()
            if isinstance(error, LostError):
                raise LostError(f"{error}; {self.name} said: {said}") from error
            raise
        self.engine.refill(spec)
        sandbox = GuestSandbox(machine, wire, spec, identity, self)
        self._sandboxes.add(sandbox)
        return sandbox

    async def _template(self, spec: Spec) -> Path:
        """A saved machine that has entered a sandbox like `spec`, made when it is first needed."""
        key = await asyncio.to_thread(_key, spec)
        if key not in self._templates:
            while len(self._templates) >= _TEMPLATES:
                oldest = self._templates.pop(next(iter(self._templates)))
                if oldest.value is not None:
                    await asyncio.to_thread(shutil.rmtree, oldest.value, ignore_errors=True)
            self._templates[key] = Once()
        return await self._templates[key].get(lambda: self._make_template(spec))

    async def _make_template(self, spec: Spec) -> Path:
        sandbox = await self._enter(spec, None)
        try:
            return await sandbox.save()
        finally:
            await sandbox.destroy()


def _check(name: str, spec: Spec) -> None:
    if spec.egress is not None:
        raise Unsupported(name, "let anything out", "ns")
    if not spec.repo.is_dir():
        raise SandboxError(f"no repository at {spec.repo}: give a directory")
    for mount in spec.mounts:
        layout.check_mount(mount)


def _key(spec: Spec) -> str:
    """Whatever a sandbox's start depends on."""
    mounts = [(str(mount.source), mount.source.stat().st_mtime_ns, mount.target) for mount in spec.mounts]
    git = spec.repo / tree.GIT
    repo = (tree.digest(str(spec.repo)), tree.digest(str(git)) if git.is_dir() else "")
    return json.dumps([repo, mounts, dataclasses.asdict(spec.limits), sorted(spec.environment.items())])


def _whole(layer: Path) -> bytes:
    file = open_layer(layer)
    with open(file, "rb") as stream:  # noqa: PTH123
        return stream.read()


async def _enter(wire: Wire, spec: Spec, parts: Iterable[Part]) -> None:
    order = {"limits": dataclasses.asdict(spec.limits), "environment": dict(spec.environment)}
    wire.send({"id": 0, "op": "enter", "order": order, "parts": [(part.kind, part.at) for part in parts]})
    for part in parts:
        data = await asyncio.to_thread(part.read)
        for start in range(0, len(data), _PART_BYTES):
            wire.send({"id": 0, "op": "part"}, data[start : start + _PART_BYTES])
        wire.send({"id": 0, "op": "part"})
    await wire.first(START_S)


def _wake_up(identity: str, *, own_clock: bool) -> dict[str, object]:
    now = time.time() if own_clock else None
    return {"op": "wake", "name": identity, "entropy": secrets.token_hex(64), "now": now}


class GuestSandbox(WireSandbox):
    """The backend's handle on one machine."""

    def __init__(
        self, machine: Machine, wire: Wire, spec: Spec, identity: str, backend: GuestBackend
    ) -> None:
        super().__init__(wire, spec, layout.REPO)
        self.id = identity
        self._machine = machine
        self._backend = backend
        self._turn = asyncio.Lock()

    async def pause(self) -> None:
        async with self._turn:
            if not self._paused:
                await super().pause()
                await self._settle()
                await self._machine.pause()

    async def resume(self) -> None:
        async with self._turn:
            if self._paused:
                await self._machine.resume()
                self._wire.release()
                if self._backend.engine.own_clock:
                    await self._wire.ask({"op": "clock", "now": time.time()}, within_s=self._within_s)
                await super().resume()

    async def _settle(self) -> None:
        """Return when the guest has read all that was sent; what is sent from now on is held back."""
        pending = self._wire.begin({"op": "quiet"}, within_s=self._within_s)
        self._wire.hold()
        await self._wire.answer(pending)

    @asynccontextmanager
    async def _still(self) -> AsyncIterator[None]:
        """The channel is quiet: the machine may be saved."""
        async with self._turn:
            if self._paused:
                yield
                return
            try:
                await self._settle()
                self._wire.pause()
                yield
            finally:
                self._wire.resume()
                self._wire.release()

    async def save(self) -> Path:
        """Save the machine in a directory of the backend's."""
        place = await self._backend.place()
        try:
            async with self._still():
                await self._machine.save(place)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            raise
        return place

    async def apply(self, changes: Mapping[str, bytes | None]) -> None:
        """Write or, for None, delete each path; raises SandboxPathError."""
        table, body = frames.pack_files(changes)
        await self._ask("apply", body, files=table)

    async def work(self, calls: socket.socket, variation: int) -> None:
        """Let an exam's worker answer what comes from `calls`, until one of them hangs up."""
        reader, writer = await asyncio.open_connection(sock=calls)
        pending = self._wire.begin(
            {"op": "worker", "variation": variation},
            within_s=self._within_s,
            heard=lambda _, data: writer.write(data),
        )
        pending.answer.add_done_callback(lambda _: writer.close())
        try:
            while data := await reader.read(frames.CHUNK):
                self._wire.send({"id": pending.number, "op": "input"}, data)
        finally:
            writer.close()

    async def fork(self, n: int = 1) -> list[Sandbox]:
        place = await self.save()
        try:
            return await self._backend.hatch(place, self._spec, n)
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def snapshot(self, kind: SnapshotKind = SnapshotKind.FILESYSTEM) -> Snapshot:
        shelf = self._backend.shelf
        place = await asyncio.to_thread(shelf.begin)
        try:
            if kind is SnapshotKind.FULL:
                async with self._still():
                    await self._machine.save(place)
                (place / BASE).write_text(await self._backend.engine.base())
            else:
                await self._write_layer(place / LAYER)
            return await asyncio.to_thread(shelf.finish, place, kind, self._spec.repo)
        except BaseException as error:
            await asyncio.to_thread(shelf.drop, place)
            if isinstance(error, OSError):
                raise SandboxError(f"the snapshot at {place} could not be written: {error}") from error
            raise

    async def _write_layer(self, path: Path) -> None:
        file, failed = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), list[OSError]()

        def heard(_: Mapping[str, Any], body: bytes) -> None:
            try:
                frames.write_all(file, body)
            except OSError as error:
                failed.append(error)

        try:
            async with self._awake():
                await self._wire.ask({"op": "pack"}, within_s=self._within_s, heard=heard)
        finally:
            os.close(file)
        if failed:
            raise failed[0]

    @asynccontextmanager
    async def _awake(self) -> AsyncIterator[None]:
        """The machine runs, so that its agent answers, but no process besides it."""
        if not self._paused:
            await self._wire.ask({"op": "pause"}, within_s=self._within_s)
            try:
                yield
            finally:
                await self._wire.ask({"op": "resume"}, within_s=self._within_s)
            return
        async with self._turn:
            await self._machine.resume()
            self._wire.release()
            try:
                yield
            finally:
                await self._settle()
                await self._machine.pause()

    async def usage(self) -> Usage:
        if self._paused:
            async with self._awake():
                inside = await super().usage()
        else:
            inside = await super().usage()
        cpu_s, memory = await self._machine.spent()
        return dataclasses.replace(inside, cpu_s=cpu_s, memory_bytes=memory)

    async def destroy(self) -> None:
        self._backend.forget(self)
        await super().destroy()
        await self._machine.end()
