"""One QEMU process: a template that boots, or a clone that waits for a saved machine to become.

template   maps the memory file shared; once its guest waits: stop, write devices to a file, end
clone      maps it privately, so pages are the template's until written; waits for devices on a socket
"""

import asyncio
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ostinato.sandbox.backends.vm.machine import killed_with_us
from ostinato.sandbox.backends.vm.qemu.memory import GuestMemory, SavedPages
from ostinato.sandbox.backends.vm.qemu.qmp import QmpMonitor, greet, wait_for
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.linux import process_tree, syscalls
from ostinato.sandbox.protocol.connection import AgentConnection, ConnectionLostError

DEVICES, PAGES, GROUND = "devices", "pages", "ground"
"""The files of a saved machine. `pages`: the memory that differs from the state it was loaded in; `ground`:
the memory of that state that differs from the image, missing if it was loaded from the image."""
_STARTING = threading.Lock()
_FENCE = ("unshare", "-Urn", "--")
_COMMAND_LINE = (
    "console=ttyS0 quiet reboot=t panic=-1 mitigations=off nokaslr init_on_alloc=0 audit=0 lsm= apparmor=0"
    " psi=0 cgroup_disable=memory init_on_free=1"
)
"""`init_on_free`: free pages are zero, as in the template, and so are not saved."""
_TCG = ("-accel", "tcg,thread=single,tb-size=32", "-cpu", "Nehalem")
"""Nehalem is exactly x86-64-v2: a guest that knows fewer extensions is translated faster."""
_KVM = ("-accel", "kvm", "-cpu", "host")
_FIXED = (
    *("-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
    *("-global", "migration.send-configuration=off"),  # xen-save-devices-state writes no such section
    *("-device", "virtio-serial-pci,disable-modern=on,max_ports=2"),
    *("-device", "virtserialport,chardev=agent,nr=1"),
    *("-device", "virtio-blk-pci,disable-modern=on,drive=root"),
    *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
)
_MACHINE = "pc,usb=off,vmport=off,suppress-vmdesc=on,memory-backend=ram"
"""Devices are of virtio's first version: the state of a later one is ten times as large, and slower to load.
The machine is not `microvm`, whose only timer, the PIT, is too late for Linux to start on a busy host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware that all machines of one image share."""

    directory: Path
    """The directory of `initrd`, `root.img`, and `ram`, the template's memory."""
    kernel: Path
    memory_mb: int
    kvm: bool

    @property
    def ram(self) -> Path:
        return self.directory / "ram"

    def arguments(self, *, template: bool) -> list[str]:
        share = "on" if template else "off"
        root = (
            f"driver=raw,node-name=root,read-only=on,file.driver=file,file.filename={self.directory}/root.img"
        )
        ram = f"memory-backend-file,id=ram,size={self.memory_mb}M,mem-path={self.ram},share={share}"
        boots = ["-kernel", str(self.kernel), "-initrd", f"{self.directory}/initrd", "-append", _COMMAND_LINE]
        return [
            *(_KVM if self.kvm else _TCG),
            *("-M", _MACHINE, "-m", str(self.memory_mb), "-object", ram, "-blockdev", root, *_FIXED),
            *(boots if template else []),  # QEMU would keep them in memory
        ]


class QemuMachine:
    """A `VirtualMachine` of QEMU."""

    def __init__(
        self,
        hardware: Hardware,
        process: subprocess.Popen[bytes],
        sockets: "QemuSockets",
        said: IO[bytes],
    ) -> None:
        self._hardware = hardware
        self._process = process
        self._sockets = sockets
        self._said = said
        self._client: QmpMonitor | None = None
        self._busy = threading.Lock()  # while a thread uses what `end` closes
        self._ready = False
        self._mapped: GuestMemory | None = None
        self._ground: SavedPages | None = None
        self._stopped = False

    @classmethod
    def spawn(cls, hardware: Hardware, *, template: bool, console: Path | None = None) -> "QemuMachine":
        """Start a QEMU without waiting for it; a template boots at once. Raises SandboxError."""
        sockets, theirs = QemuSockets.pairs()
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed at its end
        try:
            process = _start(hardware, theirs, said.fileno(), template=template, console=console)
        except OSError as error:
            sockets.close()
            said.close()
            raise SandboxError(f"QEMU cannot be started ({error}): install qemu-system-x86") from error
        finally:
            theirs.close()
        return cls(hardware, process, sockets, said)

    async def _monitor(self) -> QmpMonitor:
        """Return the client of its monitor, for this event loop; raises SandboxError with QEMU's messages."""
        if self._client is None:
            await asyncio.to_thread(self._greet)
            self._client = await QmpMonitor.open(self._sockets.monitor)
        return self._client

    def _greet(self) -> None:
        """Wait for QEMU's greeting; it has mapped its memory by then."""
        if self._ready:
            return
        try:
            greet(self._sockets.monitor)
        except SandboxError as error:
            raise SandboxError(f"QEMU did not start ({error}): {self.why()}") from error
        self._ready = True

    def why(self) -> str:
        """Return the last messages of QEMU."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-500:].strip() or "QEMU said nothing"

    async def _command(self, name: str, **arguments: object) -> None:
        await (await self._monitor()).command(name, **arguments)

    def alive(self) -> bool:
        return self._process.poll() is None

    def load_ground(self, ground: SavedPages | None) -> None:
        """Prepare a clone before the machine is known that it becomes.

        Blocks; raises OSError, SandboxError.
        """
        with self._busy:
            self._greet()
            if ground is not None:
                self._memory().load(ground)
                self._ground = ground

    async def load(self, place: Path, ground: SavedPages | None) -> None:
        """Become the machine saved in `place`, with that ground, and run; called once, for a clone."""
        try:
            await asyncio.to_thread(self._become, place, ground)
        except ConnectionLostError as error:
            raise ConnectionLostError(f"{error}; it said: {self.why()}") from error

    def _become(self, place: Path, ground: SavedPages | None) -> None:
        if self._ground is None:
            self.load_ground(ground)
        with self._busy:
            if (place / GROUND).exists():
                self._memory().load(SavedPages.open(place / PAGES))
            self._feed((place / DEVICES).read_bytes())
            wait_for(self._sockets.monitor, b'"RESUME"')

    def _feed(self, devices: bytes) -> None:
        try:
            self._sockets.state.sendall(devices)
            self._sockets.state.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ConnectionLostError(f"QEMU did not take its devices' state: {error}") from error

    async def connect(self, connection: AgentConnection) -> None:
        # the connection owns it from now on, and notices when QEMU ends
        channel = socket.socket(fileno=self._sockets.agent.detach())
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=channel)

    async def pause(self) -> None:
        await self._command("stop")
        self._stopped = True

    async def resume(self) -> None:
        await self._command("cont")
        self._stopped = False

    async def save(self, place: Path) -> None:
        if not self._stopped:
            await self._command("stop")
        try:
            await self._command("xen-save-devices-state", filename=str(place / DEVICES), live=False)
            await asyncio.to_thread(self._save_pages, place)
        except OSError as error:
            raise SandboxError(f"the machine was not saved in {place}: {error}") from error
        finally:
            if not self._stopped:
                await self._command("cont")

    def _save_pages(self, place: Path) -> None:
        self._memory().save(place / PAGES, self._ground)
        if self._ground is not None:
            self._ground.link_to(place / GROUND)

    def _memory(self) -> GuestMemory:
        """Return the guest's memory, found once, since its address does not change."""
        if self._mapped is None:
            self._mapped = GuestMemory.of(self._process.pid, self._hardware.ram)
        return self._mapped

    async def freeze(self) -> None:
        """Write `devices` beside the template's memory file, for clones to start from, and end."""
        await self._command("stop")
        devices = self._hardware.directory / DEVICES
        await self._command("xen-save-devices-state", filename=str(devices), live=False)
        await self.end()

    async def usage(self) -> tuple[float, int]:
        return await asyncio.to_thread(process_tree.usage, self._process.pid)

    async def end(self) -> None:
        self._process.kill()
        if self._client is not None:
            self._client.close()
        await asyncio.to_thread(self._reap)

    def _reap(self) -> None:
        self._process.wait()
        with self._busy:
            self._sockets.close()
            self._said.close()


def ground(place: Path, known: SavedPages | None) -> SavedPages | None:
    """Return the pages that a clone needs before those of the machine saved there; None: only the image's.

    They are often the `known` ones. Raises OSError, SandboxError.
    """
    for name in (GROUND, PAGES):
        with suppress(FileNotFoundError):
            return SavedPages.open(place / name, known)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuSockets:
    """One end of each connection with a QEMU."""

    agent: socket.socket
    monitor: socket.socket
    state: socket.socket
    """The devices' state of the machine that a clone becomes."""

    @classmethod
    def pairs(cls) -> "tuple[QemuSockets, QemuSockets]":
        made = [socket.socketpair() for _ in range(3)]
        ours, theirs = (cls(agent=a, monitor=m, state=s) for a, m, s in zip(*made, strict=True))
        return ours, theirs

    def close(self) -> None:
        for each in (self.agent, self.monitor, self.state):
            each.close()


@contextmanager
def _small_pages() -> Iterator[None]:
    """Deny huge pages to processes that are started meanwhile, which inherit this process' setting."""
    with _STARTING:
        before = syscalls.allow_huge_pages(False)
        try:
            yield
        finally:
            syscalls.allow_huge_pages(before)


def _start(
    hardware: Hardware, theirs: QemuSockets, said: int, *, template: bool, console: Path | None
) -> subprocess.Popen[bytes]:
    agent, monitor, state = (each.fileno() for each in (theirs.agent, theirs.monitor, theirs.state))
    with _small_pages():  # huge ones would be a tenth of its memory
        return subprocess.Popen(
            [
                *(*killed_with_us(), *_FENCE, "qemu-system-x86_64", *hardware.arguments(template=template)),
                *("-chardev", f"socket,id=agent,fd={agent}", "-chardev", f"socket,id=monitor,fd={monitor}"),
                *("-mon", "chardev=monitor,mode=control"),
                *("-serial", "null" if console is None else f"file:{console}"),
                *([] if template else ["-incoming", f"fd:{state}"]),
            ],
            pass_fds=(agent, monitor, state),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
