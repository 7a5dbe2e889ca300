"""One sandbox's way out: its proxy, what programs are told of it, and whom they are to trust."""

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


class Way:
    """What every kind has. Raises SandboxError for a policy that cannot be read."""

    def __init__(self, policy: Egress, sandbox: str, resolve: Resolve | None) -> None:
        self.policy = policy
        self.proxy = Proxy(policy, sandbox, resolve)

    def bundle(self) -> bytes:
        """Whom programs are to trust, PEM."""
        authority = self.proxy.authority
        return (authority.certificate if authority is not None else b"") + trusted()

    def environment(self) -> dict[str, str]:
        """What programs are told."""
        return {**({} if self.policy.transparent else listener.ENVIRONMENT), **_TRUST}

    async def aclose(self) -> None:
        """Cut what is open."""
        await self.proxy.aclose()


class HeldWay(Way):
    """By sockets that are opened inside and held outside.

    Use `open`, `add_to` the order, `serve` when the sandbox is ready, `aclose` at the end.
    """

    def __init__(self, policy: Egress, sandbox: str, folder: Scratch, resolve: Resolve | None) -> None:
        super().__init__(policy, sandbox, resolve)
        self._folder = folder

    @classmethod
    async def open(cls, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> "HeldWay":
        """Raises SandboxError for a policy that cannot be read, or that needs what is not here."""
        if policy.transparent:
            reason = await asyncio.to_thread(transparent.missing)
            if reason:
                raise SandboxError(f"transparent egress does not work here: {reason}; {transparent.ADVICE}")
        folder = await asyncio.to_thread(Scratch, "trust")
        try:
            way = cls(policy, sandbox, folder, resolve)
            await asyncio.to_thread(lambda: (folder.path / "ca.pem").write_bytes(way.bundle()))
        except BaseException:
            await asyncio.to_thread(folder.close)
            raise
        return way

    @property
    def file(self) -> str:
        """The name under which the sandbox takes the channel that `serve` hears of."""
        return "gate" if self.policy.transparent else "egress"

    def add_to(self, order: Order) -> Order:
        """With what programs need to know; what the order says already stays."""
        return replace(
            order,
            mounts=(*order.mounts, (f"{self._folder.path}/ca.pem", TRUST)),
            environment={**self.environment(), **order.environment},
        )

    async def serve(self, channel: socket.socket) -> None:
        """Take what the sandbox opened, out of `channel`."""
        if self.policy.transparent:
            await self.proxy.serve_turned(*transparent.take(channel))
        else:
            await self.proxy.serve(listener.take(channel))
        await self._forget_bundle()  # the sandbox holds it; whoever is killed from here on leaves nothing

    async def aclose(self) -> None:
        await super().aclose()
        await self._forget_bundle()

    async def _forget_bundle(self) -> None:
        await asyncio.to_thread(self._folder.close)
