"""A small internet for sandboxes: servers on loopback, whose certificate the machine trusts in a test."""

import asyncio
import io
import shutil
import ssl
import subprocess
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ostinato.sandbox import Sandbox
from ostinato.sandbox.backends.agent_sandbox import AgentSandbox

NAMES = ("good.test", "other.test", "sub.good.test")


@dataclass(kw_only=True)
class Internet:
    """The servers outside. `heads` has the heads of the requests that arrived, `greeted` the server names."""

    certificate: Path
    key: Path
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
        """Return the context of a server whose certificate is for every name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)

        def greet(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
            self.greeted.append(name)

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
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl: the servers of these tests need a certificate")
    certificate, key = tmp_path / "internet.pem", tmp_path / "internet.key"
    names = ",".join(f"DNS:{name}" for name in NAMES)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=internet", "-addext", f"subjectAltName={names}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return Internet(certificate=certificate, key=key)


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
