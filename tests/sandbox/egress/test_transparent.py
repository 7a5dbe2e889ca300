"""Programs that do not know the proxy, in a sandbox that redirects their connections to it.

Covers sandbox/egress/transparent.py and sandbox/egress/redirected.py.
"""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from tests.sandbox.egress.redirection import (
    Internet,
    RedirectedSandboxes,
    backend,
    internet,
    python,
    redirected,
    redirection_works,
    refused,
    wheel,
)

from ostinato.sandbox import SandboxError, Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import transparent

__all__ = ["backend", "internet", "redirected", "redirection_works"]
pytestmark = pytest.mark.transparent

URLLIB = "import urllib.request as u; r = u.urlopen('{}', timeout=30); print(r.read().decode(), r.headers)"
WITH_KEY = """
import urllib.request as u
asked = u.Request("https://good.test:{port}/y", headers={{"Authorization": "key", "X-Other": "kept"}})
answer = u.urlopen(asked, timeout=30)
print(answer.read().decode(), answer.headers)
"""
ISSUER = """
import socket, ssl
with socket.create_connection(("good.test", {port}), 30) as raw:
    with ssl.create_default_context().wrap_socket(raw, server_hostname="good.test") as s:
        print(dict(pair[0] for pair in s.getpeercert()["issuer"]))
"""


async def test_programs_reach_an_allowed_host_and_need_no_proxy(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}")
        url = f"https://good.test:{port}/x"
        assert "PROXY" not in (await sandbox.exec("env | tr a-z A-Z")).output
        assert "hello" in await python(sandbox, URLLIB.format(url))
        if shutil.which("curl"):
            assert "hello" in (await sandbox.exec(f"curl -sS {url}")).output
            assert "hello" in (await sandbox.exec(f"env -i curl -sS {url}")).output
        await sandbox.destroy()
    assert set(internet.greeted) == {"good.test"}
    first = sandbox.connections[0]
    assert (first.method, first.host, first.port, first.address) == ("TCP", "good.test", port, "127.0.0.1")
    assert first.sent > 0 < first.received


async def test_other_connections_are_not_decrypted(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}")
        assert "the internet" in await python(sandbox, ISSUER.format(port=port))
        await sandbox.destroy()


async def test_inspected_connections_lose_headers_in_both_directions(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}", inspect=(f"good.test:{port}",))
        assert "sandbox" in await python(sandbox, ISSUER.format(port=port))
        output = await python(sandbox, WITH_KEY.format(port=port))
        await sandbox.destroy()
    assert "hello" in output and "Cookie" not in output
    (head,) = internet.heads
    assert "X-Other: kept" in head and "key" not in head and f"Host: good.test:{port}" in head
    assert [each.method for each in sandbox.connections if each.method != "TCP"] == ["GET"]


async def test_the_real_host_is_verified_as_usual(
    internet: Internet, redirected: RedirectedSandboxes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nobody.pem").write_bytes(type(internet.authority)("nobody").certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nobody.pem"))
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}", inspect=(f"good.test:{port}",))
        output = await python(sandbox, URLLIB.format(f"https://good.test:{port}/"))
        await sandbox.destroy()
    assert "HTTP Error 502" in output and internet.heads == []


async def test_a_name_without_a_rule_does_not_exist(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    sandbox = await redirected.open("good.test:443", "*.good.test:443")
    output = await python(
        sandbox,
        "import socket\n"
        "for name in ('good.test', 'sub.good.test', 'hidden.test', 'localhost'):\n"
        "    try: print(name, socket.gethostbyname(name))\n"
        "    except OSError as error: print(name, error)\n",
    )
    good, sub, hidden, local = output.splitlines()
    assert good.startswith("good.test 198.1") and sub.startswith("sub.good.test 198.1")
    assert good.split()[1] != sub.split()[1]
    assert "known" in hidden and local == "localhost 127.0.0.1"
    assert "no rule" in await refused(sandbox, "hidden.test")
    await sandbox.destroy()


async def test_plain_http_is_read_and_other_protocols_pass(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        writer.write(b"you said " + await reader.readline())
        await writer.drain()
        writer.close()

    async with internet.serving(tls=False) as port, internet.serving(greet, tls=False) as mail:
        sandbox = await redirected.open(f"good.test:{port}", f"other.test:{mail}")
        assert "hello" in await python(sandbox, URLLIB.format(f"http://good.test:{port}/"))
        talk = (
            f"import socket; f = socket.create_connection(('other.test', {mail}), 30).makefile('rwb')\n"
            "print(f.readline()); f.write(b'EHLO\\n'); f.flush(); print(f.readline())"
        )
        assert await python(sandbox, talk) == "b'220 here\\r\\n'\nb'you said EHLO\\n'\n"
        await sandbox.destroy()
    assert len(internet.heads) == 1


async def test_the_loopback_works_as_usual(redirected: RedirectedSandboxes) -> None:
    sandbox = await redirected.open("good.test:443")
    code = """
import socket, threading
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    s = socket.socket(family); s.bind((host, 8000)); s.listen()
    c = socket.create_connection((host, 8000), 30); s.accept()[0].send(b"me"); print(c.recv(2)); s.close()
"""
    assert await python(sandbox, code) == "b'me'\nb'me'\n"
    await sandbox.destroy()


async def test_caps_hold_for_what_is_turned(internet: Internet, redirected: RedirectedSandboxes) -> None:
    internet.pages["/big"] = bytes(200_000)
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}", received_bytes=50_000)
        assert "hello" not in await python(sandbox, URLLIB.format(f"https://good.test:{port}/big"))
        assert "policy" in await refused(sandbox, "more than 50000 bytes received")
        assert "hello" not in await python(sandbox, URLLIB.format(f"https://good.test:{port}/"))
        await sandbox.destroy()


async def test_a_fork_has_names_and_an_authority_of_its_own(
    internet: Internet, redirected: RedirectedSandboxes
) -> None:
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}", inspect=(f"good.test:{port}",))
        (fork,) = await sandbox.fork()
        first, second = [(await each.exec("cat $SSL_CERT_FILE | head -8")).output for each in (sandbox, fork)]
        await sandbox.destroy()
        assert "hello" in await python(fork, URLLIB.format(f"https://good.test:{port}/"))
        await fork.destroy()
    assert "BEGIN CERTIFICATE" in first and first != second


async def test_names_are_resolved_over_tcp_too(redirected: RedirectedSandboxes) -> None:
    sandbox = await redirected.open("good.test:443")
    code = """
import socket
q = b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4good\\4test\\0\\0\\1\\0\\1"
s = socket.create_connection(("8.8.8.8", 53), 30)
for _ in range(2):
    s.sendall(len(q).to_bytes(2, "big") + q)
    print(s.recv(999)[-4:])
"""
    first, second = (await python(sandbox, code)).splitlines()
    assert first == second == "b'\\xc6\\x12\\x00\\x01'"
    await sandbox.destroy()


@pytest.mark.slow
@pytest.mark.parametrize("inspected", [False, True])
async def test_pip_installs_from_an_index(
    internet: Internet, redirected: RedirectedSandboxes, inspected: bool
) -> None:
    name = "thing-1.0-py3-none-any.whl"
    internet.pages |= {"/simple/thing/": f'<a href="/{name}">{name}</a>'.encode(), f"/{name}": wheel()}
    async with internet.serving() as port:
        host = f"good.test:{port}"
        sandbox = await redirected.open(host, inspect=(host,) * inspected)
        command = f"python -m pip install --no-deps --target . --index-url https://{host}/simple thing"
        result = await sandbox.exec(f"{command} && python -c 'import thing; print(thing.x)'", timeout_s=60)
        await sandbox.destroy()
    assert result.output.endswith("7\n"), result.output


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
async def test_git_reaches_a_server(internet: Internet, redirected: RedirectedSandboxes) -> None:
    internet.pages["/repo.git/info/refs"] = b"a" * 40 + b"\trefs/heads/main\n"
    async with internet.serving() as port:
        sandbox = await redirected.open(f"good.test:{port}", inspect=(f"good.test:{port}",))
        result = await sandbox.exec(f"git ls-remote https://good.test:{port}/repo.git")
        await sandbox.destroy()
    assert "refs/heads/main" in result.output, result.output


async def test_a_machine_that_cannot_redirect_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transparent, "missing", lambda: "there is no nft")
    backend = NsBackend()
    with pytest.raises(SandboxError, match=r"there is no nft; install nftables .* HTTP_PROXY"):
        await backend.create(Spec(repo=tmp_path, egress=Egress(allow=("a.test:1",), transparent=True)))
    assert backend.capabilities.egress == {"proxy"}
    await backend.aclose()


async def test_inspection_needs_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    backend = NsBackend()
    with pytest.raises(SandboxError, match=r"pip install 'ostinato\[egress\]'"):
        await backend.create(Spec(repo=tmp_path, egress=Egress(allow=("a.test:1",), inspect=("a.test:1",))))
    await backend.aclose()
