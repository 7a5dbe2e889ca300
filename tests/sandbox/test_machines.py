"""The promises of only those backends whose sandboxes have a kernel of their own (`make test-sandboxes`).

Covers sandbox/backends/vm/backend.py, sandbox/backends/vm/machine.py, sandbox/linux/process_tree.py,
sandbox/backends/vm/gvisor/backend.py, sandbox/backends/vm/gvisor/bundle.py,
sandbox/backends/vm/gvisor/runsc.py, sandbox/backends/vm/qemu/backend.py, sandbox/backends/vm/qemu/image.py
and sandbox/backends/vm/qemu/guest_files.py.
"""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.sandbox.backends.namespaces.test_backend import descendants, until_gone
from tests.sandbox.conftest import MACHINES, opened

from ostinato.sandbox import Backend, Mount, SandboxError, SnapshotKind, Spec
from ostinato.sandbox.backends.vm.backend import VmBackend
from ostinato.sandbox.backends.vm.machine import VirtualMachine

pytestmark = pytest.mark.machines
COUNT = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.05; done"


@pytest.fixture(params=MACHINES)
def machines(request: pytest.FixtureRequest, backends: dict[str, Backend]) -> Backend:
    return opened(request.param, backends)


async def test_forks_have_names_and_randomness_of_their_own(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    forks = [sandbox, *await sandbox.fork(2)]
    for command in ("hostname", "cat /etc/machine-id", "head -c 16 /dev/urandom | od -x", "mktemp -u"):
        seen = [(await each.exec(command)).output for each in forks]
        assert len(set(seen)) == len(forks), (command, seen)
    dates = [(await each.exec("date +%s")).output for each in forks]
    assert all(abs(int(date) - time.time()) < 60 for date in dates)
    for each in forks:
        await each.destroy()


async def test_a_running_command_continues_in_a_fork(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    process = await sandbox.start(COUNT)
    while "count" not in await sandbox.files():
        await asyncio.sleep(0.05)
    (fork,) = await sandbox.fork()
    for each in (sandbox, fork):
        one = int(await each.read("count") or b"0")
        while int(await each.read("count") or b"0") <= one + 1:
            await asyncio.sleep(0.05)
    await process.signal(signal.SIGKILL)
    assert (await process.wait()).exit_code == -9
    await fork.destroy()
    await sandbox.destroy()


async def test_a_channel_full_of_output_does_not_spoil_a_fork(machines: Backend, repo: Path) -> None:
    """Half a frame may be on its way at the save: the copy skips it, the original loses nothing."""
    sandbox = await machines.create(Spec(repo=repo))
    process = await sandbox.start("seq 1 60000")
    output = process.output()
    text = await anext(output)
    (fork,) = await sandbox.fork()
    assert (await fork.exec("cat sub/note.txt")).output == "hello\n"
    async for data in output:
        text += data
    assert text == b"".join(b"%d\n" % number for number in range(1, 60001))
    assert (await process.wait()).exit_code == 0
    await fork.destroy()
    await sandbox.destroy()


async def test_a_fork_of_a_fork_and_of_a_paused_sandbox(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    await sandbox.exec("echo one > a")
    (second,) = await sandbox.fork()
    await second.exec("echo two >> a")
    await second.pause()
    (third,) = await second.fork()
    await third.exec("echo three >> a")
    assert await third.read("a") == b"one\ntwo\nthree\n"
    await second.resume()
    assert await second.read("a") == b"one\ntwo\n"
    assert await sandbox.read("a") == b"one\n"
    for each in (sandbox, second, third):
        await each.destroy()


async def test_full_snapshots_one_after_another_lose_nothing(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    await sandbox.start("sleep 1000")
    for number in range(3):
        await sandbox.exec(f"echo {number} >> log; rm -f gone{number - 1}; echo x > gone{number}")
        snapshot = await sandbox.snapshot(SnapshotKind.FULL)
        await sandbox.destroy()
        sandbox = await machines.restore(snapshot, Spec(repo=repo))
        await machines.remove(snapshot)
    assert await sandbox.changes() == {"log": b"0\n1\n2\n", "gone2": b"x\n"}
    await sandbox.destroy()


async def test_a_snapshot_of_another_base_is_refused(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    snapshot = await sandbox.snapshot(SnapshotKind.FULL)
    await sandbox.destroy()
    (snapshot.path / "base").write_text("another")
    with pytest.raises(SandboxError, match="base another"):
        await machines.restore(snapshot, Spec(repo=repo))
    other = dataclasses.replace(snapshot, backend="ns")
    with pytest.raises(SandboxError, match="backend ns"):
        await machines.restore(other, Spec(repo=repo))
    await machines.remove(snapshot)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system with hardly any room."""
    place = tmp_path / "tiny"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_disk_leaves_no_snapshot_and_the_sandbox_alive(
    machines: Backend, repo: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    await sandbox.exec("head -c 1000000 /dev/urandom > big")
    monkeypatch.setattr(machines.snapshot_store, "_state", tiny)  # type: ignore[attr-defined]
    for kind in SnapshotKind:
        with pytest.raises(SandboxError):
            await sandbox.snapshot(kind)
        assert list(tiny.iterdir()) == []
    assert (await sandbox.exec("wc -c < big")).output.strip() == "1000000"
    await sandbox.destroy()


SCRIPT = """
import asyncio, sys
from pathlib import Path
from ostinato.sandbox import Spec
from ostinato.sandbox.backends.vm.backend import VmBackend
from ostinato.sandbox.backends.vm.machine import VirtualMachine
from ostinato.sandbox.choose import DEFAULT, KINDS

async def main():
    backend = await KINDS[sys.argv[1]].make(DEFAULT)
    sandbox = await backend.create(Spec(repo=Path(sys.argv[2])))
    await sandbox.start("sleep 1000")
    print("ready", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_outlives_a_killed_backend(name: str, backends: dict[str, Backend], repo: Path) -> None:
    opened(name, backends)
    with tempfile.TemporaryDirectory(prefix="killed-") as scratch:
        backend = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, str(repo)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": scratch},
        )
        assert backend.stdout is not None
        with backend.stdout:
            assert backend.stdout.readline() == b"ready\n"
            program = "runsc" if name == "gvisor" else "qemu-system"
            assert any(program in words for words in _named(scratch).values())
            backend.kill()
            backend.wait()
        deadline = time.monotonic() + 10
        while (left := _named(scratch)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left


def _named(directory: str) -> dict[int, str]:
    """Return the processes with a directory in their arguments or environment, none of other tests."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_text(errors="replace")
            if directory in words or directory in (process / "environ").read_text(errors="replace"):
                found[int(process.name)] = words.replace("\0", " ")
    return found


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_machine_lost_while_it_is_loaded_is_loaded_again_once(
    machines: Backend, repo: Path, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    assert isinstance(machines, VmBackend)
    sandbox, load, left = await machines.create(Spec(repo=repo)), machines.engine.load, [None] * losses

    async def lose(place: Path, spec: Spec) -> VirtualMachine:
        machine = await load(place, spec)
        if left:
            left.pop()
            process = machine._process  # type: ignore[attr-defined]
            inner = set(descendants(process.pid))
            os.killpg(process.pid, signal.SIGKILL)  # at once, so that none of them starts another meanwhile
            await asyncio.to_thread(process.wait)
            await until_gone(inner)  # else the guest may answer before it hears of the death
        return machine

    monkeypatch.setattr(machines.engine, "load", lose)
    if losses == 1:
        (fork,) = await sandbox.fork()
        assert await fork.read("sub/note.txt") == b"hello\n"
        await fork.destroy()
    else:
        with pytest.raises(SandboxError, match="lost two machines"):
            await sandbox.fork()
    await sandbox.destroy()


async def test_directories_and_files_are_mounted(machines: Backend, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "list").write_text("one\n")
    (tmp_path / "key").write_text("two\n")
    mounts = (
        Mount(source=tmp_path / "wheels", target="/mnt/deep/wheels"),
        Mount(source=tmp_path / "key", target="/mnt/name"),
    )
    sandbox = await machines.create(Spec(repo=repo, mounts=mounts))
    assert (await sandbox.exec("cat /mnt/deep/wheels/list /mnt/name")).output == "one\ntwo\n"
    assert (await sandbox.exec("echo three > /mnt/name")).exit_code != 0
    await sandbox.destroy()


async def test_a_machine_that_died_is_an_error(machines: Backend, repo: Path) -> None:
    sandbox = await machines.create(Spec(repo=repo))
    process = await sandbox.start("sleep 1000")
    await sandbox._machine.end()  # type: ignore[attr-defined]
    with pytest.raises(SandboxError, match="died"):
        await process.wait()
    with pytest.raises(SandboxError, match="died"):
        await sandbox.exec("true")
    await sandbox.destroy()
