"""The route of a sandbox to the outside: its proxy, and the variables and certificates that programs need."""

import asyncio
import logging
import socket
import ssl
from dataclasses import replace
from pathlib import Path

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import listener
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


_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""The files of Debian, Fedora, SUSE and Alpine."""
_NAMED = 10
"""The most hosts that a line of the log names."""
FILE = "egress"
"""The name under which a sandbox expects the channel of `Route.serve`."""
log = logging.getLogger(__name__)


def trusted() -> bytes:
    """Return the certificates that this machine trusts (or those of SSL_CERT_FILE), PEM; may be empty."""
    own = ssl.get_default_verify_paths().cafile
    bundle = next((Path(path) for path in (own, *_BUNDLES) if path and Path(path).is_file()), None)
    return bundle.read_bytes() if bundle is not None else b""


class Route:
    """The route of one sandbox, by a socket that is opened inside and served outside.

    Call `open`, `add_to` the order, `serve` when the sandbox is ready, `aclose` at the end.
    """

    def __init__(self, policy: Egress, sandbox: str, folder: Scratch, resolve: Resolve | None) -> None:
        self._policy, self._sandbox, self._folder = policy, sandbox, folder
        self.proxy = Proxy(policy, sandbox, resolve)

    @classmethod
    async def open(cls, policy: Egress, sandbox: str, resolve: Resolve | None = None) -> "Route":
        """Open a route. Raises SandboxError for a policy that cannot be read or served on this machine."""
        folder = await asyncio.to_thread(Scratch, "trust")
        try:
            route = cls(policy, sandbox, folder, resolve)
            await asyncio.to_thread(lambda: (folder.path / "ca.pem").write_bytes(trusted()))
        except BaseException:
            await asyncio.to_thread(folder.close)
            raise
        return route

    def add_to(self, order: Order) -> Order:
        """Return the order with the variables and certificates; variables that it has already stay."""
        return replace(
            order,
            mounts=(*order.mounts, (f"{self._folder.path}/ca.pem", TRUST)),
            environment={**listener.ENVIRONMENT, **_TRUST, **self._policy.environment, **order.environment},
        )

    async def serve(self, channel: socket.socket) -> None:
        """Receive the sockets that the sandbox opened from `channel`, and serve them."""
        await self.proxy.serve(listener.take(channel))
        await self._forget_bundle()  # the sandbox holds it open, so a killed process leaves no file behind

    async def aclose(self) -> None:
        """Cut open connections, and log what was refused."""
        await self.proxy.aclose()
        await self._forget_bundle()
        if refusals := self.proxy.refusals:
            hosts = ", ".join(f"{host} ({count})" for host, count in refusals.most_common(_NAMED))
            log.warning("sandbox %s: %d connections refused: %s", self._sandbox, refusals.total(), hosts)

    async def _forget_bundle(self) -> None:
        await asyncio.to_thread(self._folder.close)
