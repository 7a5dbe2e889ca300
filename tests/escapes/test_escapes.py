# ruff: noqa: E501
"""Every known way out of a sandbox, tried on every backend that claims to be a boundary."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.escapes.attempts import ATTEMPTS, LIVE, SHARED
from tests.escapes.conftest import Outside

from ostinato.sandbox import Backend, Limits, Sandbox, SandboxError, Spec
from ostinato.sandbox.base import Isolation

LIMITS = Limits(memory_mb=400, processes=30, cpu_s=20, wall_s=60, disk_mb=8)
SMALL = Limits(memory_mb=200, processes=30, cpu_s=2, wall_s=6, disk_mb=8)
_FOUND: dict[str, dict[str, Any]] = {}


def test_the_corpus_has_the_documented_size() -> None:
    assert len(ATTEMPTS) + len(BOMBS) >= 60


async def test_the_attempts_are_real(outside: Outside) -> None:
    """The attempts succeed on this machine without a sandbox, so it is the sandbox that stops them."""
    command = [sys.executable, "attempts.py", "facts.json", *sorted(LIVE)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=outside.facts["repo"], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    assert {name for name, evidence in found.items() if evidence is not None} == LIVE
    await asyncio.sleep(0.2)  # until the doors have noted who knocked
    outside.knocks.clear()


async def attempts(backend: Backend, outside: Outside) -> dict[str, Any]:
    """Return the result of each attempt in one sandbox of `backend`; they are made once."""
    name = f"{backend.name} {backend.capabilities.isolation}"
    if name not in _FOUND:
        before = outside.state()
        sandbox = await backend.create(Spec(repo=Path(outside.facts["repo"]), limits=LIMITS))
        result = await sandbox.exec("python attempts.py facts.json")
        alive = await sandbox.exec("echo alive")
        await sandbox.destroy()
        assert result.exit_code == 0, result.output
        _FOUND[name] = json.loads(result.output.splitlines()[-1])
        _FOUND[name] |= {"alive": alive.output, "before": before, "after": outside.state()}
    return _FOUND[name]


@pytest.mark.parametrize("name", ATTEMPTS)
async def test_no_attempt_gets_out(backend: Backend, outside: Outside, name: str) -> None:
    if name in SHARED and backend.capabilities.isolation is not Isolation.NAMESPACES:
        pytest.skip("the kernel it speaks to is the sandbox's own")
    assert (await attempts(backend, outside))[name] is None


async def test_the_machine_is_as_it_was(backend: Backend, outside: Outside) -> None:
    found = await attempts(backend, outside)
    assert found["after"] == found["before"]
    assert found["alive"] == "alive\n"
    assert outside.knocks == []
    await until_gone(outside)


async def until_gone(outside: Outside) -> None:
    async with asyncio.timeout(300):
        while outside.left_behind():
            await asyncio.sleep(0.05)


BOMBS = {
    "forks": "import os\nwhile True:\n    os.fork()",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
    "memory": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "memory of many": "import os\nfor _ in range(8): os.fork()\nx = []\nwhile True: x += [bytearray(1 << 22)]",
    "disk": "with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "disk of many files": "for i in range(10**6): open(f'f{i}', 'wb').write(bytes(1 << 18))",
    "inodes": "for i in range(10**7): open(f'f{i}', 'w').close()",
    "folders": "import os\nfor i in range(10**7): os.mkdir('d'); os.chdir('d')",
    "scratch": "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "shared memory": "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
    "anonymous files": "import os\nk = []\nwhile True:\n    k.append(os.memfd_create('x')); os.write(k[-1], bytes(1 << 20))",
    "descriptors": "import os\nwhile True: os.dup(0)",
    "pipes": "import os, fcntl\nwhile True: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
    "sockets": "import socket\nk = []\nwhile True: k.append(socket.socketpair())",
    "processor": "while True: pass",
    "output": "while True: print('x' * 65536)",
    "deaf to signals": "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass",
    "zombies": "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_bomb_harms_only_itself(backend: Backend, outside: Outside, bomb: str) -> None:
    if backend.capabilities.isolation is not Isolation.NAMESPACES and bomb not in ("forks", "memory", "disk"):
        pytest.skip("one of each kind is enough for a kernel of its own")
    before = outside.state()
    sandbox = await backend.create(Spec(repo=Path(outside.facts["repo"]), limits=SMALL))
    await explode(sandbox, f"{BOMBS[bomb]}\n# {outside.marker}")
    await sandbox.destroy()
    again = await backend.create(Spec(repo=Path(outside.facts["repo"]), limits=SMALL))
    assert (await again.exec("echo alive")).output == "alive\n"
    await again.destroy()
    assert outside.state() == before
    await until_gone(outside)


async def explode(sandbox: Sandbox, code: str) -> None:
    """Run a bomb until it ends or is ended. The sandbox may die of it, and must then say so."""
    try:
        await sandbox.write("bomb.py", code.encode())
        result = await sandbox.exec("python bomb.py", timeout_s=3)
        assert result.timed_out or result.exit_code != 0
        assert (await sandbox.exec("echo alive")).output == "alive\n"
    except SandboxError as error:
        assert "died" in str(error) or "did not respond" in str(error)  # noqa: PT017
