"""What the protocol promises, of every backend."""

import os
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, Limits, SandboxError, SandboxPathError


async def test_a_command_runs_in_the_repository(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
    result = await sandbox.exec("pwd; cat sub/note.txt; echo oops >&2; exit 3")
    assert result.exit_code == 3
    assert result.output == f"{sandbox.root}\nhello\noops\n"
    assert not result.timed_out
    await sandbox.close()


async def test_files_are_read_written_and_listed(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
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
    await sandbox.close()


async def test_changes_are_what_differs(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
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
    await sandbox.close()


async def test_a_directory_that_became_a_file(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
    await sandbox.exec("rm -r sub; echo f > sub; rm calc.py; mkdir calc.py; echo d > calc.py/inner")
    assert await sandbox.changes() == {
        "sub": b"f\n",
        "sub/note.txt": None,
        "calc.py": None,
        "calc.py/inner": b"d\n",
    }
    await sandbox.close()


async def test_the_digest_follows_the_tree_alone(backend: Backend, repo: Path) -> None:
    first, second = await backend.open(repo), await backend.open(repo)
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
    await first.close()
    await second.close()


async def test_missing_files_and_directories_say_so(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
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
    await sandbox.close()


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "sub/../../outside", "link", "dirlink/passwd", "a\0b"]
)
async def test_no_path_leads_out(backend: Backend, repo: Path, path: str) -> None:
    outside = repo.parent / "outside"
    outside.write_text("secret")
    os.symlink("/etc/passwd", repo / "link")
    os.symlink("/etc", repo / "dirlink")
    sandbox = await backend.open(repo)
    with pytest.raises(SandboxPathError):
        await sandbox.read(path)
    with pytest.raises(SandboxPathError):
        await sandbox.write(path, b"x")
    assert outside.read_text() == "secret"
    await sandbox.close()


async def test_a_hanging_command_is_ended(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
    result = await sandbox.exec("echo before; sleep 1000 & sleep 1000", timeout_s=0.3)
    assert result.timed_out
    assert result.exit_code == -9
    assert result.output == "before\n"
    assert (await sandbox.exec("echo again")).output == "again\n"
    await sandbox.close()


async def test_a_process_left_behind_ends_with_its_command(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
    result = await sandbox.exec("(sleep 1; echo late > late) & echo started")
    assert (result.output, result.timed_out) == ("started\n", False)
    await sandbox.exec("sleep 1.2")
    assert "late" not in await sandbox.files()
    await sandbox.close()


async def test_only_the_end_of_a_huge_output_is_kept(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo, Limits(output_bytes=100))
    result = await sandbox.exec("seq 1 200000; echo end")
    assert result.output.endswith("200000\nend\n")
    assert "bytes left out" in result.output
    assert len(result.output) < 200
    await sandbox.close()


async def test_a_file_too_large_for_the_limit_is_not_written(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo, Limits(disk_mb=2))
    result = await sandbox.exec("head -c 9000000 /dev/zero > big")
    assert result.exit_code != 0
    assert (await sandbox.exec("wc -c < big")).output.strip() <= str(2 * 2**20)
    await sandbox.close()


async def test_a_closed_sandbox_says_so(backend: Backend, repo: Path) -> None:
    sandbox = await backend.open(repo)
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.read("calc.py")
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.exec("true")


async def test_no_repository_no_sandbox(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no repository"):
        await backend.open(tmp_path / "absent")
