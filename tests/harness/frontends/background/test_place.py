"""Covers harness/frontends/background/place.py: a copy is the person's tree, and comes back file by file."""

import subprocess
from pathlib import Path

import pytest

from ostinato.harness.frontends.background.place import changed_in, copy_files, take_files
from ostinato.harness.workspace.checkpoints import Checkpoints


def run(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
        if ".git" not in path.relative_to(folder).parts
    }


async def test_a_copy_has_the_same_files_commit_and_status(repo: Path, tmp_path: Path) -> None:
    (repo / ".gitignore").write_text("built\n")
    (repo / "built").write_text("left out\n")
    (repo / "calc.py").write_text("mine\r\n")
    (repo / ".gitattributes").write_text("*.py text eol=lf\n")
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o750)
    (repo / "link").symlink_to("calc.py")
    (repo / "empty").mkdir()
    (repo / "pkg" / "util.py").unlink()
    checkpoints = await Checkpoints.open(repo, tmp_path / "kept")
    first = await checkpoints.take()
    copy = tmp_path / "copies" / "repo"
    await copy_files(checkpoints, first, copy)
    whole = listing(repo)
    del whole["built"]
    assert listing(copy) == whole
    assert run(copy, "rev-parse", "HEAD") == run(repo, "rev-parse", "HEAD")
    assert run(copy, "status", "-sb") == run(repo, "status", "-sb")
    assert await changed_in(checkpoints.of_copy(copy), first) == ()


async def test_changes_come_back_all_or_none(repo: Path, tmp_path: Path) -> None:
    checkpoints = await Checkpoints.open(repo, tmp_path / "kept")
    first = await checkpoints.take()
    copy = tmp_path / "copies" / "repo"
    await copy_files(checkpoints, first, copy)
    (copy / "calc.py").unlink()
    (copy / "pkg" / "util.py").write_text("theirs\n")
    (copy / "new").mkdir()
    (copy / "new" / "deep.py").write_text("x = 1\n")
    (copy / "same.py").write_text("both wrote this\n")
    (repo / "same.py").write_text("both wrote this\n")
    (repo / "other.py").write_text("mine\n")
    (repo / "new").write_text("a file is in the way\n")
    before = listing(repo)
    _, both = await take_files(checkpoints, first, copy)
    assert both == ["new/deep.py"] and listing(repo) == before
    (repo / "new").unlink()
    assert (await take_files(checkpoints, first, copy))[1] == []
    assert listing(repo) == {**listing(copy), "other.py": before["other.py"]}


@pytest.mark.parametrize("commits", [0, 2])
async def test_a_repository_without_commits_and_a_shallow_one_will_do(tmp_path: Path, commits: int) -> None:
    origin, here = tmp_path / "origin", tmp_path / "here"
    origin.mkdir()
    run(tmp_path, "init", "-q", str(origin))
    for number in range(commits):
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        run(origin, *identity, "commit", "-q", "--allow-empty", "-m", f"{number}")
    run(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", str(here))
    (here / "calc.py").write_text("x = 1\n")
    checkpoints = await Checkpoints.open(here, tmp_path / "kept")
    copy = tmp_path / "copies" / "here"
    await copy_files(checkpoints, await checkpoints.take(), copy)
    assert run(copy, "status", "-s") == "?? calc.py\n"
    assert commits == 0 or run(copy, "log", "--format=%s") == "1\n"
