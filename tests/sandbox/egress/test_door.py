"""The proxy as programs in a sandbox find it: the only way out, and only as far as the policy goes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.egress.conftest import serving

from ostinato.sandbox import Backend, Sandbox, SandboxError, Spec
from ostinato.sandbox.base import Egress
from ostinato.sandbox.ns import NsSandbox
from ostinato.sandbox.probe import probe

ASK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128), 5)
s.sendall(f"GET http://{sys.argv[1]}/ HTTP/1.1\\r\\n\\r\\n".encode())
data = b""
while part := s.recv(65536): data += part
print(data.decode())
"""


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    try:
        found = await probe("ns")
    except SandboxError as error:
        pytest.skip(f"ns: {error}")
    yield found
    await found.aclose()


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    await writer.drain()
    writer.close()


async def opened(backend: Backend, repo: Path, *allow: str) -> Sandbox:
    (repo / "ask.py").write_text(ASK)
    return await backend.create(Spec(repo=repo, egress=Egress(allow=allow, networks=("127.0.0.0/8",))))


async def ask(sandbox: Sandbox, target: str) -> str:
    return (await sandbox.exec(f"python ask.py {target}")).output


async def test_an_allowed_host_answers_and_all_is_written_down(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(hello) as port, serving(hello) as other:
        sandbox = await opened(backend, tmp_path, f"127.0.0.1:{port}")
        with caplog.at_level(logging.INFO, "ostinato.sandbox.egress"):
            assert "hello" in await ask(sandbox, f"127.0.0.1:{port}")
            assert "not allowed" in await ask(sandbox, f"127.0.0.1:{other}")
        assert isinstance(sandbox, NsSandbox)
        first, second = sandbox.connections
        await sandbox.destroy()
    assert (first.port, first.refused, first.sandbox) == (port, None, sandbox.id)
    assert (second.port, second.refused is None) == (other, False)
    assert str(other) in caplog.text


async def test_there_is_no_way_around_it(backend: Backend, tmp_path: Path) -> None:
    async with serving(hello) as port:
        sandbox = await opened(backend, tmp_path, f"127.0.0.1:{port}")
        direct = f"python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\""
        assert "refused" in (await sandbox.exec(direct)).output
        outside = "python -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\""
        assert "unreachable" in (await sandbox.exec(outside)).output
        assert (
            "resolution"
            in (await sandbox.exec("python -c 'import socket; socket.gethostbyname(\"a.test\")'")).output
        )
        await sandbox.destroy()


async def test_programs_find_it_by_themselves(backend: Backend, tmp_path: Path) -> None:
    sandbox = await opened(backend, tmp_path, "good.test:80")
    code = "import urllib.request; urllib.request.urlopen('http://other.test/')"
    assert "HTTP Error 403" in (await sandbox.exec(f'python -c "{code}"')).output
    await sandbox.destroy()


async def test_a_fork_has_a_proxy_of_its_own(backend: Backend, tmp_path: Path) -> None:
    async with serving(hello) as port:
        sandbox = await opened(backend, tmp_path, f"127.0.0.1:{port}")
        (fork,) = await sandbox.fork()
        await sandbox.destroy()
        assert "hello" in await ask(fork, f"127.0.0.1:{port}")
        await fork.destroy()


async def test_what_goes_out_is_not_remembered(backend: Backend, tmp_path: Path) -> None:
    sandbox = await opened(backend, tmp_path, "good.test:80")
    first, second = [(await sandbox.exec("date +%N")).output for _ in range(2)]
    assert first != second
    await sandbox.destroy()


async def test_a_policy_that_cannot_be_read_is_an_error(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="egress rule"):
        await opened(backend, tmp_path, "no port")
