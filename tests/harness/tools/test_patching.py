import asyncio

import pytest

from ostinato.harness.errors import ToolError
from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.tools.patching import patch
from ostinato.harness.users import ScriptedUser
from ostinato.sandbox.base import Sandbox, SandboxError


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


MANY = envelope(
    *("*** Add File: deep/new.py", "+x = 1"),
    *("*** Update File: calc.py", "-    return a - b", "+    return a + b"),
    *("*** Update File: ./calc.py", "*** Move to: sums.py", "-    return a + b", "+    return b + a"),
    *("*** Delete File: pkg/util.py",),
)


async def test_many_files_at_once(sandbox: Sandbox) -> None:
    await sandbox.exec("chmod +x calc.py")
    assert await patch(sandbox, MANY) == ["calc.py", "deep/new.py", "pkg/util.py", "sums.py"]
    assert await sandbox.files() == ["deep/new.py", "sums.py"]
    assert b"return b + a" in await sandbox.read("sums.py")
    assert (await sandbox.exec("test -x sums.py")).exit_code == 0


async def test_a_file_that_moves_goes_or_comes_back_is_the_same_file(sandbox: Sandbox) -> None:
    await sandbox.exec("chmod 600 calc.py; chmod 755 pkg/util.py; echo > gone; ln -s calc.py link")
    look = "stat -c '%a %i %n' calc.py pkg/util.py"
    before, state = (await sandbox.exec(look)).output, await sandbox.tree_hash()
    swap = ("*** Update File: calc.py", "*** Move to: tmp", "*** Update File: pkg/util.py")
    swap += (
        "*** Move to: calc.py",
        "*** Update File: tmp",
        "*** Move to: pkg/util.py",
        "*** Delete File: gone",
    )
    for refused in (("*** Add File: pkg/util.py/x", "+x"), ("*** Update File: link", "*** Move to: other")):
        with pytest.raises((OSError, ToolError, SandboxError)):
            await patch(sandbox, envelope(*swap, *refused))
        assert (await sandbox.exec(look)).output == before and await sandbox.tree_hash() == state
    await patch(sandbox, envelope(*swap))
    modes = (await sandbox.exec("stat -c %a calc.py pkg/util.py; ls -A . pkg")).output
    assert modes.startswith("755\n600\n") and "gone" not in modes and ".patch" not in modes


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("*** Update File: none.py", "-x"), "error: no such file none.py"),
        (("*** Delete File: none.py",), "error: no such file none.py"),
        (("*** Add File: pkg/util.py", "+x"), "error: pkg/util.py exists already: use *** Update File"),
        (("*** Update File: pkg/util.py", "*** Move to: calc.py"), "error: calc.py exists already"),
        (("*** Update File: calc.py", "-x = 9"), "error: calc.py: hunk 1 not found: x = 9"),
        (("*** Add File: ../out.py", "+x"), "error: "),
        (("*** Add File: /etc/out.py", "+x"), "error: "),
        (("*** Add File: pkg", "+x"), "error: "),
        (("*** Add File: calc.py/x", "+x"), "error: "),
        (("*** Update File: blob", "-x"), "error: blob is not text"),
    ],
)
async def test_all_or_none(sandbox: Sandbox, lines: tuple[str, ...], message: str) -> None:
    await sandbox.write("blob", b"\xff\0")
    before = await sandbox.tree_hash()
    tools = Executor(sandbox, ScriptedUser([]), command_timeout_s=2.0, profile=PROFILES["full"])
    first = ("*** Add File: first.py", "+x", "*** Update File: calc.py", "-    return a - b", "+    pass")
    observation = await tools.run("apply_patch", {"patch": envelope(*first, *lines)})
    assert observation.text.startswith(message)
    assert await sandbox.tree_hash() == before


async def test_a_failure_half_way_is_taken_back(sandbox: Sandbox) -> None:
    before = await sandbox.tree_hash()
    write = sandbox.write

    async def refusing(path: str, data: bytes) -> None:
        await write(path, data[:1] if path == "last.py" else data)
        if path == "last.py":
            raise OSError(28, "No space left on device")

    sandbox.write = refusing  # type: ignore[method-assign]
    lines = ("*** Update File: calc.py", "-    return a - b", "*** Add File: last.py", "+xyz")
    with pytest.raises(OSError, match="No space left"):
        await patch(sandbox, envelope("*** Add File: a.py", "+x", *lines))
    assert await sandbox.tree_hash() == before


async def test_a_cancelled_patch_is_taken_back(sandbox: Sandbox) -> None:
    before = await sandbox.tree_hash()
    write, reached = sandbox.write, asyncio.Event()

    async def stuck(path: str, data: bytes) -> None:
        await write(path, data)
        if path == "sums.py" and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    sandbox.write = stuck  # type: ignore[method-assign]
    running = asyncio.create_task(patch(sandbox, MANY))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sandbox.tree_hash() == before
