"""Groups are made, bounded and removed; what a dead runner left is swept up."""

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


def test_a_room_leaves_nothing(place: Path) -> None:
    before = _ours(place)
    room = cgroup.create_directory()
    assert room is not None
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(room.version), str(room.directory)],
        pass_fds=[room.directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{room._path.name}/1" in child.stdout, child.stderr
    room.release("1")
    os.mkdir("two", dir_fd=room.directory)
    room.close()
    assert _ours(place) == before


def test_closing_ends_what_a_killed_zygote_left_running(place: Path) -> None:
    before = _ours(place)
    room = cgroup.create_directory()
    assert room is not None
    command = [sys.executable, "-c", f"{CHILD}input()", str(room.version), str(room.directory)]
    with subprocess.Popen(
        command, pass_fds=[room.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        room.close()
        assert child.wait(30) == -signal.SIGKILL
    assert _ours(place) == before


def test_one_of_another_pid_namespace_is_not_taken_for_ourselves(tmp_path: Path) -> None:
    """The kernel writes 0 for it, which `kill` understands as the caller's process group."""
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


def test_a_group_is_used_again_when_nothing_is_left_in_it(place: Path) -> None:
    room = cgroup.create_directory()
    assert room is not None
    first = room.acquire()
    room.release(first)
    assert room.acquire() == first
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as inside:
        (room._path / first / "cgroup.procs").write_text(str(inside.pid))
        room.release(first)
        second = room.acquire()
        assert second != first
        inside.communicate(b"\n")
    room.release(second)
    assert room.acquire() == second
    room.close()
    assert not room._path.exists()


def test_no_more_groups_than_a_bound_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_MAX_IDLE", 2)
    room = cgroup.create_directory()
    assert room is not None
    for name in [room.acquire() for _ in range(5)]:
        room.release(name)
    assert len([path for path in room._path.iterdir() if path.is_dir()]) == 2
    room.close()


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


def test_what_a_dead_runner_left_is_swept(place: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = place / f"ostinato-{dead.pid}-abc"
    (left / "1").mkdir(parents=True)
    ours = place / f"ostinato-{os.getpid()}-abc"
    ours.mkdir()
    room = cgroup.create_directory()
    assert room is not None
    room.close()
    assert not left.exists()
    assert ours.exists()
    ours.rmdir()


def test_no_group_to_write_to_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    assert cgroup.usable.__wrapped__() is None


def test_the_second_version_is_used_where_memory_is_delegated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a directory that looks like one: no machine of ours has the controllers there."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_own", lambda: {"": "/user"})
    (tmp_path / "user").mkdir()
    (tmp_path / "user/cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroup._second_version() == tmp_path / "user"
    (tmp_path / "user/cgroup.controllers").write_text("hugetlb\n")
    assert cgroup._second_version() is None
