"""A runner that is killed leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sandbox.backends.namespaces.test_backend import descendants
from tests.sandbox.conftest import opened

from ostinato.sandbox import Backend

PATIENCE_S = 120.0
RUNNER = """
import asyncio, sys
from pathlib import Path
from ostinato.sandbox import Spec
from ostinato.sandbox.choose import DEFAULT, KINDS

async def main():
    backend = await KINDS[sys.argv[1]].make(DEFAULT)
    sandbox = await backend.create(Spec(repo=Path(sys.argv[2])))
    await sandbox.start("sleep 1000 & setsid sleep 1000 & echo up; sleep 1000", timeout_s=1000)
    print("up", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["ns", "landlock"])
def test_nothing_outlives_a_killed_runner(name: str, backends: dict[str, Backend], repo: Path) -> None:
    opened(name, backends)
    command = [sys.executable, "-c", RUNNER, name, str(repo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"up\n"
        begun = time.monotonic()
        while len(born := set(descendants(runner.pid))) < 6:  # the last of them starts after the word
            assert time.monotonic() < begun + PATIENCE_S, born
            time.sleep(0.02)
        os.kill(runner.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in born if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
