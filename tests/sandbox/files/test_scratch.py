"""Temporary directories are removed by their process, or by the next one of their user."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ostinato.sandbox.files import scratch
from ostinato.sandbox.files.scratch import Scratch

KILLED = """
import os, signal
from ostinato.sandbox.files.scratch import Scratch

made = Scratch("test")
(made.path / "kept").mkdir(mode=0)
print(made.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
HOLDING = """
import sys
from ostinato.sandbox.files.scratch import Scratch

made = Scratch("test")
print(made.path, flush=True)
sys.stdin.read()
"""
HOURS = 3600.0


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch.sweep.cache_clear()
    return tmp_path


def made_old(path: Path) -> None:
    then = time.time() - HOURS
    os.utime(path, (then, then))


def test_it_is_removed_with_all_that_is_in_it() -> None:
    with Scratch("test") as made:
        (made.path / "folder").mkdir()
        (made.path / "folder" / "file").write_text("text")
        (made.path / "folder").chmod(0)
    assert not made.path.exists()
    made.close()


def test_a_directory_of_a_killed_process_is_removed_by_the_next(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.parent == place
    assert left.is_dir()
    made_old(left)
    with Scratch("test"):
        assert not left.exists()


def test_a_directory_of_a_living_process_stays() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        held = Path(holder.stdout.readline().strip())
        made_old(held)
        with Scratch("test"):
            assert held.is_dir()
        holder.communicate()


def test_a_young_directory_and_one_of_another_user_stay(place: Path) -> None:
    young, other = place / "ostinato-sandbox-test-abcdefgh", place / "ostinato-sandbox-of-mine"
    link, target = place / "ostinato-sandbox-test-abcdefgi", place / "target"
    for path in (young, other, target):
        path.mkdir()
    link.symlink_to(target)
    made_old(other)
    made_old(target)
    with Scratch("test"):
        assert young.is_dir()
        assert other.is_dir()
        assert target.is_dir()


def test_a_directory_that_is_locked_meanwhile_stays(place: Path) -> None:
    left = place / "ostinato-sandbox-test-abcdefgh"
    left.mkdir()
    made_old(left)
    lock = scratch._locked(left)
    with Scratch("test"):
        assert left.is_dir()
    os.close(lock)
