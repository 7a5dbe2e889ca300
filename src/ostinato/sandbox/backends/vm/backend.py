"""Sandboxes with a kernel of their own, over any engine (see `ostinato.sandbox.backends.vm.machine`).

    create    fresh machine ─► hello ─► enter ─► wake           full snapshot    quiet ─► save
    fork      quiet ─► save once, load n times, each ─► hello ─► wake

A machine is only saved between two frames, when the guest has read all that was sent to it. Frames that it
had not sent yet belong to an older generation than the one of a copy's backend, which drops them.
"""

import asyncio
import dataclasses
import json
import logging
import secrets
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from ostinato.sandbox.backends.agent_sandbox import all_or_none
from ostinato.sandbox.backends.environment import spec_environment
from ostinato.sandbox.backends.vm.machine import GuestPart, VirtualMachine, VmEngine
from ostinato.sandbox.backends.vm.once import Once
from ostinato.sandbox.backends.vm.sandbox import BASE, VmSandbox
from ostinato.sandbox.base import (
    Capabilities,
    Exam,
    Sandbox,
    SandboxError,
    Snapshot,
    SnapshotKind,
    Spec,
    Unsupported,
)
from ostinato.sandbox.egress.frame_transport import FrameRoute
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.exam.judged.host import judged_by_process
from ostinato.sandbox.files import rootfs, tree
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.files.snapshots import SnapshotStore, open_layer
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection, ConnectionLostError

START_S = 60.0
"""The seconds that a machine may take for its first response on a busy host."""
_PART_BYTES = 1 << 18
_TEMPLATES = 8
log = logging.getLogger(__name__)


class VmBackend:
    """A backend on any engine.

    `snapshots` is the directory for snapshots, by default a temporary one that ends with the backend.
    `resolve` looks up the names of hosts for sandboxes, by default as the system does.
    """

    def __init__(self, engine: VmEngine, snapshots: Path | None, resolve: Resolve | None) -> None:
        self.engine = engine
        self._resolve = resolve
        self.snapshot_store = SnapshotStore(engine.name, snapshots)
        self._scratch = Scratch(engine.name)
        self._sandboxes: set[VmSandbox] = set()
        self._templates: dict[str, Once[Path]] = {}

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    async def create(self, spec: Spec) -> Sandbox:
        return await self._create(spec)

    async def _create(self, spec: Spec) -> VmSandbox:
        _check(self.engine, spec)
        if not self.engine.slow_entry:
            return await self._with_retry(lambda: self._enter(spec, None))
        return await self._clone(await self._template(spec), spec)

    async def restore(self, snapshot: Snapshot, spec: Spec) -> Sandbox:
        _check(self.engine, spec)
        layer = await asyncio.to_thread(self.snapshot_store.check, snapshot, spec)
        if snapshot.kind is SnapshotKind.FILESYSTEM:
            return await self._with_retry(lambda: self._enter(spec, layer))
        base = await self.engine.base()
        saved_on = await asyncio.to_thread((snapshot.path / BASE).read_text)
        if saved_on != base:
            raise SandboxError(
                f"{snapshot.id} was taken on the base {saved_on}, this is {base}: take it again on this one"
            )
        return await self._clone(snapshot.path, spec)

    async def remove(self, snapshot: Snapshot) -> None:
        await asyncio.to_thread(self.snapshot_store.drop, snapshot.path)

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        """Hold an exam with each run's worker in a fresh sandbox; its calls go through the agent."""
        return await judged_by_process(exam, lambda variation: self._working(exam, variation))

    @asynccontextmanager
    async def _working(self, exam: Exam, variation: int) -> AsyncIterator[socket.socket]:
        """Yield the socket of a worker in a fresh sandbox (see `exam.judged.host.WorkerFactory`)."""
        sandbox = await self._create(Spec(repo=exam.repo, limits=exam.limits))
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
        await self.engine.aclose()
        await self.snapshot_store.close()
        await asyncio.to_thread(self._scratch.close)

    def forget(self, sandbox: VmSandbox) -> None:
        self._sandboxes.discard(sandbox)

    async def place(self) -> Path:
        """Return a fresh directory that is removed with this backend."""
        return Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch.path))

    async def clone(self, place: Path, spec: Spec, count: int) -> list[Sandbox]:
        """Return `count` copies of the machine saved in `place`; an error leaves none of them."""
        return await all_or_none(self._clone(place, spec) for _ in range(count))

    async def _clone(self, place: Path, spec: Spec) -> VmSandbox:
        async def once() -> VmSandbox:
            return await self._wake(await self.engine.load(place, spec), spec)

        return await self._with_retry(once)

    async def _with_retry(self, make: Callable[[], Awaitable[VmSandbox]]) -> VmSandbox:
        """Make a sandbox, with a second try: engines lose one in a thousand machines while they load it."""
        try:
            return await make()
        except ConnectionLostError as error:
            log.warning("%s lost a machine before it responded, and starts another: %s", self.name, error)
        try:
            return await make()
        except ConnectionLostError as error:
            raise SandboxError(
                f"{self.name} lost two machines before they responded: {error}; is memory and disk left?"
            ) from error

    async def _enter(self, spec: Spec, layer: Path | None) -> VmSandbox:
        parts = self.engine.parts(spec)
        if layer is not None:
            parts.append(GuestPart(kind="layer", at="", read=lambda: _whole(layer)))
        return await self._wake(await self.engine.fresh(spec), spec, parts)

    async def _wake(
        self, machine: VirtualMachine, spec: Spec, parts: list[GuestPart] | None = None
    ) -> VmSandbox:
        """Connect to a machine's guest, let it enter a sandbox if it has not, and give it an identity."""
        identity = uuid.uuid4().hex
        connection, route = AgentConnection(identity, seek=True), None
        try:
            if spec.egress is not None:
                route = FrameRoute(spec.egress, identity, self._resolve, connection)
            await machine.connect(connection)
            connection.send_request({"op": "hello"}, within_s=START_S)  # no need to wait for the response
            if parts is not None:
                await _enter(connection, spec, parts)
            await _wake_guest(connection, identity, spec, route, own_clock=self.engine.own_clock)
        except BaseException as error:
            if route is not None:
                await route.aclose()
            await connection.close("the sandbox was not created")
            said = machine.why()
            await machine.end()
            if isinstance(error, ConnectionLostError):
                raise ConnectionLostError(f"{error}; {self.name} said: {said}") from error
            raise
        self.engine.refill(spec)
        sandbox = VmSandbox(machine, connection, spec, route, identity=identity, backend=self)
        self._sandboxes.add(sandbox)
        return sandbox

    async def _template(self, spec: Spec) -> Path:
        """Return a saved machine that has entered a sandbox like `spec`, made when it is first needed.

        It has no egress; a copy of it gets its own when it wakes.
        """
        key = await asyncio.to_thread(_key, spec)
        if key not in self._templates:
            while len(self._templates) >= _TEMPLATES:
                oldest = self._templates.pop(next(iter(self._templates)))
                if oldest.value is not None:
                    await asyncio.to_thread(shutil.rmtree, oldest.value, ignore_errors=True)
            self._templates[key] = Once()
        return await self._templates[key].get(lambda: self._make_template(spec))

    async def _make_template(self, spec: Spec) -> Path:
        sandbox = await self._enter(dataclasses.replace(spec, egress=None), None)
        try:
            return await sandbox.save()
        finally:
            await sandbox.destroy()


def _check(engine: VmEngine, spec: Spec) -> None:
    if spec.image is not None and not engine.takes_images:
        raise Unsupported(engine.name, "have an image as its root", "ns or gvisor")
    if spec.egress is not None and spec.egress.transparent:
        what = "redirect connections of programs that know no proxy"
        raise Unsupported(engine.name, what, "ns, or leave `transparent` off for a proxy in HTTP_PROXY")
    if not spec.repo.is_dir():
        raise SandboxError(f"no repository at {spec.repo}: give a directory")
    for mount in spec.mounts:
        rootfs.check_mount(mount)
    if spec.image is not None:
        rootfs.check_image(spec.image)


def _key(spec: Spec) -> str:
    """Return a text that differs when anything differs that a sandbox's start depends on."""
    mounts = [(str(mount.source), mount.source.stat().st_mtime_ns, mount.target) for mount in spec.mounts]
    git = spec.repo / tree.GIT
    repo = (tree.digest(str(spec.repo)), tree.digest(str(git)) if git.is_dir() else "")
    return json.dumps([repo, mounts, dataclasses.asdict(spec.limits), sorted(spec.environment.items())])


def _whole(layer: Path) -> bytes:
    file = open_layer(layer)
    with open(file, "rb") as stream:  # noqa: PTH123
        return stream.read()


async def _enter(connection: AgentConnection, spec: Spec, parts: Iterable[GuestPart]) -> None:
    order = {
        "limits": dataclasses.asdict(spec.limits),
        "environment": spec_environment(spec),
        "workdir": None if spec.image is None else spec.image.workdir,
    }
    connection.send(
        {"id": 0, "op": "enter", "order": order, "parts": [(part.kind, part.at) for part in parts]}
    )
    for part in parts:
        data = await asyncio.to_thread(part.read)
        for start in range(0, len(data), _PART_BYTES):
            connection.send({"id": 0, "op": "part"}, data[start : start + _PART_BYTES])
        connection.send({"id": 0, "op": "part"})
    await connection.wait_until_ready(START_S)


async def _wake_guest(
    connection: AgentConnection, identity: str, spec: Spec, route: FrameRoute | None, *, own_clock: bool
) -> None:
    """Tell a guest its identity and the proxy of its egress."""
    wake = {
        "op": "wake",
        "name": identity,
        "entropy": secrets.token_hex(64),
        "now": time.time() if own_clock else None,
        "door": None if route is None else route.forwarder_settings(spec.environment),
    }
    trust = b"" if route is None else await asyncio.to_thread(route.bundle)
    for start in range(0, len(trust), frames.CHUNK):
        connection.send({"id": 0, "op": "trust"}, trust[start : start + frames.CHUNK])
    await connection.request(wake, within_s=START_S)
