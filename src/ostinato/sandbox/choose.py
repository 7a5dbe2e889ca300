"""The choice of a backend: those of this machine, and engines of others by their clients.

What a machine can run is found by running it, never by looking at flags or devices.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ostinato import extras
from ostinato.extend import Registry
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Backend, MachineRefusesError, SandboxError, Spec
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.egress.setting import LettingBackend, policy
from ostinato.sandbox.foreign import settings
from ostinato.sandbox.foreign.backend import ForeignBackend
from ostinato.sandbox.foreign.engine import ForeignEngine

DEFAULT = SandboxConfig()
log = logging.getLogger(__name__)


MakeBackend = Callable[[SandboxConfig], Awaitable[Backend]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """One kind of backend, before it is known whether it works here."""

    name: str
    make: MakeBackend
    """Makes one with these settings; raises SandboxError when it clearly cannot work."""
    advice: str
    """Tells a user how to make it work."""


async def _process(config: SandboxConfig) -> Backend:
    return ProcessBackend()


async def _ns(config: SandboxConfig) -> Backend:
    _need_linux("namespaces")
    from ostinato.sandbox.backends.namespaces.backend import NsBackend  # imports Linux-only modules

    return NsBackend()


async def _landlock(config: SandboxConfig) -> Backend:
    _need_linux("Landlock sandboxes")
    from ostinato.sandbox.backends.namespaces.landlock_backend import LandlockBackend

    return LandlockBackend()


async def _e2b(config: SandboxConfig) -> Backend:
    from ostinato.sandbox.foreign.e2b import E2bEngine  # needs a library of its own

    return await _foreign(E2bEngine(os.environ))


async def _agent_sandbox(config: SandboxConfig) -> Backend:
    from ostinato.sandbox.foreign.agent_sandbox import AgentSandboxEngine  # needs a library of its own

    return await _foreign(AgentSandboxEngine(os.environ))


async def _foreign(engine: ForeignEngine) -> Backend:
    return ForeignBackend(engine, await choose_backend("auto"))


async def _containers(program: str, config: SandboxConfig) -> Backend:
    _need_linux("containers")
    _need_program(program)
    from ostinato.sandbox.backends.container.backend import ContainerBackend

    return await asyncio.to_thread(ContainerBackend, program, config)


def _need_program(name: str) -> None:
    if shutil.which(name) is None:
        raise MachineRefusesError(f"there is no {name} on the search path")


def _need_linux(what: str) -> None:
    if sys.platform != "linux":
        raise MachineRefusesError(f"{what} need Linux, this is {sys.platform}; use the process backend")


_OURS = {
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
            name="podman",
            make=partial(_containers, "podman"),
            advice="install podman and runc, on Debian also uidmap for ordinary users; with `runtime` set to "
            "`runsc` gVisor's package runsc too",
        ),
        BackendKind(
            name="docker",
            make=partial(_containers, "docker"),
            advice="install Docker, start its daemon, and let your user talk to it",
        ),
        BackendKind(name="process", make=_process, advice="install a POSIX shell at /bin/sh"),
        BackendKind(name="e2b", make=_e2b, advice=f"{extras.install('e2b')}, then {settings.E2B}"),
        BackendKind(
            name="agent-sandbox",
            make=_agent_sandbox,
            advice=f"{extras.install('agent-sandbox')}, then {settings.AGENT_SANDBOX}",
        ),
    )
}
KINDS = Registry("sandbox backend", _OURS)
"""Every backend, the preferred one first, then those of plug-ins, which `auto` never takes."""


def sandbox_backend(name: str, *, advice: str) -> Callable[[MakeBackend], MakeBackend]:
    """Return a decorator that adds a backend, for `backend = "NAME"` in `[sandbox]`.

    The function is async, gets the settings and returns a Backend, or raises MachineRefusesError where it
    cannot work here; `advice` says to a person what would help.
    """

    def add(make: MakeBackend) -> MakeBackend:
        KINDS.add(name, BackendKind(name=name, make=make, advice=advice))
        return make

    return add


_FALL_BACK_WARNINGS = {
    "ns": "no sandbox boundary on this machine, at best Landlock restricts commands: %s",
    "landlock": "no Landlock on this machine, commands run as plain processes: %s",
}


async def choose_backend(want: SandboxConfig | str = "auto") -> Backend:
    """Return a backend by its settings, or its name alone; for `auto`, namespaces, else the next best.

    A weaker one is taken only where this machine refuses the better one (MachineRefusesError), and the reason
    is logged. Raises SandboxError for a backend that does not work here, ValueError for an unknown name.
    """
    config = SandboxConfig(backend=want) if isinstance(want, str) else want
    egress = policy(config.egress)
    backend = await _choose(config)
    if egress is None:
        return backend
    try:
        return LettingBackend(backend, egress)
    except SandboxError:
        await backend.aclose()
        raise


async def _choose(config: SandboxConfig) -> Backend:
    name = config.backend
    if name != "auto" and name not in KINDS:
        raise ValueError(f"no sandbox backend {name!r}: choose auto, {', '.join(KINDS)}")
    if name != "auto":
        return await probe(KINDS[name], config)
    for name, warning in _FALL_BACK_WARNINGS.items():
        try:
            return await probe(KINDS[name], config)
        except MachineRefusesError as error:
            log.warning(warning, error)
    return await probe(KINDS["process"], config)


async def probe(kind: BackendKind, config: SandboxConfig = DEFAULT) -> Backend:
    """Return a backend after it created a sandbox and ran a command in it; raises SandboxError."""
    backend = await kind.make(config)
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
