"""Groups are made, bounded and removed, also those of a runner that has died."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.sandbox.linux import cgroup


@pytest.fixture
def place() -> Path:
    found = cgroup.usable()
    if found is None:
        pytest.skip("no cgroup can be made here")
    return found[1]


def test_a_closed_directory_leaves_nothing(place: Path) -> None:
    before = _ours(place)
    directory = cgroup.create_directory()
    assert directory is not None
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(directory.version), str(directory.directory)],
        pass_fds=[directory.directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{directory._path.name}/1" in child.stdout, child.stderr
    directory.release("1")
    os.mkdir("two", dir_fd=directory.directory)
    directory.close()
    assert _ours(place) == before


def test_closing_ends_processes_that_a_killed_zygote_left(place: Path) -> None:
    before = _ours(place)
    directory = cgroup.create_directory()
    assert directory is not None
    command = [sys.executable, "-c", f"{CHILD}input()", str(directory.version), str(directory.directory)]
    with subprocess.Popen(
        command, pass_fds=[directory.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        directory.close()
        assert child.wait(30) == -signal.SIGKILL
    assert _ours(place) == before


def test_a_process_of_another_pid_namespace_is_not_taken_for_ours(tmp_path: Path) -> None:
    """The kernel shows such a process as 0, which `kill` takes for the caller's process group."""
    (tmp_path / "cgroup.procs").write_text("0\n")
    script = "import sys; from pathlib import Path; from ostinato.sandbox.linux import cgroup"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; cgroup._end(Path(sys.argv[1])); print('lives')", str(tmp_path)],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert done.stdout == "lives\n", done.stderr


def test_an_empty_group_is_used_again(place: Path) -> None:
    directory = cgroup.create_directory()
    assert directory is not None
    first = directory.acquire()
    directory.release(first)
    assert directory.acquire() == first
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as inside:
        (directory._path / first / "cgroup.procs").write_text(str(inside.pid))
        directory.release(first)
        second = directory.acquire()
        assert second != first
        inside.communicate(b"\n")
    directory.release(second)
    assert directory.acquire() == second
    directory.close()
    assert not directory._path.exists()


def test_the_number_of_idle_groups_is_bounded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_MAX_IDLE", 2)
    directory = cgroup.create_directory()
    assert directory is not None
    for name in [directory.acquire() for _ in range(5)]:
        directory.release(name)
    assert len([path for path in directory._path.iterdir() if path.is_dir()]) == 2
    directory.close()


def _ours(place: Path) -> set[str]:
    return {path.name for path in place.glob(f"ostinato-{os.getpid()}-*")}


CHILD = """
import sys
from ostinato.sandbox.linux.cgroup import CgroupPool
groups = CgroupPool(int(sys.argv[1]), int(sys.argv[2]))
name = groups.acquire()
groups.enter(name)
groups.limit(name, 2**28)
print(open("/proc/self/cgroup").read(), flush=True)
"""


def test_groups_of_a_dead_runner_are_removed(place: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = place / f"ostinato-{dead.pid}-abc"
    (left / "1").mkdir(parents=True)
    ours = place / f"ostinato-{os.getpid()}-abc"
    ours.mkdir()
    directory = cgroup.create_directory()
    assert directory is not None
    directory.close()
    assert not left.exists()
    assert ours.exists()
    ours.rmdir()


def test_without_a_writable_group_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    assert cgroup.usable.__wrapped__() is None


def test_the_second_version_is_used_where_memory_is_delegated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This uses a directory that looks like a cgroup, since no test machine delegates memory."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_own", lambda: {"": "/user"})
    (tmp_path / "user").mkdir()
    (tmp_path / "user/cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroup._second_version() == tmp_path / "user"
    (tmp_path / "user/cgroup.controllers").write_text("hugetlb\n")
    assert cgroup._second_version() is None
