"""One sandbox's way out: its proxy, what programs are told of it, and whom they are to trust."""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ostinato.sandbox.base import Egress, SandboxError
from ostinato.sandbox.egress import door, gate
from ostinato.sandbox.egress.authority import trusted
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.egress.proxy import Proxy
from ostinato.sandbox.ground import Order
from ostinato.sandbox.layout import TRUST

_TRUST = dict.fromkeys(
    (
        *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"),
        "NODE_EXTRA_CA_CERTS",
    ),
    TRUST,
)


class Way:
    """Use `open`, `add_to` the order, `serve` when the sandbox is ready, `aclose` at the end."""

    def __init__(self, policy: Egress, sandbox: str, folder: str, resolve: Resolve | None) -> None:
        self.proxy = Proxy(policy, sandbox, resolve)
        self._transparent = policy.transparent
        self._folder = folder

    @classmethod
    async def open(cls, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> "Way":
        """Raises SandboxError for a policy that cannot be read, or that needs what is not here."""
        if policy.transparent:
            reason = await asyncio.to_thread(gate.missing)
            if reason:
                raise SandboxError(f"transparent egress does not work here: {reason}; {gate.ADVICE}")
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="ostinato-trust-")
        try:
            way = cls(policy, sandbox, folder, resolve)
            await asyncio.to_thread(way._write_bundle)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder)
            raise
        return way

    def _write_bundle(self) -> None:
        authority = self.proxy.authority
        own = authority.certificate if authority is not None else b""
        Path(self._folder, "ca.pem").write_bytes(own + trusted())

    @property
    def file(self) -> str:
        """The name under which the sandbox takes the channel that `serve` hears of."""
        return "gate" if self._transparent else "egress"

    def add_to(self, order: Order) -> Order:
        """With what programs need to know; what the order says already stays."""
        proxy: Mapping[str, str] = {} if self._transparent else door.ENVIRONMENT
        return replace(
            order,
            mounts=(*order.mounts, (f"{self._folder}/ca.pem", TRUST)),
            environment={**proxy, **_TRUST, **order.environment},
        )

    async def serve(self, channel: socket.socket) -> None:
        """Take what the sandbox opened, out of `channel`."""
        if self._transparent:
            await self.proxy.serve_turned(*gate.take(channel))
        else:
            await self.proxy.serve(door.take(channel))
        await self._forget_bundle()  # the sandbox holds it; whoever is killed from here on leaves nothing

    async def aclose(self) -> None:
        """Cut what is open."""
        await self.proxy.aclose()
        await self._forget_bundle()

    async def _forget_bundle(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
