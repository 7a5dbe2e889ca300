"""The QEMU backend: one guest boots, and all others are clones of its memory.

build image ─► boot once ─► guest waits ─► stop: its memory file is the template, cached by its key
clone waits in a pool, with the template mapped ─► pages of a saved machine, devices ─► continues it
"""

import asyncio
import io
import shutil
import tarfile
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

from ostinato.sandbox.backends.environment import COMMAND_ENVIRONMENT
from ostinato.sandbox.backends.vm.backend import VmBackend
from ostinato.sandbox.backends.vm.machine import GuestPart, VirtualMachine, capabilities
from ostinato.sandbox.backends.vm.once import Once
from ostinato.sandbox.backends.vm.qemu import image, image_cache, kernel
from ostinato.sandbox.backends.vm.qemu.kvm import kvm_runs
from ostinato.sandbox.backends.vm.qemu.pool import ClonePool
from ostinato.sandbox.backends.vm.qemu.vm import Hardware, QemuMachine, ground
from ostinato.sandbox.base import Isolation, SandboxError, Spec
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.guest.vm_main import PRISTINE
from ostinato.sandbox.protocol.connection import AgentConnection

_BOOT_S = 180.0
"""The seconds that an emulated guest may take, on a busy machine, until it has loaded pytest."""
_ENVIRONMENT = {**COMMAND_ENVIRONMENT, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}  # noqa: S108
_USER = 1000


class QemuBackend(VmBackend):
    """A `VmBackend` on QEMU. Images, which take a while to make, are shared by all processes of a user.

    `memory_mb` is the memory of each guest, shared with the others until written; the repository has to fit
    into it. `pool` is the number of clones that wait, so that a fork need not start a QEMU.
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
    capabilities = capabilities(Isolation.VM)
    own_clock = True
    slow_entry = True
    takes_images = False

    def __init__(self, memory_mb: int, pool: int) -> None:
        self._images = image_cache.cache()
        self._lock: image_cache.ImageLock | None = None
        self._memory_mb = memory_mb
        self._pool = ClonePool(pool)
        self._hardware: Once[Hardware] = Once()

    async def base(self) -> str:
        hardware = await self._ready()
        return await asyncio.to_thread((hardware.directory / image_cache.WHOLE).read_text)

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
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _ready(self) -> Hardware:
        """Return the hardware with its image and booted template, made when they are first needed."""
        return await self._hardware.get(self._prepare)

    async def _prepare(self) -> Hardware:
        guest_kernel = await asyncio.to_thread(kernel.find)
        kvm = await asyncio.to_thread(kvm_runs)
        key = await asyncio.to_thread(image.key, guest_kernel, {"memory_mb": self._memory_mb, "kvm": kvm})
        hardware = Hardware(
            directory=self._images / key, kernel=guest_kernel.image, memory_mb=self._memory_mb, kvm=kvm
        )
        self._lock = await self._locked_image(hardware, guest_kernel)
        return hardware

    async def _locked_image(self, hardware: Hardware, guest_kernel: kernel.Kernel) -> image_cache.ImageLock:
        """Return the lock of an image that exists; if several processes need it, one of them makes it."""
        lock = await asyncio.to_thread(image_cache.ImageLock, hardware.directory)
        try:
            while not await asyncio.to_thread(lock.share):
                if not await asyncio.to_thread(lock.own):
                    await self._make(lock, hardware, guest_kernel)
        except BaseException:
            lock.release()
            raise
        return lock

    async def _make(
        self, lock: image_cache.ImageLock, hardware: Hardware, guest_kernel: kernel.Kernel
    ) -> None:
        part = await asyncio.to_thread(lock.begin)
        try:
            await asyncio.to_thread(image.build, part, guest_kernel, _ENVIRONMENT)
            await _boot(replace(hardware, directory=part))
            (part / image_cache.WHOLE).write_text(uuid.uuid4().hex)
            await asyncio.to_thread(lock.finish, part)
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
    """Return a tar archive of a directory's content, or of one file with the target's name."""
    if source.is_dir():
        return GuestPart(kind="tree", at=target, read=partial(_archive, source, "."))
    place, _, name = target.rpartition("/")
    return GuestPart(kind="tree", at=place, read=partial(_archive, source, name))


def _archive(source: Path, name: str) -> bytes:
    """Return a tar archive in which the sandbox's user owns all files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(source, arcname=name, filter=_as_user)
    return buffer.getvalue()


def _as_user(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = _USER
    entry.uname = entry.gname = ""
    return entry
