"""The abilities of plain processes alone: to work in place, and to find processes that were left behind.

Covers sandbox/backends/process/backend.py, sandbox/backends/process/command.py and
sandbox/linux/stray_processes.py.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ostinato.git import BINDING
from ostinato.sandbox import Spec
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.judged import channel
from ostinato.sandbox.exam.judged.host import worker_process

PATIENCE_S = 120.0


async def test_in_place_changes_the_repository_itself(repo: Path) -> None:
    backend = ProcessBackend(in_place=True)
    sandbox = await backend.create(Spec(repo=repo))
    assert sandbox.root == str(repo)
    await sandbox.write("calc.py", b"x = 1\n")
    await sandbox.exec("rm test_calc.py")
    assert (repo / "calc.py").read_text() == "x = 1\n"
    assert await sandbox.changes() == {"calc.py": b"x = 1\n", "test_calc.py": None}
    await backend.aclose()
    assert repo.is_dir()


async def test_a_copy_is_removed(repo: Path) -> None:
    backend = ProcessBackend()
    sandbox = await backend.create(Spec(repo=repo))
    assert Path(sandbox.root).is_dir()
    await backend.aclose()
    assert not Path(sandbox.root).parent.exists()


async def test_it_does_not_claim_to_be_a_boundary() -> None:
    assert not ProcessBackend().capabilities.boundary


def carrying(marker: str) -> list[str]:
    """Return the processes that have `marker` among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


LEAVING = {
    "its group": "set -m; sh -c 'sleep 1000; :' sh {marker} &",
    "its session": "setsid sh -c 'sleep 1000; :' sh {marker} &",
    "its session, stopped": "setsid sh -c 'kill -STOP $$; :' sh {marker} &",
    "its parent": "(setsid sh -c 'sleep 1000 & sleep 1000; :' sh {marker} &) ; sleep 0.05",
    "its name": "(exec setsid sh -c 'exec sh -c \"sleep 1000; :\" sh {marker}' &)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
@pytest.mark.parametrize("what", LEAVING)
async def test_processes_that_left_the_session_are_ended(repo: Path, what: str) -> None:
    marker = uuid.uuid4().hex
    sandbox = await ProcessBackend().create(Spec(repo=repo))
    command = LEAVING[what].format(marker=marker)
    result = await sandbox.exec(f"{command}\nsleep 0.2; grep -l {marker} /proc/[0-9]*/cmdline | wc -l")
    assert int(result.output.split()[-1]) >= 1, "it was there"
    assert carrying(marker) == []
    await sandbox.destroy()


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
async def test_in_place_a_process_that_left_its_session_lives_on(repo: Path) -> None:
    """Build servers and agents that a user started stay."""
    marker = uuid.uuid4().hex
    sandbox = await ProcessBackend(in_place=True).create(Spec(repo=repo))
    await sandbox.exec(f"setsid sh -c 'sleep 1000; :' sh {marker} > /dev/null 2>&1 & sleep 0.2")
    left = carrying(marker)
    for pid in left:
        os.killpg(int(pid), signal.SIGKILL)
    assert left
    await sandbox.destroy()


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
async def test_the_worker_of_an_exam_leaves_no_process_behind(tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    left = ["setsid", "sh", "-c", "kill -STOP $$; :", "sh", marker]
    (tmp_path / "calc.py").write_text(f"import subprocess\nsubprocess.Popen({left})\n")
    async with worker_process(str(tmp_path), 0) as asks:
        channel.send(asks, {"use": "import", "module": "calc", "args": [], "kwargs": {}})
        async with asyncio.timeout(PATIENCE_S):
            while not carrying(marker):
                await asyncio.sleep(0.01)
    assert carrying(marker) == []


async def test_in_place_no_variable_of_a_caller_binds_git_to_another_repository(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when `ostinato code` is started by a hook of git, or by `git -c … rebase --exec`."""
    asked = ("git", "rev-parse", "--local-env-vars")
    local = set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())
    assert local - BINDING <= {"GIT_CONFIG_COUNT"}, "which has settings of the person"
    other = tmp_path / "other"
    for each in (other, repo):
        subprocess.run(["git", "init", "--quiet", str(each)], check=True)
    for name in BINDING:
        monkeypatch.setenv(name, str(other / ".git"))
    backend = ProcessBackend(in_place=True)
    sandbox = await backend.create(Spec(repo=repo))
    said = await sandbox.exec("git rev-parse --absolute-git-dir && git add -A && git status --short | wc -l")
    assert said.output.splitlines()[0] == str(repo / ".git") and said.exit_code == 0
    assert not (other / ".git/index").exists() and (repo / ".git/index").exists()
    await backend.aclose()
