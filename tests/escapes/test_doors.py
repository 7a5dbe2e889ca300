# ruff: noqa: E501
"""Attempts to get around the proxy of a sandbox that may reach one host, on every backend that has one."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.escapes.attempts import ATTEMPTS, SHARED
from tests.escapes.conftest import Outside
from tests.sandbox.egress.conftest import backend, resolving, serving
from tests.sandbox.egress.internet import python
from tests.sandbox.egress.test_listener import LIMITS, hello

from ostinato.sandbox import Backend, Spec
from ostinato.sandbox.backends.agent_sandbox import AgentSandbox
from ostinato.sandbox.base import Egress

__all__ = ["backend", "resolving"]
NETWORK = [
    name
    for name in ATTEMPTS
    if name.startswith(("reach_", "resolve_", "see_a_network")) and name not in SHARED
]
HELPERS = """
import fcntl, glob, json, os, signal, socket, struct
facts = json.loads(open("facts.json").read())
port, allowed = facts["port"], facts["allowed"]

def said(*parts):
    s = socket.create_connection(("127.0.0.1", 3128), 60)
    for part in parts: s.sendall(part)
    answer = b"".join(iter(lambda: s.recv(9999), b"")); return None if b" 403 " in answer[:20] else answer

def bound(address, *options):
    s = socket.socket()
    for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(address); s.listen(); return True

def tried(attempt):
    try: return repr(attempt() or None)
    except (OSError, ValueError) as error: return repr(None)
"""
AROUND = {
    "a request to the machine": "return said(b'GET http://127.0.0.1:%d/ HTTP/1.1\\r\\n\\r\\n' % port)",
    "a request to the machine by its name": "return said(b'GET http://localhost:%d/ HTTP/1.1\\r\\n\\r\\n' % port)",
    "a tunnel to the machine": "return said(b'CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n' % port, b'out')",
    "a tunnel to the machine by IPv6": "return said(b'CONNECT [::1]:%d HTTP/1.1\\r\\n\\r\\n' % port, b'out')",
    "a tunnel to anywhere": "return said(b'CONNECT 0.0.0.0:%d HTTP/1.1\\r\\n\\r\\n' % port, b'out')",
    "a tunnel to the cloud's metadata": "return said(b'CONNECT 169.254.169.254:80 HTTP/1.1\\r\\n\\r\\n', b'out')",
    "a tunnel to another port": "return said(b'CONNECT good.test:%d HTTP/1.1\\r\\n\\r\\n' % port, b'out')",
    "a tunnel to the door itself": "return said(b'CONNECT 127.0.0.1:3128 HTTP/1.1\\r\\n\\r\\n', b'out')",
    "a name behind the one that is allowed": "return said(b'GET http://good.test:%d@localhost:%d/ HTTP/1.1\\r\\n\\r\\n' % (allowed, port))",
    "the door's place": "return bound(('127.0.0.1', 3128))",
    "the door's place, shared": "return bound(('127.0.0.1', 3128), socket.SO_REUSEADDR, socket.SO_REUSEPORT)",
    "take the loopback down": "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh22x', b'lo', 0)); return True",
    "an address for the loopback": "fcntl.ioctl(socket.socket(), 0x8916, struct.pack('16sHH4s16x', b'lo', 2, 0, bytes([1, 1, 1, 1]))); return True",
    "certificates of one's own": "open('/run/ostinato/ca.pem', 'ab').write(b'x'); return True",
    "certificates of one's own in their place": "os.rename('/run/ostinato/ca.pem', '/run/ostinato/old'); return True",
    "certificates of one's own above them": "os.unlink('/run/ostinato/ca.pem'); return True",
    "certificates that others may write": "os.chmod('/run/ostinato/ca.pem', 0o666); return True",
    "certificates of one's own by a link": "os.unlink('/etc/ssl/certs/ca-certificates.crt'); return True",
    "the authority's key": "return [p for d, _, names in os.walk('/run') for p in (os.path.join(d, n) for n in names) if b'PRIVATE KEY' in open(p, 'rb').read()]",
    "speak as the agent": "return [p for p in (*glob.glob('/dev/vport*'), *glob.glob('/dev/hvc*'), *glob.glob('/proc/1/fd/*')) if os.close(os.open(p, os.O_WRONLY)) is None]",
    "hear the agent": "return [p for p in (*glob.glob('/dev/vport*'), *glob.glob('/proc/1/fd/*')) if os.close(os.open(p, os.O_RDONLY)) is None]",
}
"""Attempts that must show no success, and must make no connection outside."""
FLOODS = {
    "connections that say nothing": "held = [socket.create_connection(('127.0.0.1', 3128), 60) for _ in range(200)]",
    "connections that are reset": """
    for _ in range(1000):
        s = socket.create_connection(("127.0.0.1", 3128), 60)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()""",
    "heads that never end": """
    held = [socket.create_connection(("127.0.0.1", 3128), 60) for _ in range(40)]
    for s in held:
        try: s.sendall(b"GET http://good.test/ HTTP/1.1\\r\\n" + b"X: y\\r\\n" * 30_000)
        except OSError: pass""",
    "answers that nobody reads": """
    held = [socket.create_connection(("127.0.0.1", 3128), 60) for _ in range(60)]
    for s in held: s.sendall(b"nonsense\\r\\n\\r\\n")""",
    "words one by one": """
    s = socket.create_connection(("127.0.0.1", 3128), 60); s.setsockopt(6, 1, 1)
    try:
        for _ in range(3000): s.send(b"x")
    except OSError: pass""",
}


@pytest.fixture
async def held(backend: Backend, outside: Outside) -> AsyncIterator[AgentSandbox]:
    """Yield a sandbox that may reach one port of `good.test` and nothing else."""
    async with serving(hello) as port:
        outside.facts["allowed"] = port
        egress = Egress(allow=(f"good.test:{port}",), networks=("127.0.0.0/8",), connections=8)
        with_facts = Spec(repo=outside.folder / "repo", egress=egress, limits=LIMITS)
        sandbox = await backend.create(with_facts)
        assert isinstance(sandbox, AgentSandbox)
        await sandbox.write("facts.json", json.dumps(outside.facts).encode())
        yield sandbox
        await sandbox.destroy()
    assert outside.knocks == []


async def tried(sandbox: AgentSandbox, bodies: dict[str, str]) -> dict[str, str]:
    """Return the result of each attempt that had one."""
    attempts = [
        f"def attempt_{number}():\n    {body.strip()}\n" for number, body in enumerate(bodies.values())
    ]
    calls = ", ".join(f"tried(attempt_{number})" for number in range(len(bodies)))
    output = await python(sandbox, "\n".join([HELPERS, *attempts, f"print(json.dumps([{calls}]))"]))
    found = zip(bodies, json.loads(output.splitlines()[-1]), strict=True)
    return {name: got for name, got in found if got != "None"}


async def reaches(sandbox: AgentSandbox, outside: Outside) -> bool:
    target = f"b'GET http://good.test:{outside.facts['allowed']}/ HTTP/1.1\\r\\n\\r\\n'"
    return "hello" in (await tried(sandbox, {"it": f"return said({target})"})).get("it", "")


async def test_nothing_gets_around_the_proxy(held: AgentSandbox, outside: Outside) -> None:
    assert await tried(held, AROUND) == {}
    assert await reaches(held, outside)


async def test_the_proxy_is_the_only_way_out(held: AgentSandbox) -> None:
    result = await held.exec(f"python attempts.py facts.json {' '.join(NETWORK)}")
    found = json.loads(result.output.splitlines()[-1])
    assert found == dict.fromkeys(NETWORK)


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_ends_with_its_program(held: AgentSandbox, outside: Outside, flood: str) -> None:
    await tried(held, {flood: FLOODS[flood]})
    assert await reaches(held, outside)
