"""One QEMU process: a template that boots, or a clone that waits for what it is to become.

template   maps the memory file shared; once its guest waits: stop, devices to a file, end
clone      maps it privately: pages are the template's until they are written
"""

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ostinato.sandbox import family
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.machine import tied
from ostinato.sandbox.qemu import memory
from ostinato.sandbox.qemu.qmp import Monitor
from ostinato.sandbox.wire import Wire

DEVICES, PAGES = "devices", "pages"
_FENCE = ("unshare", "-Urn", "--")
_COMMAND_LINE = (
    "console=ttyS0 quiet reboot=t panic=-1 mitigations=off nokaslr init_on_alloc=0 audit=0 lsm= apparmor=0"
)
_TCG = ("-accel", "tcg,thread=single,tb-size=32", "-cpu", "Nehalem")
"""Nehalem is x86-64-v2 and no more: a guest that knows fewer extensions is translated faster."""
_KVM = ("-accel", "kvm", "-cpu", "host")
_FIXED = (
    *("-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
    *("-global", "migration.send-configuration=off"),  # xen-save-devices-state writes no such section
    *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
)
_MACHINE = "pc,usb=off,vmport=off,suppress-vmdesc=on,memory-backend=ram"
"""Not `microvm`: its only timer is the PIT, which on a busy machine comes too late for Linux to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What all machines of one image have alike."""

    directory: Path
    """With `initrd`, `root.img`, and `ram`, the template's memory."""
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
        return [
            *(_KVM if self.kvm else _TCG),
            *("-M", _MACHINE, "-m", str(self.memory_mb), "-object", ram, *_FIXED),
            *("-kernel", str(self.kernel), "-initrd", f"{self.directory}/initrd", "-append", _COMMAND_LINE),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,nr=1"),
            *("-blockdev", root, "-device", "virtio-blk-pci,drive=root"),
            *([] if template else ["-incoming", "defer"]),
        ]


class QemuMachine:
    """See `Machine`."""

    def __init__(
        self,
        hardware: Hardware,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        control: socket.socket,
        said: IO[bytes],
    ) -> None:
        self._hardware = hardware
        self._process = process
        self._channel: socket.socket | None = channel
        self._control = control
        self._said = said
        self._client: Monitor | None = None
        self._stopped = False

    @classmethod
    def spawn(cls, hardware: Hardware, *, template: bool, console: Path | None = None) -> "QemuMachine":
        """Start a QEMU and do not wait for it; a template boots at once. Raises SandboxError."""
        (channel, agent), (control, monitor) = socket.socketpair(), socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed at its end
        with agent, monitor:
            try:
                process = _start(hardware, agent, monitor, said.fileno(), template=template, console=console)
            except OSError as error:
                for each in (channel, control, said):
                    each.close()
                raise SandboxError(f"QEMU cannot be started ({error}): install qemu-system-x86") from error
        return cls(hardware, process, channel, control, said)

    async def _monitor(self) -> Monitor:
        """Its protocol, in the event loop that first needs it; raises SandboxError with what QEMU said."""
        if self._client is None:
            try:
                self._client = await Monitor.open(self._control)
            except SandboxError as error:
                raise SandboxError(f"QEMU did not start ({error}): {self.why()}") from error
        return self._client

    def why(self) -> str:
        """The last that QEMU said."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-500:].strip() or "QEMU said nothing"

    async def _command(self, name: str, **arguments: object) -> None:
        await (await self._monitor()).command(name, **arguments)

    def alive(self) -> bool:
        return self._process.poll() is None

    async def load(self, place: Path) -> None:
        """Become what was saved in `place`, and run; for a clone, once."""
        monitor = await self._monitor()  # before that it may not have mapped its memory
        pages = place / PAGES
        if pages.exists():
            await asyncio.to_thread(memory.load, self._process.pid, self._hardware.ram, pages)
        await monitor.command("migrate-set-capabilities", capabilities=[_EVENTS])
        await monitor.command("migrate-incoming", uri=f"file:{place / DEVICES}")
        await monitor.migrated()

    async def connect(self, wire: Wire) -> None:
        channel, self._channel = self._channel, None  # the connection's from now on: it hears when QEMU ends
        await asyncio.get_running_loop().create_unix_connection(lambda: wire, sock=channel)

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
            await asyncio.to_thread(memory.save, self._process.pid, self._hardware.ram, place / PAGES)
        except OSError as error:
            raise SandboxError(f"the machine was not saved in {place}: {error}") from error
        finally:
            if not self._stopped:
                await self._command("cont")

    async def freeze(self) -> None:
        """Make a template's memory file and `devices` what clones start from, and end."""
        await self._command("stop")
        devices = self._hardware.directory / DEVICES
        await self._command("xen-save-devices-state", filename=str(devices), live=False)
        await self.end()

    async def spent(self) -> tuple[float, int]:
        return await asyncio.to_thread(family.spent, self._process.pid)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        if self._client is not None:
            self._client.close()
        for each in (self._control, self._channel, self._said):
            if each is not None:
                each.close()
        await asyncio.to_thread(self._process.wait)


_EVENTS = {"capability": "events", "state": True}


def _start(
    hardware: Hardware,
    agent: socket.socket,
    monitor: socket.socket,
    said: int,
    *,
    template: bool,
    console: Path | None,
) -> subprocess.Popen[bytes]:
    fds: Sequence[int] = (agent.fileno(), monitor.fileno())
    return subprocess.Popen(
        [
            *(*tied(), *_FENCE, "qemu-system-x86_64", *hardware.arguments(template=template)),
            *("-chardev", f"socket,id=agent,fd={fds[0]}", "-chardev", f"socket,id=monitor,fd={fds[1]}"),
            *("-mon", "chardev=monitor,mode=control"),
            *("-serial", "null" if console is None else f"file:{console}"),
        ],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )
