"""The choice of a backend, servers of sandboxes among them: our own and those of others."""

import os
from collections.abc import Mapping
from pathlib import Path

from ostinato.fleet.foreign import settings
from ostinato.fleet.foreign.backend import ForeignBackend
from ostinato.fleet.foreign.engine import ForeignEngine
from ostinato.sandbox import choose
from ostinato.sandbox.base import Backend, SandboxError


async def _remote(_: Path | None) -> Backend:
    return await backend_at(os.environ)


async def backend_at(environment: Mapping[str, str]) -> Backend:
    """Return the backend `remote` of the server that an environment names. Raises SandboxError."""
    url, key = environment.get("OSTINATO_SANDBOX_URL"), environment.get("OSTINATO_SANDBOX_KEY", "")
    if not url:
        raise SandboxError("no server is named: set OSTINATO_SANDBOX_URL and OSTINATO_SANDBOX_KEY")
    from ostinato.fleet.client import RemoteBackend  # loads an HTTP client

    return await RemoteBackend.connect(url, key)


async def _e2b(snapshots: Path | None) -> Backend:
    from ostinato.fleet.foreign.e2b import E2bEngine  # needs a library of its own

    return await _foreign(E2bEngine(os.environ), snapshots)


async def _agent_sandbox(snapshots: Path | None) -> Backend:
    from ostinato.fleet.foreign.agent_sandbox import AgentSandboxEngine  # needs a library of its own

    return await _foreign(AgentSandboxEngine(os.environ), snapshots)


async def _foreign(engine: ForeignEngine, snapshots: Path | None) -> Backend:
    return ForeignBackend(engine, await choose.choose_backend("auto"), snapshots)


REMOTE = choose.BackendKind(
    name="remote",
    make=_remote,
    advice="start ostinato sandbox serve, then set OSTINATO_SANDBOX_URL and OSTINATO_SANDBOX_KEY",
)
FOREIGN = (
    choose.BackendKind(name="e2b", make=_e2b, advice="pip install 'ostinato[e2b]', then " + settings.E2B),
    choose.BackendKind(
        name="agent-sandbox",
        make=_agent_sandbox,
        advice="pip install 'ostinato[agent-sandbox]', then " + settings.AGENT_SANDBOX,
    ),
)
KINDS = {**choose.KINDS, REMOTE.name: REMOTE, **{kind.name: kind for kind in FOREIGN}}
"""Every backend, the preferred one first."""


async def choose_backend(want: str = "auto", snapshots: Path | None = None) -> Backend:
    """Return a backend as `ostinato.sandbox.choose.choose_backend` does, `remote` among them."""
    return await choose.choose_backend(want, snapshots, KINDS)
