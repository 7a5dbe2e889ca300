"""The QEMU backend: one guest boots, all others are clones of its memory.

build image ─► boot once ─► guest waits ─► stop: its memory file is the template, kept by its key
clone waiting in a pool, its template read ─► what a saved machine has otherwise, devices ─► it goes on there
"""

import asyncio
import io
import shutil
import tarfile
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

from ostinato.sandbox.backends.process.backend import COMMAND_ENVIRONMENT
from ostinato.sandbox.backends.vm.backend import VmBackend
from ostinato.sandbox.backends.vm.machine import GuestPart, VirtualMachine
from ostinato.sandbox.backends.vm.once import Once
from ostinato.sandbox.backends.vm.qemu import image, kept, kernel
from ostinato.sandbox.backends.vm.qemu.kvm import kvm_runs
from ostinato.sandbox.backends.vm.qemu.pool import ClonePool
from ostinato.sandbox.backends.vm.qemu.vm import Hardware, QemuMachine, ground
from ostinato.sandbox.base import Capabilities, Isolation, SandboxError, SnapshotKind, Spec
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.guest.vm_main import PRISTINE
from ostinato.sandbox.protocol.connection import AgentConnection

CAPABILITIES = Capabilities(
    isolation=Isolation.VM,
    snapshots=frozenset(SnapshotKind),
    fork=SnapshotKind.FULL,
    pause=True,
    egress=frozenset({"proxy"}),
    limits=frozenset({"rlimit"}),
)
_BOOT_S = 180.0
"""A guest translated on a busy machine, until pytest is loaded in it."""
_ENVIRONMENT = {**COMMAND_ENVIRONMENT, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}  # noqa: S108
_USER = 1000


class QemuBackend(VmBackend):
    """See `VmBackend`. Images, which take a while to make, are kept in the user's cache for every process
    that comes.

    `memory_mb`: of each guest, shared with the others until written; its repository has to fit in there.
    `pool`: clones that wait, so that a fork need not start a QEMU.
    """

    def __init__(
        self,
        snapshots: Path | None = None,
        *,
        memory_mb: int = 256,
        pool: int = 2,
        resolve: Resolve | None = None,
    ) -> None:
        super().__init__(QemuEngine(memory_mb, pool), snapshots, resolve)


class QemuEngine:
    """Machines of QEMU."""

    name = "qemu"
    capabilities = CAPABILITIES
    own_clock = True
    slow_entry = True

    def __init__(self, memory_mb: int, pool: int) -> None:
        self._images = kept.cache()
        self._claim: kept.ImageLock | None = None
        self._memory_mb = memory_mb
        self._pool = ClonePool(pool)
        self._hardware: Once[Hardware] = Once()

    async def base(self) -> str:
        hardware = await self._ready()
        return await asyncio.to_thread((hardware.directory / kept.WHOLE).read_text)

    async def fresh(self, spec: Spec) -> VirtualMachine:
        return await self.load((await self._ready()).directory, spec)

    async def load(self, place: Path, spec: Spec) -> VirtualMachine:
        hardware = await self._ready()
        machine: QemuMachine | None = None
        try:
            under = await asyncio.to_thread(ground, place, self._pool.last)
            machine = await self._pool.take(under) or QemuMachine.spawn(hardware, template=False)
            await machine.load(place, under)
        except BaseException as error:
            if machine is not None:
                await machine.end()
            if isinstance(error, OSError):
                raise SandboxError(f"the machine saved in {place} cannot be read: {error}") from error
            raise
        return machine

    def refill(self, spec: Spec) -> None:
        if self._hardware.value is not None:
            self._pool.fill(self._hardware.value)

    def parts(self, spec: Spec) -> list[GuestPart]:
        trees = [(spec.repo, PRISTINE), *((mount.source, mount.target) for mount in spec.mounts)]
        return [_part(source, target) for source, target in trees]

    async def aclose(self) -> None:
        await self._pool.aclose()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    async def _ready(self) -> Hardware:
        """The image and its booted template, made when they are first needed."""
        return await self._hardware.get(self._prepare)

    async def _prepare(self) -> Hardware:
        found = await asyncio.to_thread(kernel.find)
        kvm = await asyncio.to_thread(kvm_runs)
        key = await asyncio.to_thread(image.key, found, {"memory_mb": self._memory_mb, "kvm": kvm})
        directory = self._images / key
        hardware = Hardware(directory=directory, kernel=found.image, memory_mb=self._memory_mb, kvm=kvm)
        self._claim = await self._claimed(hardware, found)
        return hardware

    async def _claimed(self, hardware: Hardware, found: kernel.Kernel) -> kept.ImageLock:
        """That image, made if nobody has: of all processes that ask at the same time, one makes it."""
        claim = await asyncio.to_thread(kept.ImageLock, hardware.directory)
        try:
            while not await asyncio.to_thread(claim.share):
                if not await asyncio.to_thread(claim.own):
                    await self._make(claim, hardware, found)
        except BaseException:
            claim.release()
            raise
        return claim

    async def _make(self, claim: kept.ImageLock, hardware: Hardware, found: kernel.Kernel) -> None:
        part = await asyncio.to_thread(claim.begin)
        try:
            await asyncio.to_thread(image.build, part, found, _ENVIRONMENT)
            await _boot(replace(hardware, directory=part))
            (part / kept.WHOLE).write_text(uuid.uuid4().hex)
            await asyncio.to_thread(claim.finish, part)
        except OSError as error:
            raise SandboxError(f"no image for guests in {self._images}: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


async def _boot(hardware: Hardware) -> None:
    console = hardware.directory / "console"
    machine = QemuMachine.spawn(hardware, template=True, console=console)
    connection = AgentConnection("", seek=True)
    try:
        await machine.connect(connection)
        await connection.wait_until_ready(_BOOT_S)
        await machine.freeze()
    except SandboxError as error:
        said = console.read_text(errors="replace")[-1000:].strip() if console.exists() else ""
        raise SandboxError(f"the guest did not boot: {error}; its console said: {said}") from error
    finally:
        await connection.close("it is the template now")
        await machine.end()


def _part(source: Path, target: str) -> GuestPart:
    """A tar of a directory's content, or of one file under the target's name."""
    if source.is_dir():
        return GuestPart(kind="tree", at=target, read=partial(_archive, source, "."))
    place, _, name = target.rpartition("/")
    return GuestPart(kind="tree", at=place, read=partial(_archive, source, name))


def _archive(source: Path, name: str) -> bytes:
    """As the sandbox's user owns it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(source, arcname=name, filter=_as_user)
    return buffer.getvalue()


def _as_user(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = _USER
    entry.uname = entry.gname = ""
    return entry
