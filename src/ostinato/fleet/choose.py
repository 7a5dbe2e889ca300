"""The choice of a backend, a server of sandboxes among them."""

import os
from pathlib import Path

from ostinato.sandbox import choose
from ostinato.sandbox.base import Backend, SandboxError


async def _remote(_: Path | None) -> Backend:
    url, key = os.environ.get("OSTINATO_SANDBOX_URL"), os.environ.get("OSTINATO_SANDBOX_KEY", "")
    if not url:
        raise SandboxError("no server is named: set OSTINATO_SANDBOX_URL and OSTINATO_SANDBOX_KEY")
    from ostinato.fleet.client import RemoteBackend  # loads an HTTP client

    return await RemoteBackend.connect(url, key)


REMOTE = choose.BackendKind(
    name="remote",
    make=_remote,
    advice="start ostinato sandbox serve, then set OSTINATO_SANDBOX_URL and OSTINATO_SANDBOX_KEY",
)
KINDS = {**choose.KINDS, REMOTE.name: REMOTE}
"""Every backend, the preferred one first."""


async def choose_backend(want: str = "auto", snapshots: Path | None = None) -> Backend:
    """Return a backend as `ostinato.sandbox.choose.choose_backend` does, `remote` among them."""
    return await choose.choose_backend(want, snapshots, KINDS)
