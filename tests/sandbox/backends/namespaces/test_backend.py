"""The boundary: the limits of code in a sandbox of namespaces.

Covers sandbox/backends/namespaces/backend.py, sandbox/backends/namespaces/launcher.py,
sandbox/backends/namespaces/confinement.py, sandbox/backends/namespaces/namespace_child.py and
sandbox/linux/syscalls.py: code cannot see, reach, use up or outlive more than it may. Also covers
sandbox/backends/environment.py: no variable of the runner reaches a command.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, ExecResult, Limits, SandboxError, Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend

SMALL = Limits(memory_mb=200, processes=20, cpu_s=2, wall_s=4.0)


async def python(backend: Backend, repo: Path, code: str, limits: Limits = SMALL) -> str:
    sandbox = await backend.create(Spec(repo=repo, limits=limits))
    await sandbox.write("probe.py", code.encode())
    result = await sandbox.exec("python probe.py 2>&1")
    await sandbox.destroy()
    return result.output


async def test_there_is_no_network(ns_backend: Backend, repo: Path) -> None:
    code = "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)"
    assert "unreachable" in await python(ns_backend, repo, code)


async def test_a_sandbox_and_its_fork_resolve_their_own_names(ns_backend: Backend, repo: Path) -> None:
    resolve = "python -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; cat /etc/hosts"
    sandbox = await ns_backend.create(Spec(repo=repo))
    (fork,) = await sandbox.fork()
    for each in (sandbox, fork):
        name = (await each.exec("cat /proc/sys/kernel/hostname")).output.strip()
        assert (await each.exec(resolve)).output == f"127.0.0.1\n127.0.0.1 localhost {name}\n"
        assert (await each.exec("echo x >> /etc/hosts")).exit_code
    await sandbox.destroy()
    await fork.destroy()


@pytest.mark.parametrize(
    "path", [str(Path.home() / ".bashrc"), "/etc/shadow", "/.host/usr", "/sys/kernel", __file__]
)
async def test_files_of_the_machine_cannot_be_seen(ns_backend: Backend, repo: Path, path: str) -> None:
    assert "False" in await python(ns_backend, repo, f"import os; print(os.path.exists({path!r}))")


async def test_nothing_outside_can_be_written(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo))
    for target in (
        "/usr/evil",
        "/etc/evil",
        "/evil",
        "/proc/sys/kernel/hostname",
        "/dev/evil",
        sys.prefix + "/evil",
    ):
        result = await sandbox.exec(f"echo x > {target}")
        assert result.exit_code != 0, target
    assert (await sandbox.exec("echo x > /tmp/fine && cat /tmp/fine")).output == "x\n"
    await sandbox.destroy()


async def test_no_other_process_is_visible_and_none_can_be_harmed(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo))
    assert (await sandbox.exec("ls -d /proc/[0-9]* | wc -l")).output.strip() in {"2", "3", "4"}
    await sandbox.exec("kill -9 1; kill -9 -1")
    for what in ("mem", "fd/0", "environ", "maps"):
        assert (await sandbox.exec(f"cat /proc/1/{what} > /dev/null")).exit_code != 0, what
    assert (await sandbox.exec("echo alive")).output == "alive\n"
    await sandbox.destroy()


async def test_no_namespace_mount_or_trace(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo))
    for command in (
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
        "umount /repo",
        "chroot / true",
    ):
        assert (await sandbox.exec(command)).exit_code != 0, command
    calls = "l.ptrace(16, 1, 0, 0), l.setns(0, 0), l.unshare(1 << 28)"
    code = f"import ctypes; l = ctypes.CDLL(None); print({calls})"
    assert (await python(ns_backend, repo, code)) == "-1 -1 -1\n"
    assert (
        await sandbox.exec("grep -E 'Cap(Eff|Bnd|Prm)' /proc/self/status | grep -v 0000000000000000")
    ).output == ""
    await sandbox.destroy()


async def test_a_fork_bomb_ends_at_the_limit(ns_backend: Backend, repo: Path) -> None:
    code = "import os, time\nwhile True:\n    os.fork()\n"
    sandbox = await ns_backend.create(Spec(repo=repo, limits=SMALL))
    await sandbox.write("bomb.py", code.encode())
    result = await sandbox.exec("python bomb.py", timeout_s=2)
    assert result.timed_out or "Resource temporarily unavailable" in result.output
    assert (await sandbox.exec("echo alive")).output == "alive\n"
    await sandbox.destroy()


async def test_a_memory_bomb_ends_at_the_limit(ns_backend: Backend, repo: Path) -> None:
    assert "MemoryError" in await python(ns_backend, repo, "x = bytearray(1 << 30)")


async def test_a_memory_bomb_of_many_processes_ends_at_the_limit(ns_backend: Backend, repo: Path) -> None:
    if not {"cgroup1", "cgroup2"} & ns_backend.capabilities.limits:
        pytest.skip("no cgroup can be made here")
    code = "import os, time\nfor _ in range(9):\n    os.fork()\n    x = bytearray(30 << 20)\ntime.sleep(1)\n"
    sandbox = await ns_backend.create(Spec(repo=repo, limits=replace(SMALL, processes=100)))
    await sandbox.write("bomb.py", code.encode())
    result = await sandbox.exec("python bomb.py; echo ended $?", timeout_s=4)
    assert result.exit_code != 0 or "ended 137" in result.output or "ended -9" in result.output, result
    assert (await sandbox.exec("echo alive")).output == "alive\n"
    await sandbox.destroy()


async def test_a_busy_loop_ends_at_its_cpu_time(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo, limits=Limits(cpu_s=1, wall_s=300)))
    ended = await sandbox.exec("python -c 'while True: pass'")
    assert (ended.exit_code, ended.timed_out) == (137, False)
    await sandbox.destroy()


async def test_the_disk_is_bounded_as_a_whole(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo, limits=Limits(disk_mb=3)))
    result = await sandbox.exec("for i in 1 2 3 4 5; do head -c 1000000 /dev/zero > big$i; done")
    assert "No space left" in result.output
    await sandbox.destroy()


async def test_no_variable_of_the_runner_reaches_a_command(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    backend = NsBackend()
    sandbox = await backend.create(Spec(repo=repo))
    assert "hunter2" not in (await sandbox.exec("env; cat /proc/*/environ")).output
    await sandbox.destroy()
    await backend.aclose()


def descendants(root: int) -> dict[int, int]:
    """Return the processes below `root`, each with its parent."""
    stats = {int(path.name): path / "stat" for path in Path("/proc").glob("[0-9]*")}
    parents: dict[int, int] = {}
    for pid, path in stats.items():
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[pid] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return {pid: parents[pid] for pid in found - {root}}


async def until_gone(pids: set[int]) -> None:
    async with asyncio.timeout(10):
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.02)


async def test_destroying_leaves_nothing_behind(repo: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    before = descendants(os.getpid()).keys()
    backend = NsBackend()
    sandboxes = [await backend.create(Spec(repo=repo)) for _ in range(3)]
    running = asyncio.create_task(sandboxes[0].exec("sleep 1000"))
    await asyncio.sleep(0.2)
    born = descendants(os.getpid()).keys() - before
    assert len(born) >= 5
    await backend.aclose()
    with pytest.raises(SandboxError):
        await running
    await until_gone(born)
    assert Path("/proc/self/mounts").read_text() == mounts


@pytest.mark.parametrize("generation", [1, 2], ids=["the process started", "process 1 of its namespace"])
async def test_a_killed_zygote_is_an_error_and_is_replaced(repo: Path, generation: int) -> None:
    before = descendants(os.getpid()).keys()
    backend = NsBackend()
    sandbox = await backend.create(Spec(repo=repo))
    born = descendants(os.getpid()).keys() - before
    running = asyncio.create_task(sandbox.exec("sleep 1000"))
    await asyncio.sleep(0.2)
    parents = descendants(os.getpid())
    (outer,) = {pid for pid in born if parents[pid] == os.getpid()}
    (inner,) = {pid for pid in born if parents[pid] == outer}
    os.kill((outer, inner)[generation - 1], signal.SIGKILL)
    with pytest.raises(SandboxError, match="died"):
        await running
    with pytest.raises(SandboxError, match="died"):
        await sandbox.read("calc.py")
    second = await backend.create(Spec(repo=repo))
    await until_gone(born)
    assert (await second.exec("echo back")).output == "back\n"
    await backend.aclose()


async def test_a_cancelled_call_ends_its_command_only(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sandbox.exec("sleep 1000; touch late"), 0.2)
    assert (await sandbox.exec("ls late; ps ax 2>/dev/null | grep -c '[s]leep'")).output.endswith("0\n")
    await sandbox.destroy()


SHOWING = """
import os, time

def test_show():
    there = [name for name in (".git/HEAD", "/tmp/z") if os.path.exists(name)]
    print("SEEN", time.time_ns(), *(word for name in there for word in open(name).read().split()))
"""
SHOW = "python -m pytest -q -s test_show.py"


def shown(result: ExecResult) -> list[str]:
    """Return the words behind SEEN."""
    return next(line for line in result.output.splitlines() if "SEEN" in line).split()[1:]


async def test_test_runs_are_shared_only_when_nothing_changed(repo: Path) -> None:
    (repo / "test_show.py").write_text(SHOWING)
    backend = NsBackend()
    first, second = await backend.create(Spec(repo=repo)), await backend.create(Spec(repo=repo))
    one = await first.exec(SHOW)
    assert await second.exec(SHOW) == one
    assert backend.cache.hits == 1
    await first.exec("echo x > made")
    assert shown(await first.exec(SHOW))[0] != shown(one)[0]
    await second.exec("echo y >> .git/HEAD")
    assert "y" in shown(await second.exec(SHOW))
    await first.exec("echo z > /tmp/z")
    assert "z" in shown(await first.exec(SHOW))
    await backend.aclose()


@pytest.mark.parametrize(
    "command",
    [
        "python -c 'import secrets; print(secrets.token_hex())'",
        "date +%N",
        "hostname",
        "cat /proc/sys/kernel/random/uuid",
        f"{SHOW} | cat",
    ],
)
async def test_no_other_command_is_remembered(ns_backend: Backend, repo: Path, command: str) -> None:
    """A command that prints randomness, time or identity prints its own each time."""
    (repo / "test_show.py").write_text(SHOWING)
    first, second = [await ns_backend.create(Spec(repo=repo)) for _ in range(2)]
    assert (await first.exec(command)).output != (await second.exec(command)).output
    for sandbox in (first, second):
        await sandbox.destroy()


async def test_a_started_command_is_never_remembered(ns_backend: Backend, repo: Path) -> None:
    """Servers start commands for their clients."""
    (repo / "test_show.py").write_text(SHOWING)
    first, second = [await ns_backend.create(Spec(repo=repo)) for _ in range(2)]
    results = [await (await sandbox.start(SHOW)).wait() for sandbox in (first, second)]
    assert shown(results[0]) != shown(results[1])
    for sandbox in (first, second):
        await sandbox.destroy()


async def test_many_sandboxes_at_once(ns_backend: Backend, repo: Path) -> None:
    async def one(index: int) -> str:
        sandbox = await ns_backend.create(Spec(repo=repo))
        await sandbox.write("mine", str(index).encode())
        output = (await sandbox.exec("cat mine")).output
        await sandbox.destroy()
        return output

    assert await asyncio.gather(*map(one, range(20))) == [str(index) for index in range(20)]
