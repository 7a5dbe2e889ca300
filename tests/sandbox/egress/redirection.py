"""Sandboxes whose connections are redirected, and a small internet for them.

The internet is TLS servers on loopback whose authority this machine trusts for the time of a test.
"""

import asyncio
import io
import ssl
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ostinato.sandbox import Limits, Sandbox, SandboxError, Spec
from ostinato.sandbox.backends.agent_sandbox import AgentSandbox
from ostinato.sandbox.backends.namespaces.backend import NsBackend, NsSandbox
from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import transparent
from ostinato.sandbox.egress.authority import Authority

NAMES = ("good.test", "other.test", "sub.good.test", "hidden.test", "looked.test")
LIMITS = Limits(memory_mb=2048, wall_s=60, processes=100)


async def resolve(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise OSError(-2, "Name or service not known")
    return ["127.0.0.1"]


@dataclass(kw_only=True)
class Internet:
    """The servers outside. `heads` has the heads of the requests that arrived, `greeted` the server names."""

    authority: Authority
    heads: list[str] = field(default_factory=list)
    greeted: list[str | None] = field(default_factory=list)
    pages: dict[str, bytes] = field(default_factory=dict)

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to one request with a page or `hello`, and with a cookie."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
            return
        self.heads.append(head)
        page = self.pages.get(head.split(" ")[1].partition("?")[0], b"hello")
        writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: secret\r\nContent-Length: %d\r\n" % len(page))
        writer.write(b"Content-Type: text/html\r\nConnection: close\r\n\r\n" + page)
        await writer.drain()
        writer.close()

    def context(self) -> ssl.SSLContext:
        """Return the context of a server that has a certificate for every name."""
        context = self.authority.inside(NAMES[0])

        def greet(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            self.greeted.append(name)
            connection.context = self.authority.inside(name or NAMES[0])

        context.sni_callback = greet  # type: ignore[assignment]
        return context

    @asynccontextmanager
    async def serving(
        self,
        respond: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None,
        *,
        tls: bool = True,
    ) -> AsyncIterator[int]:
        """Run a server outside; yield its port on 127.0.0.1."""
        context = self.context() if tls else None
        server = await asyncio.start_server(respond or self.respond, "127.0.0.1", 0, ssl=context)
        async with server:
            yield server.sockets[0].getsockname()[1]


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Internet:
    pytest.importorskip("cryptography", reason="the servers of these tests need certificates")
    authority = Authority("the internet")
    bundle = tmp_path / "internet.pem"
    bundle.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return Internet(authority=authority)


@pytest.fixture(scope="session")
def redirection_works() -> None:
    if reason := transparent.missing():
        pytest.skip(f"no transparent egress: {reason}")


@pytest.fixture(scope="session")
def backend(redirection_works: None) -> Iterator[NsBackend]:
    backend = NsBackend(resolve=resolve)
    yield backend
    asyncio.run(backend.aclose())


@dataclass(kw_only=True)
class RedirectedSandboxes:
    """A maker of sandboxes that may reach the hosts `allow`, which are all on loopback outside."""

    backend: NsBackend
    repo: Path
    sandboxes: list[Sandbox] = field(default_factory=list)

    async def open(self, *allow: str, **policy: Any) -> NsSandbox:
        egress = Egress(allow=allow, networks=("127.0.0.0/8",), transparent=True, **policy)
        sandbox = await self.backend.create(Spec(repo=self.repo, egress=egress, limits=LIMITS))
        assert isinstance(sandbox, NsSandbox)
        self.sandboxes.append(sandbox)
        return sandbox


@pytest.fixture
async def redirected(backend: NsBackend, tmp_path: Path) -> AsyncIterator[RedirectedSandboxes]:
    repo = tmp_path / "repo"
    repo.mkdir()
    redirected = RedirectedSandboxes(backend=backend, repo=repo)
    yield redirected
    for sandbox in redirected.sandboxes:
        await sandbox.destroy()


async def python(sandbox: Sandbox, code: str) -> str:
    """Return the output of `code`, its errors included."""
    await sandbox.write("code.py", code.encode())
    return (await sandbox.exec("python code.py")).output


def wheel() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("thing.py", "x = 7\n")
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr(
            "thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("thing-1.0.dist-info/RECORD", "")
    return data.getvalue()


def refusals(sandbox: AgentSandbox) -> list[str]:
    return [f"{each.host}: {each.refused}" for each in sandbox.connections if each.refused]


async def refused(sandbox: AgentSandbox, text: str) -> str:
    """Wait for the record of a refusal with `text` in it, which is written when its connection has ended."""
    async with asyncio.timeout(30):
        while not (found := [each for each in refusals(sandbox) if text in each]):
            await asyncio.sleep(0.02)
    return found[0]


__all__ = [
    "Internet",
    "SandboxError",
    "RedirectedSandboxes",
    "backend",
    "internet",
    "python",
    "refused",
    "redirected",
    "redirection_works",
    "wheel",
]
