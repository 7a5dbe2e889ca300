"""The public SDK of E2B, unchanged, against our server: a front, its node, real sandboxes.

Covers fleet/server/rest.py, fleet/server/envd.py and fleet/server/files.py.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

e2b = pytest.importorskip("e2b", reason="e2b is not installed: pip install -e '.[dev]'")


@pytest.fixture
def options(front: tuple[str, str], templates: Path) -> dict[str, Any]:
    """Return the options for our server instead of E2B's cloud; HTTP/2 would need TLS."""
    assert (templates / "base").is_dir()
    url, key = front
    return {"api_url": url, "sandbox_url": url, "api_key": key, "http_version": "1.1"}


async def test_a_sandbox_from_start_to_end(options: dict[str, Any]) -> None:
    sandbox = await e2b.AsyncSandbox.create("base", timeout=60, metadata={"run": "sdk"}, **options)
    assert await sandbox.is_running()
    seen: list[str] = []
    result = await sandbox.commands.run(
        "echo one; sleep 0.3; echo $WHO", envs={"WHO": "two words"}, on_stdout=seen.append
    )
    assert (result.exit_code, result.stdout) == (0, "one\ntwo words\n")
    assert len(seen) == 2, "output arrives as it is written"

    written = await sandbox.files.write("deep/a.txt", "text")
    assert written.path.endswith("/deep/a.txt")
    assert await sandbox.files.read("deep/a.txt") == "text"
    await sandbox.files.write("b.bin", bytes(range(256)))
    assert bytes(await sandbox.files.read("b.bin", format="bytes")) == bytes(range(256))
    assert {entry.name for entry in await sandbox.files.list(".")} == {"a.py", "b.bin", "deep"}
    assert await sandbox.files.exists("b.bin") and not await sandbox.files.exists("c.bin")
    assert (await sandbox.files.get_info("b.bin")).size == 256
    await sandbox.files.rename("b.bin", "deep/c.bin")
    assert await sandbox.files.make_dir("empty") and not await sandbox.files.make_dir("empty")
    await sandbox.files.remove("deep/c.bin")

    info = await sandbox.get_info()
    assert info.metadata == {"run": "sdk"} and info.state == e2b.SandboxState.RUNNING
    await sandbox.set_timeout(120)
    assert (await sandbox.get_info()).end_at > info.end_at
    assert await sandbox.kill()
    assert not await sandbox.is_running()
    assert not await sandbox.kill()


async def test_a_command_in_the_background(options: dict[str, Any]) -> None:
    async with await e2b.AsyncSandbox.create("base", timeout=60, **options) as sandbox:
        handle = await sandbox.commands.run("read line; echo got $line; exit 4", background=True, stdin=True)
        assert handle.pid in [process.pid for process in await sandbox.commands.list()]
        await sandbox.commands.send_stdin(handle.pid, "hello\n")
        with pytest.raises(e2b.CommandExitException) as failed:
            await handle.wait()
        assert (failed.value.exit_code, failed.value.stdout) == (4, "got hello\n")
        endless = await sandbox.commands.run("echo up; sleep 1000", background=True)
        again = await sandbox.commands.connect(endless.pid)
        assert await endless.kill()
        with pytest.raises(e2b.CommandExitException):
            await again.wait()
        with pytest.raises(e2b.TimeoutException):
            await sandbox.commands.run("sleep 1000", timeout=0.5)


async def test_pause_resume_snapshot_and_fork(options: dict[str, Any]) -> None:
    sandbox = await e2b.AsyncSandbox.create("base", timeout=60, **options)
    await sandbox.files.write("kept", "yes")
    assert await sandbox.pause()
    assert not await sandbox.pause(), "it is paused already"
    resumed = await e2b.AsyncSandbox.connect(sandbox.sandbox_id, timeout=60, **options)
    assert await resumed.files.read("kept") == "yes"
    snapshot = await resumed.create_snapshot()
    await resumed.files.write("kept", "changed")
    child = await e2b.AsyncSandbox.create(snapshot.snapshot_id, timeout=60, **options)
    assert await child.files.read("kept") == "yes"
    forks = await resumed.fork(count=2, timeout=60)
    assert [await fork.files.read("kept") for fork in forks] == ["changed", "changed"]
    listed = e2b.AsyncSandbox.list(**options)
    assert {sandbox.sandbox_id, child.sandbox_id} <= {each.sandbox_id for each in await listed.next_items()}
    await asyncio.gather(*(each.kill() for each in (resumed, child, *forks)))


async def test_errors_arrive_as_the_exceptions_of_the_sdk(options: dict[str, Any]) -> None:
    with pytest.raises(e2b.SandboxException, match="no template"):
        await e2b.AsyncSandbox.create("absent", timeout=60, **options)
    with pytest.raises(e2b.AuthenticationException):
        await e2b.AsyncSandbox.create("base", timeout=60, **{**options, "api_key": "ost_wrong"})
    with pytest.raises(e2b.SandboxNotFoundException):
        await e2b.AsyncSandbox.connect("i00", **options)
    async with await e2b.AsyncSandbox.create("base", timeout=60, **options) as sandbox:
        with pytest.raises(e2b.NotFoundException):
            await sandbox.files.read("absent")
        with pytest.raises(e2b.InvalidArgumentException):
            await sandbox.files.read("/etc/passwd")
