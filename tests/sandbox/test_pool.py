"""Children of the zygote that wait for orders: bursts, deaths, and their identities.

Covers sandbox/protocol/order.py and sandbox/backends/namespaces/zygote.py.
"""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.sandbox.backends.namespaces.test_backend import descendants

from ostinato.sandbox import Backend, Sandbox, SandboxError, Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.backends.namespaces.launcher import AT_ONCE

RANDOM = """
import os, random, socket, tempfile

def test_shown():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"%r" % random.random())
        os._exit(0)
    child = os.read(read, 100).decode()
    assert child != repr(random.random())
    print("SEEN", random.random(), socket.gethostname(), tempfile.mktemp(), child)
"""


async def seen(sandbox: Sandbox) -> list[str]:
    await sandbox.write("test_random.py", f"{RANDOM}\n# {sandbox.id}, so that nothing is remembered".encode())
    result = await sandbox.exec("python -m pytest -q -s test_random.py")
    return next(line for line in result.output.splitlines() if "SEEN" in line).split()[-4:]


async def test_no_two_have_the_same_randomness_or_identity(ns_backend: Backend, repo: Path) -> None:
    one = await ns_backend.create(Spec(repo=repo))
    two, three = await one.fork(2)
    shown = [await seen(sandbox) for sandbox in (one, two, three)]
    for column in zip(*shown, strict=True):
        assert len(set(column)) == 3, column
    assert (await two.exec("cat /etc/machine-id; hostname")).output == f"{two.id}\n{two.id}\n"
    for sandbox in (one, two, three):
        await sandbox.destroy()


async def test_a_burst_far_larger_than_the_pool_is_served(ns_backend: Backend, repo: Path) -> None:
    sandboxes = await asyncio.gather(*(ns_backend.create(Spec(repo=repo)) for _ in range(100)))
    assert len({sandbox.id for sandbox in sandboxes}) == 100
    assert (await sandboxes[57].exec("echo fine")).output == "fine\n"
    await asyncio.gather(*(sandbox.destroy() for sandbox in sandboxes))


async def test_children_that_die_waiting_are_replaced(repo: Path) -> None:
    before, backend = descendants(os.getpid()).keys(), NsBackend()
    await (await backend.create(Spec(repo=repo))).destroy()
    await asyncio.sleep(0.3)
    tree = descendants(os.getpid())
    (outer,) = {pid for pid, parent in tree.items() if parent == os.getpid() and pid not in before}
    (inner,) = {pid for pid, parent in tree.items() if parent == outer}
    for pid in {pid for pid, parent in tree.items() if parent == inner}:
        os.kill(pid, signal.SIGKILL)
    for _ in range(5):
        sandbox = await backend.create(Spec(repo=repo))
        assert (await sandbox.exec("echo back")).output == "back\n"
        await sandbox.destroy()
    await backend.aclose()


async def test_an_order_too_large_is_refused_and_a_large_one_is_not(ns_backend: Backend, repo: Path) -> None:
    with pytest.raises(SandboxError, match="too large"):
        await ns_backend.create(Spec(repo=repo, environment={"A": "x" * 300_000}))
    sandbox = await ns_backend.create(Spec(repo=repo, environment={"A": "x" * 100_000}))
    assert (await sandbox.exec("echo ${#A}")).output == "100000\n"
    await sandbox.destroy()


async def test_each_sandbox_has_its_own_loopback(ns_backend: Backend, repo: Path) -> None:
    code = (
        "import socket; here = ('127.0.0.1', 8000); s = socket.create_server(here)\n"
        "c = socket.create_connection(here); a, _ = s.accept(); c.sendall(b'hello'); print(a.recv(9))"
    )
    one, two = await ns_backend.create(Spec(repo=repo)), await ns_backend.create(Spec(repo=repo))
    for sandbox in (one, two):
        await sandbox.write("serve.py", code.encode())
    both = await asyncio.gather(one.exec("python serve.py"), two.exec("python serve.py"))
    assert [each.output for each in both] == ["b'hello'\n"] * 2
    await one.destroy()
    await two.destroy()


async def test_an_order_beyond_those_that_are_begun_at_once_waits_for_a_place(repo: Path) -> None:
    backend = NsBackend()
    try:
        await (await backend.create(Spec(repo=repo))).destroy()
        zygote = await backend._ready_zygote(None)
        async with AsyncExitStack() as places:
            for _ in range(AT_ONCE):
                await places.enter_async_context(zygote.place())
            waiting = asyncio.create_task(backend.create(Spec(repo=repo)))
            assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        await (await waiting).destroy()
    finally:
        await backend.aclose()
