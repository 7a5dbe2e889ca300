"""Undo brings back any tree: modes, links and empty folders, whatever was done to it in between.

Covers harness/workspace/versions.py and harness/workspace/restoring.py.
"""

import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from ostinato.harness.workspace import restoring
from ostinato.harness.workspace.checkpoints import Checkpoints

Tree = dict[str, tuple[int, bytes | str | None]]
NAMES = ("a", "b", "ü", os.fsdecode(b"caf\xe9"), "new\nline", "tab\t")
MODES = (0o644, 0o600, 0o755, 0o700, 0o640, 0o444, 0o4755)


def tree_of(root: Path) -> Tree:
    """Every path below with its mode, and its content, the target of a link or None for a folder."""
    found: Tree = {"": (stat.S_IMODE(root.lstat().st_mode), None)}
    for path in root.rglob("*"):
        name, mode = str(path.relative_to(root)), stat.S_IMODE(path.lstat().st_mode)
        if name.startswith(".git/") or name == ".git":
            continue
        if path.is_symlink():
            found[name] = (0, str(path.readlink()))
        else:
            found[name] = (mode, None if path.is_dir() else path.read_bytes())
    return found


def change(root: Path, draw: random.Random, steps: int) -> None:
    """Make, remove, replace and open things at random, as a command would."""
    for _ in range(steps):
        path = root / Path(*draw.choices(NAMES, k=draw.randint(1, 3)))
        while path.parent != root and not path.parent.is_dir():
            path = path.parent
        if path.parent.resolve() != path.parent:  # behind a link
            continue
        if draw.random() < 0.7 and os.path.lexists(path):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        match draw.choice(("file", "file", "folder", "link", "mode")):
            case _ if path.is_symlink():
                continue
            case "file" if not path.is_dir():
                path.write_bytes(draw.randbytes(3))
                path.chmod(draw.choice(MODES))
            case "folder" if not path.exists():
                path.mkdir(draw.choice((0o755, 0o755, 0o700, 0o2775)))
            case "link" if not path.exists():
                path.symlink_to(draw.choice(("a", "nowhere", "..", "/etc")))
            case "mode" if path.exists():
                path.chmod(draw.choice((0o755, 0o700)) if path.is_dir() else draw.choice(MODES))


@pytest.mark.parametrize("seed", range(10))
async def test_any_change_of_any_tree_is_undone(repo: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    repo.chmod(draw.choice((0o755, 0o750, 0o775)))
    change(repo, draw, 25)
    before = tree_of(repo)
    checkpoints = await Checkpoints.open(repo, tmp_path / "state")
    one = await checkpoints.take()
    change(repo, draw, 25)
    two = await checkpoints.take()
    if seed % 2:  # what an earlier process took is read from the disk
        checkpoints.close()
        checkpoints = await Checkpoints.open(repo, tmp_path / "state")
    changed = await checkpoints.changed(one, two)
    done = await checkpoints.undo(one, two)
    assert (tree_of(repo), done.left) == (before, ())
    assert set(done.restored) == set(changed)
    assert (await checkpoints.take()) == one


async def test_a_private_file_is_never_open(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is written where nobody else may read it, under the modes of every moment."""
    (repo / "key").write_text("secret")
    (repo / "key").chmod(0o600)
    checkpoints = await Checkpoints.open(repo, tmp_path / "state")
    one = await checkpoints.take()
    (repo / "key").unlink()
    seen: list[tuple[int, int]] = []
    write = Path.write_bytes

    def watched(path: Path, content: bytes) -> int:
        written = write(path, content)
        seen.append((stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)))
        return written

    two = await checkpoints.take()
    monkeypatch.setattr(restoring.Path, "write_bytes", watched)
    previous = os.umask(0)
    try:
        await checkpoints.undo(one, two)
    finally:
        os.umask(previous)
    assert seen == [(0o600, 0o700)]
    assert stat.S_IMODE((repo / "key").stat().st_mode) == 0o600


async def test_nothing_is_restored_through_a_link(repo: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    checkpoints = await Checkpoints.open(repo, tmp_path / "state")
    one = await checkpoints.take()
    (repo / "pkg/util.py").unlink()
    (repo / "pkg/made.py").write_text("x")
    two = await checkpoints.take()
    (repo / "pkg").rename(repo / "moved")
    (repo / "pkg").symlink_to(elsewhere)
    (elsewhere / "made.py").write_text("a person's")
    done = await checkpoints.undo(one, two)
    assert done.left == ("pkg/made.py", "pkg/util.py") and not done.restored
    assert [path.name for path in elsewhere.iterdir()] == ["made.py"]


async def test_ignored_content_stays_where_a_folder_is_taken_back(repo: Path, tmp_path: Path) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "kept").mkdir()
    (repo / "kept/a.log").write_text("1")
    checkpoints = await Checkpoints.open(repo, tmp_path / "state")
    one = await checkpoints.take()
    (repo / "kept/a.log").unlink()
    (repo / "out/deep").mkdir(parents=True)
    (repo / "out/b.log").write_text("2")
    await checkpoints.undo(one, await checkpoints.take())
    assert (repo / "kept").is_dir() and (repo / "out/b.log").exists() and not (repo / "out/deep").exists()
