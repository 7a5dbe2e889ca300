"""The proxy as programs in a sandbox see it.

Covers sandbox/egress/route.py and sandbox/egress/meter.py as well.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.egress.conftest import serving
from tests.sandbox.egress.internet import Internet, internet, python, refused, wheel

from ostinato.sandbox import Backend, Limits, Mount, Sandbox, SandboxError, Spec
from ostinato.sandbox.backends.agent_sandbox import AgentSandbox
from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress.proxy_connection import ConnectionRecord

__all__ = ["internet"]
LIMITS = Limits(memory_mb=2048, cpu_s=60, wall_s=120, processes=100)
ASK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128), 60)
s.sendall(f"GET http://{sys.argv[1]}/ HTTP/1.1\\r\\n\\r\\n".encode())
data = b""
while part := s.recv(65536): data += part
print(data.decode())
"""
URLLIB = "import urllib.request as u; r = u.urlopen('{}', timeout=60); print(r.read().decode(), r.headers)"


@dataclass(kw_only=True)
class ProxiedSandboxes:
    """A maker of sandboxes that may reach the hosts `allow`, which are all on loopback outside."""

    backend: Backend
    repo: Path
    opened: list[Sandbox] = field(default_factory=list)

    def spec(self, *allow: str, **policy: Any) -> Spec:
        egress = Egress(allow=allow, networks=("127.0.0.0/8",), **policy)
        return Spec(repo=self.repo, egress=egress, limits=LIMITS)

    async def open(self, *allow: str, **policy: Any) -> AgentSandbox:
        return self.keep(await self.backend.create(self.spec(*allow, **policy)))

    def keep(self, sandbox: Sandbox) -> AgentSandbox:
        assert isinstance(sandbox, AgentSandbox)
        self.opened.append(sandbox)
        return sandbox


@pytest.fixture
async def sandboxes(backend: Backend, tmp_path: Path) -> AsyncIterator[ProxiedSandboxes]:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "ask.py").write_text(ASK)
    sandboxes = ProxiedSandboxes(backend=backend, repo=repo)
    yield sandboxes
    for sandbox in sandboxes.opened:
        await sandbox.destroy()


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    await writer.drain()
    writer.close()


async def ask(sandbox: Sandbox, target: str) -> str:
    return (await sandbox.exec(f"python ask.py {target}")).output


async def record_of(sandbox: AgentSandbox, wanted: Callable[[ConnectionRecord], bool]) -> ConnectionRecord:
    """Wait for a record, which is written when its connection has ended."""
    async with asyncio.timeout(60):
        while not (records := [each for each in sandbox.connections if wanted(each)]):
            await asyncio.sleep(0.02)
    return records[0]


async def test_an_allowed_host_responds_and_every_connection_is_recorded(
    sandboxes: ProxiedSandboxes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(hello) as port, serving(hello) as other:
        sandbox = await sandboxes.open(f"good.test:{port}")
        with caplog.at_level(logging.INFO, "ostinato.sandbox.egress"):
            assert "hello" in await ask(sandbox, f"good.test:{port}")
            assert "not allowed" in await ask(sandbox, f"good.test:{other}")
            first = await record_of(sandbox, lambda each: each.port == port)
            second = await record_of(sandbox, lambda each: each.port == other)
    assert (first.refused, first.sandbox) == (None, sandbox.id)
    assert second.refused is not None
    assert str(other) in caplog.text


async def test_there_is_no_way_around_the_proxy(sandboxes: ProxiedSandboxes) -> None:
    async with serving(hello) as port:
        sandbox = await sandboxes.open(f"good.test:{port}")
        direct = f"python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\""
        assert "refused" in (await sandbox.exec(direct)).output
        outside = "python -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\""
        output = (await sandbox.exec(outside)).output
        assert "unreachable" in output or "No route" in output
        named = "python -c 'import socket; socket.gethostbyname(\"a.test\")'"
        assert "resolution" in (await sandbox.exec(named)).output


async def test_without_a_policy_there_is_no_listening_socket(sandboxes: ProxiedSandboxes) -> None:
    sandbox = sandboxes.keep(await sandboxes.backend.create(Spec(repo=sandboxes.repo)))
    assert "refused" in await ask(sandbox, "good.test:80")
    assert "PROXY" not in (await sandbox.exec("env | tr a-z A-Z")).output
    assert sandbox.connections == []


async def test_programs_find_the_proxy_by_themselves(sandboxes: ProxiedSandboxes) -> None:
    sandbox = await sandboxes.open("good.test:80")
    code = "import urllib.request; urllib.request.urlopen('http://other.test/')"
    assert "HTTP Error 403" in (await sandbox.exec(f'python -c "{code}"')).output


async def test_variables_of_the_spec_stay(sandboxes: ProxiedSandboxes) -> None:
    egress = Egress(allow=("good.test:80",))
    spec = Spec(repo=sandboxes.repo, egress=egress, environment={"PIP_CERT": "mine"}, limits=LIMITS)
    sandbox = sandboxes.keep(await sandboxes.backend.create(spec))
    output = (await sandbox.exec("echo $PIP_CERT $SSL_CERT_FILE $https_proxy")).output
    assert output == "mine /run/ostinato/ca.pem http://127.0.0.1:3128\n"


async def test_the_certificates_lie_beside_other_mounts(sandboxes: ProxiedSandboxes, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data\n")
    mount = Mount(source=tmp_path / "data", target="/run/deep/data")
    egress = Egress(allow=("good.test:80",))
    spec = Spec(repo=sandboxes.repo, egress=egress, mounts=(mount,), limits=LIMITS)
    sandbox = sandboxes.keep(await sandboxes.backend.create(spec))
    result = await sandbox.exec("cat /run/deep/data; head -c 4 $SSL_CERT_FILE; echo x >> $SSL_CERT_FILE")
    assert result.output.startswith("data\n") and result.exit_code != 0


async def test_a_fork_has_a_proxy_of_its_own(sandboxes: ProxiedSandboxes) -> None:
    async with serving(hello) as port:
        sandbox = await sandboxes.open(f"good.test:{port}")
        fork = sandboxes.keep((await sandbox.fork())[0])
        await sandbox.destroy()
        assert "hello" in await ask(fork, f"good.test:{port}")
        assert (await record_of(fork, lambda _: True)).sandbox == fork.id != sandbox.id
    assert sandbox.connections == []


async def test_a_large_body_in_either_direction(sandboxes: ProxiedSandboxes) -> None:
    """A slow reader holds it back, and it arrives complete."""
    got = 0

    async def swap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await reader.readuntil(b"\r\n\r\n")
        while got < 5_000_000:
            got += len(await reader.read(1 << 16))
            await asyncio.sleep(0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + bytes(5_000_000))
        await writer.drain()
        writer.close()

    code = """
import hashlib, urllib.request as u
answer = u.urlopen(u.Request("http://good.test:{port}/", data=bytes(5_000_000)), timeout=60)
count = 0
while part := answer.read(1000): count += len(part)
print(count)
"""
    async with serving(swap) as port:
        sandbox = await sandboxes.open(f"good.test:{port}")
        assert await python(sandbox, code.replace("{port}", str(port))) == "5000000\n"
        assert got == 5_000_000


async def test_caps_hold(sandboxes: ProxiedSandboxes, internet: Internet) -> None:
    internet.pages["/big"] = bytes(200_000)
    async with internet.serving(tls=False) as port:
        sandbox = await sandboxes.open(f"good.test:{port}", received_bytes=50_000)
        assert "hello" not in await python(sandbox, URLLIB.format(f"http://good.test:{port}/big"))
        assert "policy" in await refused(sandbox, "more than 50000 bytes received")
        assert "HTTP Error 403" in await python(sandbox, URLLIB.format(f"http://good.test:{port}/"))


MANY = """
import socket
held = [socket.create_connection(("127.0.0.1", 3128), 60) for _ in range(100)]
for s in held: s.sendall(b"CONNECT good.test:{port} HTTP/1.1\\r\\n\\r\\n")
said = []
for s in held:
    said.append(s.recv(99).split()[1])
    if said[-1] == b"429": s.close()
print(said.count(b"200"), said.count(b"429"))
"""


async def test_many_connections_are_refused_and_nothing_else_suffers(sandboxes: ProxiedSandboxes) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(wait) as port, serving(hello) as other:
        sandbox = await sandboxes.open(f"good.test:{port}", f"good.test:{other}", connections=4)
        assert await python(sandbox, MANY.replace("{port}", str(port))) == "4 96\n"
        assert "hello" in await ask(sandbox, f"good.test:{other}")


async def test_a_server_that_breaks_off_is_noticed(sandboxes: ProxiedSandboxes) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()

    async with serving(half) as port:
        sandbox = await sandboxes.open(f"good.test:{port}")
        assert "IncompleteRead" in await python(sandbox, URLLIB.format(f"http://good.test:{port}/"))


async def test_a_tunnel_is_not_decrypted_and_real_certificates_are_trusted(
    sandboxes: ProxiedSandboxes, internet: Internet
) -> None:
    async with internet.serving() as port:
        sandbox = await sandboxes.open(f"good.test:{port}")
        assert "hello" in await python(sandbox, URLLIB.format(f"https://good.test:{port}/"))
        assert (await record_of(sandbox, lambda _: True)).method == "CONNECT"
    assert internet.greeted == ["good.test"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl_needs_no_settings(sandboxes: ProxiedSandboxes, internet: Internet) -> None:
    async with internet.serving() as port:
        host = f"good.test:{port}"
        sandbox = await sandboxes.open(host)
        assert (await sandbox.exec(f"curl -sS https://{host}/")).output == "hello"
        output = (await sandbox.exec(f"env -i https_proxy=$https_proxy curl -sS https://{host}/")).output
        assert output == "hello"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
async def test_git_reaches_a_server(sandboxes: ProxiedSandboxes, internet: Internet) -> None:
    internet.pages["/repo.git/info/refs"] = b"a" * 40 + b"\trefs/heads/main\n"
    async with internet.serving() as port:
        host = f"good.test:{port}"
        sandbox = await sandboxes.open(host)
        result = await sandbox.exec(f"git ls-remote https://{host}/repo.git")
    assert "refs/heads/main" in result.output, result.output


@pytest.mark.slow
async def test_pip_installs_from_an_index(sandboxes: ProxiedSandboxes, internet: Internet) -> None:
    name = "thing-1.0-py3-none-any.whl"
    internet.pages |= {"/simple/thing/": f'<a href="/{name}">{name}</a>'.encode(), f"/{name}": wheel()}
    async with internet.serving() as port:
        host = f"good.test:{port}"
        sandbox = await sandboxes.open(host)
        command = f"python -m pip install --no-deps --target . --index-url https://{host}/simple thing"
        result = await sandbox.exec(f"{command} && python -c 'import thing; print(thing.x)'")
    assert result.output.endswith("7\n"), result.output


async def test_results_of_commands_with_egress_are_not_remembered(sandboxes: ProxiedSandboxes) -> None:
    sandbox = await sandboxes.open("good.test:80")
    await sandbox.write("test_time.py", b"import time\n\ndef test_time():\n    print(time.time_ns())\n")
    first, second = [(await sandbox.exec("python -m pytest -q -s test_time.py")).output for _ in range(2)]
    assert first != second


async def test_a_policy_that_cannot_be_read_is_an_error(sandboxes: ProxiedSandboxes) -> None:
    with pytest.raises(SandboxError, match="egress rule"):
        await sandboxes.open("no port")
