"""The route of a sandbox to the outside: its proxy, and the variables and certificates that programs need."""

import asyncio
import socket
from dataclasses import replace

from ostinato.sandbox.base import Egress, SandboxError
from ostinato.sandbox.egress import listener, transparent
from ostinato.sandbox.egress.authority import trusted
from ostinato.sandbox.egress.policy import Resolve
from ostinato.sandbox.egress.proxy import Proxy
from ostinato.sandbox.files.rootfs import TRUST
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol.order import Order

_TRUST = dict.fromkeys(
    (
        *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"),
        "NODE_EXTRA_CA_CERTS",
    ),
    TRUST,
)


class Route:
    """A route through a proxy. Raises SandboxError for a policy that cannot be read."""

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None) -> None:
        self.policy = policy
        self.proxy = Proxy(policy, sandbox, resolve)

    def bundle(self) -> bytes:
        """Return the certificates that programs must trust, PEM."""
        authority = self.proxy.authority
        return (authority.certificate if authority is not None else b"") + trusted()

    def environment(self) -> dict[str, str]:
        """Return the environment variables that programs need."""
        return {**({} if self.policy.transparent else listener.ENVIRONMENT), **_TRUST}

    async def aclose(self) -> None:
        """Cut open connections."""
        await self.proxy.aclose()


class SocketRoute(Route):
    """A route by sockets that are opened inside and served outside.

    Call `open`, `add_to` the order, `serve` when the sandbox is ready, `aclose` at the end.
    """

    def __init__(self, policy: Egress, sandbox: str, folder: Scratch, resolve: Resolve | None) -> None:
        super().__init__(policy, sandbox, resolve)
        self._folder = folder

    @classmethod
    async def open(cls, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> "SocketRoute":
        """Open a route. Raises SandboxError for a policy that cannot be read or served on this machine."""
        if policy.transparent:
            reason = await asyncio.to_thread(transparent.missing)
            if reason:
                raise SandboxError(f"transparent egress does not work here: {reason}; {transparent.ADVICE}")
        folder = await asyncio.to_thread(Scratch, "trust")
        try:
            route = cls(policy, sandbox, folder, resolve)
            await asyncio.to_thread(lambda: (folder.path / "ca.pem").write_bytes(route.bundle()))
        except BaseException:
            await asyncio.to_thread(folder.close)
            raise
        return route

    @property
    def file(self) -> str:
        """The name under which the sandbox expects the channel of `serve`."""
        return "gate" if self.policy.transparent else "egress"

    def add_to(self, order: Order) -> Order:
        """Return the order with the variables and certificates; variables that it has already stay."""
        return replace(
            order,
            mounts=(*order.mounts, (f"{self._folder.path}/ca.pem", TRUST)),
            environment={**self.environment(), **order.environment},
        )

    async def serve(self, channel: socket.socket) -> None:
        """Receive the sockets that the sandbox opened from `channel`, and serve them."""
        if self.policy.transparent:
            await self.proxy.serve_redirected(*transparent.take(channel))
        else:
            await self.proxy.serve(listener.take(channel))
        await self._forget_bundle()  # the sandbox holds it open, so a killed process leaves no file behind

    async def aclose(self) -> None:
        await super().aclose()
        await self._forget_bundle()

    async def _forget_bundle(self) -> None:
        await asyncio.to_thread(self._folder.close)
