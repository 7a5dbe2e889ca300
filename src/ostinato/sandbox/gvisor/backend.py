"""The gVisor backend: every sandbox is restored from one whose guest has just started.

run once ─► guest waits ─► checkpoint, the template ─► restore with another repository ─► enter
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from ostinato.sandbox import launch
from ostinato.sandbox.base import Capabilities, Isolation, SandboxError, SnapshotKind, Spec
from ostinato.sandbox.guests import START_S, GuestBackend
from ostinato.sandbox.gvisor import bundle
from ostinato.sandbox.gvisor.runsc import RunscMachine
from ostinato.sandbox.machine import Machine, Part
from ostinato.sandbox.once import Once
from ostinato.sandbox.wire import Wire

CAPABILITIES = Capabilities(
    isolation=Isolation.USERSPACE_KERNEL,
    snapshots=frozenset(SnapshotKind),
    fork=SnapshotKind.FULL,
    pause=True,
    limits=frozenset({"rlimit"}),
)


class GvisorBackend(GuestBackend):
    """`state`: where snapshots are kept, else in a temporary directory."""

    def __init__(self, state: Path | None = None) -> None:
        super().__init__(GvisorEngine(), state)


class GvisorEngine:
    """Machines of runsc."""

    name = "gvisor"
    capabilities = CAPABILITIES
    own_clock = False
    slow_entry = False

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="ostinato-runsc-")
        self._root: Once[Path] = Once()
        self._template: Once[Path] = Once()

    async def base(self) -> str:
        """The version of runsc: it loads only what it has written."""
        process = await asyncio.create_subprocess_exec("runsc", "--version", stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        return output.decode().partition("\n")[0]

    async def fresh(self, spec: Spec) -> Machine:
        if spec.mounts:  # a template knows no other mounts than its own
            return await self._start(spec, ["run"])
        return await self.load(await self._template.get(lambda: self._make_template(spec)), spec)

    async def load(self, place: Path, spec: Spec) -> Machine:
        return await self._start(spec, ["restore", f"--image-path={place}"])

    def parts(self, spec: Spec) -> list[Part]:
        """Nothing: the repository is mounted."""
        return []

    async def aclose(self) -> None:
        await asyncio.to_thread(self._home.cleanup)

    async def _start(self, spec: Spec, order: list[str]) -> RunscMachine:
        root = await self._root.get(lambda: asyncio.to_thread(self._write_root))
        home = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._home.name))
        await asyncio.to_thread(bundle.write_bundle, home, root, spec, sys.executable, launch.environment())
        try:
            return RunscMachine(home, order)
        except OSError as error:
            raise SandboxError(f"gVisor cannot be started ({error}): install runsc and util-linux") from error

    def _write_root(self) -> Path:
        root = Path(self._home.name, "root")
        root.mkdir()
        bundle.write_root(root)
        return root

    async def _make_template(self, spec: Spec) -> Path:
        """A machine whose guest has been started, and waits."""
        place = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._home.name))
        machine = await self._start(spec, ["run"])
        wire = Wire("")
        try:
            await machine.connect(wire)
            await wire.first(START_S)
            await machine.save(place)
        except SandboxError as error:
            raise SandboxError(f"gVisor does not run here: {error}; runsc said: {machine.why()}") from error
        finally:
            await wire.close("it is the template now")
            await machine.end()
        return place
