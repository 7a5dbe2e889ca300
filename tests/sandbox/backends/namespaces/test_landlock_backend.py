"""Landlock sandboxes share their user's count of processes, and each has a bound of its own all the same.

Covers sandbox/backends/namespaces/landlock_backend.py, sandbox/backends/namespaces/landlock_child.py and
sandbox/linux/landlock.py; tests/sandbox/test_conformance.py runs over this backend, too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import opened

from ostinato.sandbox import Backend, Limits, Spec

FEW = Limits(processes=20)
MANY = 40
CROWD = f"""
import threading, time
for _ in range({MANY}):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("here", flush=True)
time.sleep(1000)
"""
BOMB = f"""
import subprocess
started = []
try:
    for _ in range({MANY}):
        started.append(subprocess.Popen(["sleep", "10"]))
except BlockingIOError:
    pass
print(len(started))
"""


@pytest.fixture
def landlocked(backends: dict[str, Backend]) -> Backend:
    return opened("landlock", backends)


def gather() -> subprocess.Popen[bytes]:
    """Start threads of this user, which the kernel counts like processes."""
    process = subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"here\n"
    return process


@pytest.fixture
def crowd() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list of processes that end with the test."""
    gathered: list[subprocess.Popen[bytes]] = []
    yield gathered
    for process in gathered:
        process.kill()
        process.communicate()


async def test_other_processes_of_the_user_do_not_count_against_a_sandbox(
    landlocked: Backend, repo: Path, crowd: list[subprocess.Popen[bytes]]
) -> None:
    crowd.append(gather())
    sandbox = await landlocked.create(Spec(repo=repo, limits=FEW))
    assert (await sandbox.exec("echo one | cat")).output == "one\n"
    crowd.append(gather())
    assert (await sandbox.exec("echo two | cat")).output == "two\n"
    await sandbox.destroy()


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not count root's processes")
async def test_no_command_has_more_processes_than_its_limit(landlocked: Backend, repo: Path) -> None:
    sandbox = await landlocked.create(Spec(repo=repo, limits=FEW))
    await sandbox.write("bomb.py", BOMB.encode())
    first = await sandbox.start("sleep 10")
    assert 1 < int((await sandbox.exec("python bomb.py")).output) <= FEW.processes
    await first.signal(9)
    await sandbox.destroy()
