"""The promises of the protocol, for every backend.

Covers sandbox/base.py, sandbox/backends/agent_sandbox.py, sandbox/protocol/stream.py, sandbox/files/tree.py,
sandbox/files/overlay.py, sandbox/files/workspace.py, sandbox/guest/agent.py, sandbox/guest/jobs.py,
sandbox/linux/processes.py, sandbox/protocol/agent_link.py and sandbox/protocol/order.py.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.sandbox.conftest import FAR

from ostinato.sandbox import (
    Backend,
    Limits,
    Process,
    SandboxError,
    SandboxPathError,
    Spec,
)
from ostinato.sandbox.base import Egress


async def test_a_command_runs_in_the_repository(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    result = await sandbox.exec("pwd; cat sub/note.txt; echo oops >&2; exit 3")
    assert result.exit_code == 3
    assert result.output == f"{sandbox.root}\nhello\noops\n"
    assert not result.timed_out
    await sandbox.destroy()


async def test_files_are_read_written_and_listed(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.write("new/deep/a.bin", bytes(range(256)))
    assert await sandbox.read("new/deep/a.bin") == bytes(range(256))
    assert await sandbox.read(f"{sandbox.root}/sub/note.txt") == b"hello\n"
    assert await sandbox.list("new") == ["deep/"]
    assert ".git/" in await sandbox.list()
    assert await sandbox.files() == [
        "calc.py",
        "new/deep/a.bin",
        "pyproject.toml",
        "sub/note.txt",
        "test_calc.py",
    ]
    await sandbox.destroy()


async def test_changes_are_what_differs(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    assert await sandbox.changes() == {}
    await sandbox.write("calc.py", b"x = 1\n")
    await sandbox.write("test_calc.py", (repo / "test_calc.py").read_bytes() + b"#")
    await sandbox.exec(
        "rm -r sub; mkdir sub; echo n > sub/new; echo x > .git/HEAD; rm pyproject.toml; touch empty"
    )
    changes = await sandbox.changes()
    assert changes.pop("test_calc.py") is not None
    expected = {
        "calc.py": b"x = 1\n",
        "sub/note.txt": None,
        "sub/new": b"n\n",
        "pyproject.toml": None,
        "empty": b"",
    }
    assert changes == expected
    assert (repo / "calc.py").read_text().startswith("def alpha")
    assert (repo / ".git/HEAD").read_text().startswith("ref")
    await sandbox.destroy()


async def test_a_directory_that_became_a_file(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.exec("rm -r sub; echo f > sub; rm calc.py; mkdir calc.py; echo d > calc.py/inner")
    assert await sandbox.changes() == {
        "sub": b"f\n",
        "sub/note.txt": None,
        "calc.py": None,
        "calc.py/inner": b"d\n",
    }
    await sandbox.destroy()


async def test_the_digest_follows_the_tree_alone(backend: Backend, repo: Path) -> None:
    first, second = await backend.create(Spec(repo=repo)), await backend.create(Spec(repo=repo))
    start = await first.tree_hash()
    assert start == await second.tree_hash()
    await first.exec("echo x > .git/HEAD")
    assert await first.tree_hash() == start
    await first.write("a", b"1")
    one = await first.tree_hash()
    await first.write("a", b"2")
    assert len({start, one, await first.tree_hash()}) == 3
    await first.exec("rm a")
    assert await first.tree_hash() == start
    await first.exec("chmod +x calc.py")
    assert await first.tree_hash() != start
    await first.destroy()
    await second.destroy()


async def test_missing_files_and_directories_are_errors(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    with pytest.raises(FileNotFoundError):
        await sandbox.read("absent")
    with pytest.raises(IsADirectoryError):
        await sandbox.read("sub")
    with pytest.raises(IsADirectoryError):
        await sandbox.write("sub", b"")
    with pytest.raises(FileNotFoundError):
        await sandbox.list("absent")
    with pytest.raises(NotADirectoryError):
        await sandbox.list("calc.py")
    await sandbox.exec("mkfifo pipe")
    with pytest.raises(SandboxError, match="not a regular file"):
        await sandbox.read("pipe")
    await sandbox.destroy()


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "sub/../../outside", "link", "dirlink/passwd", "a\0b"]
)
async def test_no_path_leads_out(backend: Backend, repo: Path, path: str) -> None:
    outside = repo.parent / "outside"
    outside.write_text("secret")
    os.symlink("/etc/passwd", repo / "link")
    os.symlink("/etc", repo / "dirlink")
    sandbox = await backend.create(Spec(repo=repo))
    with pytest.raises(SandboxPathError):
        await sandbox.read(path)
    with pytest.raises(SandboxPathError):
        await sandbox.write(path, b"x")
    assert outside.read_text() == "secret"
    await sandbox.destroy()


async def test_a_hanging_command_is_ended(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    result = await sandbox.exec("echo before; sleep 1000 & sleep 1000", timeout_s=0.3)
    assert result.timed_out
    assert result.exit_code == -9
    assert result.output == "before\n"
    assert (await sandbox.exec("echo again")).output == "again\n"
    await sandbox.destroy()


async def test_a_process_left_behind_ends_with_its_command(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    left = "(sleep 1; echo late > late) &" * 8  # shells: none may say that its sleep was killed
    result = await sandbox.exec(f"{left} echo started")
    assert (result.output, result.timed_out) == ("started\n", False)
    await sandbox.exec("sleep 1.2")
    assert "late" not in await sandbox.files()
    await sandbox.destroy()


HEADLESS = """
import ctypes, os, threading, time
os.setpgid(0, 0)
def count():
    while True:
        open("count", "a").write(".")
        time.sleep(0.01)
threading.Thread(target=count).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_a_process_whose_first_thread_has_ended_ends_with_its_command(
    backend: Backend, repo: Path
) -> None:
    """Such a process looks dead to a caller that reads only its state."""
    if backend.name == "process":
        pytest.skip("it ends the process group of the command, no more")
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.write("headless.py", HEADLESS.encode())
    beside = await sandbox.start("sleep 100")
    left = await sandbox.start("python3 headless.py & while ! test -s count; do sleep 0.05; done; wait")
    async with asyncio.timeout(300):  # a foreign engine's shell may find no Python at all
        while "count" not in await sandbox.files():
            await asyncio.sleep(0.05)
    await left.signal(signal.SIGKILL)
    await left.wait()
    counted = await sandbox.read("count")
    await asyncio.sleep(0.1)
    assert await sandbox.read("count") == counted
    await beside.signal(signal.SIGKILL)
    await beside.wait()
    await sandbox.destroy()


async def test_only_the_end_of_a_huge_output_is_kept(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo, limits=Limits(output_bytes=100)))
    result = await sandbox.exec("seq 1 200000; echo end")
    assert result.output.endswith("200000\nend\n")
    assert "bytes left out" in result.output
    assert len(result.output) < 200
    await sandbox.destroy()


async def test_a_file_too_large_for_the_limit_is_not_written(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo, limits=Limits(disk_mb=2)))
    result = await sandbox.exec("head -c 9000000 /dev/zero > big")
    assert result.exit_code != 0
    assert (await sandbox.exec("wc -c < big")).output.strip() <= str(2 * 2**20)
    await sandbox.destroy()


async def test_a_destroyed_sandbox_raises_an_error(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.destroy()
    await sandbox.destroy()
    with pytest.raises(SandboxError, match="destroyed"):
        await sandbox.read("calc.py")
    with pytest.raises(SandboxError, match="destroyed"):
        await sandbox.exec("true")


async def test_no_repository_no_sandbox(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no repository"):
        await backend.create(Spec(repo=tmp_path / "absent"))


def streams(backend: Backend) -> None:
    if backend.name in FAR:
        pytest.skip(f"{backend.name} passes on no input, and output only at the end")


async def collect(process: Process) -> bytes:
    return b"".join([chunk async for chunk in process.output()])


async def test_output_comes_while_the_command_runs(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start("echo first; read line; echo got $line; exit 5", stdin=True)
    chunks = process.output()
    assert await anext(chunks) == b"first\n"
    await process.send(b"second\n")
    assert b"".join([chunk async for chunk in chunks]) == b"got second\n"
    found = await process.wait()
    assert (found.exit_code, found.output) == (5, "first\ngot second\n")
    await sandbox.destroy()


async def test_exec_passes_output_on_as_it_comes(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    seen: list[str] = []

    def listen(text: str) -> None:
        seen.append(text)

    found = await sandbox.exec(
        "printf '\\303'; sleep 0.2; printf '\\251\\n'; sleep 0.2; echo b", on_output=listen
    )
    assert "".join(seen) == found.output == "é\nb\n"
    assert len([text for text in seen if text]) > 1
    await sandbox.destroy()


async def test_a_listener_that_fails_ends_the_command(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))

    def listen(_: str) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        # A foreign engine gives the output when the command has ended, so its time is what ends it there.
        await sandbox.exec("echo a; sleep 1000", timeout_s=3.0, on_output=listen)
    assert (await sandbox.exec("echo again")).output == "again\n"
    await sandbox.destroy()


async def test_input_of_any_size_arrives_whole(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start("sleep 0.1; wc -c", stdin=True)
    await process.send(b"x" * 1_500_000)
    await process.send(b"")
    assert (await process.wait()).output.strip() == "1500000"
    await sandbox.destroy()


async def test_input_of_a_command_that_closed_it_is_a_broken_pipe(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start("exec 0<&-; sleep 1000", stdin=True)
    with pytest.raises(BrokenPipeError):
        await process.send(b"x" * 10_000_000)
    await process.signal(signal.SIGKILL)
    assert (await process.wait()).exit_code == -9
    without = await sandbox.start("true")
    with pytest.raises(SandboxError, match="stdin=True"):
        await without.send(b"x")
    await without.wait()
    await sandbox.destroy()


async def test_a_slow_reader_slows_the_command(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start(
        "i=0; while :; do i=$((i+1)); echo $i > count; head -c 65536 /dev/zero; done"
    )
    chunks = process.output()
    await anext(chunks)
    before = b""
    while before != (before := await sandbox.read("count")) or not before:  # empty while it is written
        await asyncio.sleep(0.3)
    assert int(before) < 100, "what sockets hold, and not all that could be written"
    async for _ in chunks:
        if int(await sandbox.read("count") or b"0") > int(before) + 20:
            break
    await process.signal(signal.SIGKILL)
    assert (await process.wait()).exit_code == -9
    await sandbox.destroy()


async def test_signals_arrive_and_output_after_them_too(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start("trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    chunks = process.output()
    assert await anext(chunks) == b"ready\n"
    await process.signal(signal.SIGTERM)
    found = await process.wait()
    assert (found.exit_code, found.output[-7:]) == (3, "caught\n")
    await process.signal(signal.SIGTERM)  # it has ended
    await sandbox.destroy()


async def test_the_time_of_a_started_command_is_limited_with_unread_output_too(
    backend: Backend, repo: Path
) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    process = await sandbox.start("yes", timeout_s=0.3)
    await asyncio.sleep(0.6)
    found = await process.wait()
    assert (found.exit_code, found.timed_out) == (-9, True)
    await sandbox.destroy()


async def test_commands_run_side_by_side(backend: Backend, repo: Path) -> None:
    streams(backend)
    sandbox = await backend.create(Spec(repo=repo))
    long = await sandbox.start("read line; echo long $line", stdin=True)
    assert (await sandbox.exec("sleep 100 & echo short")).output == "short\n"
    await sandbox.write("while", b"it runs")
    await long.send(b"lived\n")
    assert (await long.wait()).output == "long lived\n"
    await sandbox.destroy()


async def test_a_cancelled_exec_ends_its_command_only(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo))
    running = asyncio.create_task(sandbox.exec("while :; do echo >> beats; sleep 0.05; done"))
    while "beats" not in await sandbox.files():
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    beats = None
    while beats != (beats := await sandbox.read("beats")):  # until it beats no more
        await asyncio.sleep(0.3)
    await sandbox.destroy()


async def test_the_environment_is_that_of_the_spec(backend: Backend, repo: Path) -> None:
    sandbox = await backend.create(Spec(repo=repo, environment={"GREETING": "hello  you"}))
    assert (await sandbox.exec('echo "$GREETING"')).output == "hello  you\n"
    await sandbox.destroy()


ASK = """
import socket
s = socket.create_connection(("127.0.0.1", 3128), 60)
s.sendall(b"GET http://localhost:%d/ HTTP/1.1\\r\\n\\r\\n")
print(b"".join(iter(lambda: s.recv(99), b"")).decode())
"""


async def test_egress_is_as_capabilities_say(backend: Backend, repo: Path) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    egress = Egress(allow=(f"localhost:{port}",), networks=("127.0.0.0/8", "::1/128"))
    async with server:
        if not backend.capabilities.egress:
            with pytest.raises(SandboxError, match="use ns"):
                await backend.create(Spec(repo=repo, egress=egress))
            return
        sandbox = await backend.create(Spec(repo=repo, egress=egress))
        await sandbox.write("ask.py", (ASK % port).encode())
        assert "hello" in (await sandbox.exec("python ask.py")).output
        await sandbox.destroy()


async def test_no_change_of_files_is_a_failure_of_the_sandbox(backend: Backend, repo: Path) -> None:
    """Otherwise a candidate could make its own session void."""
    sandbox = await backend.create(Spec(repo=repo))
    result = await sandbox.exec(
        "mkfifo pipe; chmod 0 calc.py; mkdir shut; touch shut/in; chmod 0 shut sub; echo ok"
    )
    assert (result.exit_code, result.output) == (0, "ok\n")
    assert "pipe" not in await sandbox.changes()
    assert await sandbox.tree_hash()
    await sandbox.exec("chmod 700 shut sub")
    await sandbox.destroy()


WRITE = """
rm -r sub; mkdir sub; echo new > sub/new; rm test_calc.py; ln sub/new hard; ln -s sub/new soft; mkdir empty
echo x >> .git/HEAD; echo run > run.sh; chmod 755 run.sh; touch -d 2001-02-03 old
mkfifo pipe; printf 'a\\377' > bytes
"""


def forks(backend: Backend) -> None:
    if not backend.capabilities.fork:
        pytest.skip(f"{backend.name} cannot fork")


async def test_forks_start_as_the_original_and_are_independent(backend: Backend, repo: Path) -> None:
    forks(backend)
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.exec(WRITE)
    before = await sandbox.changes(), await sandbox.tree_hash()
    one, two = await sandbox.fork(2)
    assert len({sandbox.id, one.id, two.id}) == 3
    for each in (one, two):
        assert (await each.changes(), await each.tree_hash()) == before
        assert (
            await each.exec("cat hard .git/HEAD; test -p pipe && test -x run.sh && stat -c %h hard")
        ).output == ("new\nref: refs/heads/main\nx\n2\n")
    await one.write("mine", b"1")
    await sandbox.exec("rm hard")
    assert "mine" not in await two.files()
    assert "hard" in await two.files()
    three = (await two.fork())[0]
    assert await three.tree_hash() == before[1]
    for each in (sandbox, one, two, three):
        await each.destroy()
