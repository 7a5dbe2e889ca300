"""The choice of a backend: those of this machine, and engines of others by their clients.

What a machine can run is found by running it, never by looking at flags or devices.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Backend, SandboxError, Spec
from ostinato.sandbox.foreign import settings
from ostinato.sandbox.foreign.backend import ForeignBackend
from ostinato.sandbox.foreign.engine import ForeignEngine

KERNEL_ADVICE = (
    "in an empty directory: apt-get download busybox-static linux-image-6.1.0-NN-cloud-amd64 (the newest), "
    "then dpkg-deb -x each to /usr/local/lib/ostinato/vm, or ~/.local/share/ostinato/vm"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """One kind of backend, before it is known whether it works here."""

    name: str
    make: Callable[[Path | None], Awaitable[Backend]]
    """Makes one, given the directory for its snapshots; raises SandboxError when it clearly cannot work."""
    advice: str
    """Tells a user how to make it work."""


async def _process(snapshots: Path | None) -> Backend:
    return ProcessBackend(snapshots=snapshots)


async def _ns(snapshots: Path | None) -> Backend:
    _need_linux("namespaces")
    from ostinato.sandbox.backends.namespaces.backend import NsBackend  # imports Linux-only modules

    return NsBackend(snapshots)


async def _landlock(snapshots: Path | None) -> Backend:
    _need_linux("Landlock sandboxes")
    from ostinato.sandbox.backends.namespaces.landlock_backend import LandlockBackend

    return LandlockBackend(snapshots)


async def _gvisor(snapshots: Path | None) -> Backend:
    _need_linux("gVisor's sandboxes")
    _need_program("runsc")
    from ostinato.sandbox.backends.vm.gvisor.backend import GvisorBackend

    return GvisorBackend(snapshots)


async def _qemu(snapshots: Path | None) -> Backend:
    _need_linux("QEMU's sandboxes")
    _need_program("qemu-system-x86_64")
    from ostinato.sandbox.backends.vm.qemu.backend import QemuBackend

    return QemuBackend(snapshots)


async def _e2b(snapshots: Path | None) -> Backend:
    from ostinato.sandbox.foreign.e2b import E2bEngine  # needs a library of its own

    return await _foreign(E2bEngine(os.environ), snapshots)


async def _agent_sandbox(snapshots: Path | None) -> Backend:
    from ostinato.sandbox.foreign.agent_sandbox import AgentSandboxEngine  # needs a library of its own

    return await _foreign(AgentSandboxEngine(os.environ), snapshots)


async def _foreign(engine: ForeignEngine, snapshots: Path | None) -> Backend:
    return ForeignBackend(engine, await choose_backend("auto"), snapshots)


def _need_program(name: str) -> None:
    if shutil.which(name) is None:
        raise SandboxError(f"there is no {name} on the search path")


def _need_linux(what: str) -> None:
    if sys.platform != "linux":
        raise SandboxError(f"{what} need Linux, this is {sys.platform}; use the process backend")


KINDS = {
    kind.name: kind
    for kind in (
        BackendKind(
            name="ns",
            make=_ns,
            advice="allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0, in Docker --security-opt seccomp=unconfined",
        ),
        BackendKind(
            name="landlock",
            make=_landlock,
            advice="boot Linux 5.13 or later with `landlock` in its lsm= list",
        ),
        BackendKind(
            name="gvisor",
            make=_gvisor,
            advice="install runsc and util-linux; on Debian 12 from the backports: "
            "apt-get install -t bookworm-backports runsc",
        ),
        BackendKind(
            name="qemu",
            make=_qemu,
            advice="install QEMU 10 or later, e2fsprogs and util-linux; on Debian 12 from the backports: "
            "apt-get install -t bookworm-backports qemu-system-x86; for the guest's kernel, " + KERNEL_ADVICE,
        ),
        BackendKind(name="process", make=_process, advice="install a POSIX shell at /bin/sh"),
        BackendKind(name="e2b", make=_e2b, advice="pip install 'ostinato[e2b]', then " + settings.E2B),
        BackendKind(
            name="agent-sandbox",
            make=_agent_sandbox,
            advice="pip install 'ostinato[agent-sandbox]', then " + settings.AGENT_SANDBOX,
        ),
    )
}
"""Every backend, the preferred one first."""


_FALL_BACK_WARNINGS = {
    "ns": "no sandbox boundary on this machine, at best Landlock restricts commands: %s",
    "landlock": "no Landlock on this machine, commands run as plain processes: %s",
}


async def choose_backend(want: str = "auto", snapshots: Path | None = None) -> Backend:
    """Return a backend by its name; for `auto`, namespaces where they work, else the next best.

    The reason for falling back is logged. `snapshots` is the directory for its snapshots, by default a
    temporary one that ends with the backend. Raises SandboxError for a backend that does not work here,
    ValueError for an unknown name.
    """
    if want != "auto" and want not in KINDS:
        raise ValueError(f"no sandbox backend {want!r}: choose auto, {', '.join(KINDS)}")
    if want != "auto":
        return await probe(KINDS[want], snapshots)
    for name, warning in _FALL_BACK_WARNINGS.items():
        try:
            return await probe(KINDS[name], snapshots)
        except SandboxError as error:
            log.warning(warning, error)
    return await probe(KINDS["process"], snapshots)


async def probe(kind: BackendKind, snapshots: Path | None = None) -> Backend:
    """Return a backend after it created a sandbox and ran a command in it; raises SandboxError."""
    backend = await kind.make(snapshots)
    try:
        with tempfile.TemporaryDirectory() as repo:
            sandbox = await backend.create(Spec(repo=Path(repo)))
            result = await sandbox.exec("echo works > here && cat here")
            await sandbox.destroy()
        if result.output != "works\n":
            raise SandboxError(f"a command in a sandbox failed: {result.output!r}; use the process backend")
    except BaseException:
        await backend.aclose()
        raise
    return backend
