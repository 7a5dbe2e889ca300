"""The gVisor backend: every sandbox is restored from one whose guest has just started.

run once ─► guest waits ─► checkpoint, the template ─► restore with another repository ─► enter

When the last two sandboxes had the same repository, an empty one for it is made ahead, for the next.
"""

import asyncio
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ostinato.sandbox.backends.environment import command_environment
from ostinato.sandbox.backends.vm.backend import START_S, VmBackend
from ostinato.sandbox.backends.vm.gvisor import bundle
from ostinato.sandbox.backends.vm.gvisor.runsc import RunscMachine
from ostinato.sandbox.backends.vm.machine import GuestPart, VirtualMachine, capabilities
from ostinato.sandbox.backends.vm.once import Once
from ostinato.sandbox.base import Isolation, SandboxError, Spec
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.guest.vm_main import IMAGE, PRISTINE
from ostinato.sandbox.protocol.connection import AgentConnection


class GvisorBackend(VmBackend):
    """A `VmBackend` on gVisor."""

    def __init__(self, snapshots: Path | None = None, *, resolve: Resolve | None = None) -> None:
        super().__init__(GvisorEngine(), snapshots, resolve)


_Key = tuple[tuple[str, int, int, str], ...]


def _key(spec: Spec) -> _Key:
    """Return what is mounted, with device and inode, since another file may get the same name."""
    shown = [(spec.repo, PRISTINE), *((mount.source, mount.target) for mount in spec.mounts)]
    shown += [(spec.image.root, IMAGE)] if spec.image is not None else []
    files = [(path.absolute(), path.stat(), target) for path, target in shown]
    return tuple((str(path), status.st_dev, status.st_ino, target) for path, status, target in files)


class GvisorEngine:
    """Machines of runsc."""

    name = "gvisor"
    capabilities = capabilities(Isolation.USERSPACE_KERNEL)
    own_clock = False
    slow_entry = False
    takes_images = True

    def __init__(self) -> None:
        self._home = Scratch("runsc")
        self._root: Once[Path] = Once()
        self._template: Once[Path] = Once()
        self._spare: tuple[_Key, RunscMachine] | None = None
        self._last: _Key | None = None

    async def base(self) -> str:
        """Return the version of runsc, which loads only what the same version has saved."""
        process = await asyncio.create_subprocess_exec("runsc", "--version", stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        return output.decode().partition("\n")[0]

    async def fresh(self, spec: Spec) -> VirtualMachine:
        if spec.mounts or spec.image is not None:  # a template knows no other mounts than its own
            return await self._begun(spec, None)
        return await self.load(await self._template.get(lambda: self._make_template(spec)), spec)

    async def load(self, place: Path, spec: Spec) -> VirtualMachine:
        return await self._begun(spec, place)

    async def _begun(self, spec: Spec, image: Path | None) -> RunscMachine:
        await self._root.get(lambda: asyncio.to_thread(self._write_root))
        try:
            machine = await self._take(spec) or self._empty(spec)
        except OSError as error:
            raise SandboxError(f"nothing can be made ready for gVisor: {error}") from error
        machine.begin(image)
        return machine

    async def _take(self, spec: Spec) -> RunscMachine | None:
        """Return the spare machine if it fits; end it when two sandboxes in a row needed another one."""
        if self._spare is None:
            return None
        (key, machine), wanted = self._spare, _key(spec)
        if key == wanted and machine.alive():
            self._spare = None
            return machine
        if self._last == wanted:
            await self._drop_spare()
        return None

    def refill(self, spec: Spec) -> None:
        with suppress(OSError, SandboxError):  # raised again when a sandbox needs the machine
            last, self._last = self._last, _key(spec)
            if self._spare is None and self._last == last:
                self._spare = last, self._empty(spec)

    async def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare[1].end()

    def parts(self, spec: Spec) -> list[GuestPart]:
        """Return no parts, since the repository is mounted."""
        return []

    async def aclose(self) -> None:
        await self._drop_spare()
        await asyncio.to_thread(self._home.close)

    def _empty(self, spec: Spec) -> RunscMachine:
        assert self._root.value is not None
        home = Path(tempfile.mkdtemp(dir=self._home.path))
        bundle.write_bundle(home, self._root.value, spec, sys.executable, command_environment())
        try:
            return RunscMachine(home)
        except OSError as error:
            raise SandboxError(f"gVisor cannot be started ({error}): install runsc and util-linux") from error

    def _write_root(self) -> Path:
        root = Path(self._home.path, "root")
        root.mkdir()
        bundle.write_root(root)
        return root

    async def _make_template(self, spec: Spec) -> Path:
        """Save a machine whose guest has been started and waits; return the directory."""
        place = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._home.path))
        machine = await self._begun(spec, None)
        connection = AgentConnection("")
        try:
            await machine.connect(connection)
            await connection.wait_until_ready(START_S)
            await machine.save(place)
        except SandboxError as error:
            raise SandboxError(f"gVisor does not run here: {error}; runsc said: {machine.why()}") from error
        finally:
            await connection.close("it is the template now")
            await machine.end()
        return place
