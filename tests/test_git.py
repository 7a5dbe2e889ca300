"""Git, started by this program in a stranger's folder, runs none of the programs that the folder names.

Covers git.py.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ostinato.edits import git as reading
from ostinato.edits.attribution.blame import authors
from ostinato.edits.capture import snapshots, start_tree
from ostinato.edits.capture.repository_paths import find_repository
from ostinato.git import run, settings, start, trusting
from ostinato.harness.git import git, worktree
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.mining.base import MiningError
from ostinato.mining.history import History

KEYS = """
core.fsmonitor core.pager core.editor core.sshCommand core.gitProxy core.askPass core.alternateRefsCommand
diff.external diff.evil.command diff.evil.textconv diff.tool difftool.x.cmd interactive.diffFilter
filter.evil.clean filter.evil.smudge filter.evil.process gpg.program gpg.ssh.program gpg.ssh.defaultKeyCommand
credential.helper alias.status alias.ls-files alias.add pager.log pager.diff sequence.editor
merge.evil.driver mergetool.x.cmd trailer.x.command remote.origin.uploadpack uploadpack.packObjectsHook
"""
OTHERS = {
    "diff.submodule": "diff",
    "log.showSignature": "true",
    "filter.evil.required": "true",
    "format.pretty": "%G?",
    "submodule.recurse": "true",
    "remote.origin.promisor": "true",
    "extensions.partialClone": "origin",
}
HOOKS = ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman")
OURS = (
    ("status", "--porcelain", "--ignore-submodules=dirty", "--untracked-files=all"),
    ("diff", "--name-only", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "HEAD", "--"),
    ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "HEAD", "--"),
    ("ls-files", "-z", "--cached", "--others", "--modified", "--exclude-standard"),
    ("log", "-1", "-s", "--no-textconv", "--no-ext-diff", "--format=%H"),
    ("blame", "--no-textconv", "--porcelain", "-w", "-M", "-C", "--", "a.evil"),
    ("cat-file", "blob", "HEAD:a.evil"),
    ("rev-list", "--max-count=1", "HEAD"),
    ("ls-tree", "-r", "HEAD"),
    ("merge-base", "HEAD", "HEAD"),
    ("for-each-ref", "refs/heads"),
)


def plain(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    plain(folder, "init", "--quiet")
    plain(folder, "config", "user.name", "a")
    plain(folder, "config", "user.email", "a@b.c")
    (folder / ".gitattributes").write_text("*.evil filter=evil diff=evil merge=evil\n")
    (folder / "a.evil").write_text("one\n")
    plain(folder, "add", ".")
    plain(folder, "commit", "--quiet", "-m", "one")
    return folder


def arm(folder: Path, program: Path, where: str) -> None:
    """Let every setting that may name a program name this one, through the file that `where` says."""
    lines = []
    for key, value in [*((key, str(program)) for key in KEYS.split()), *OTHERS.items()]:
        section, _, name = key.rpartition(".")
        section, _, sub = section.partition(".")
        lines.append(f'[{section}{f" {chr(34)}{sub}{chr(34)}" if sub else ""}]\n\t{name} = "{value}"\n')
    lines.append(f'[remote "origin"]\n\turl = "ext::{program}"\n')
    git_dir = folder / ".git"
    if git_dir.is_file():
        git_dir = Path(git_dir.read_text().removeprefix("gitdir: ").strip())
    config = git_dir / "config"
    if where == "local":
        config.write_text(config.read_text() + "".join(lines))
    elif where == "included":
        (folder / ".gitconfig").write_text("".join(lines))
        config.write_text(config.read_text() + "[include]\n\tpath = ../.gitconfig\n")
    else:
        config.write_text(config.read_text() + "[extensions]\n\tworktreeConfig = true\n")
        (git_dir / "config.worktree").write_text("".join(lines))
    (git_dir / "hooks").mkdir(exist_ok=True)
    for hook in HOOKS:
        (git_dir / "hooks" / hook).write_bytes(program.read_bytes())
        (git_dir / "hooks" / hook).chmod(0o755)


@pytest.fixture
def canary(tmp_path: Path) -> tuple[Path, Path]:
    """A program, and the file that it leaves behind."""
    mark = tmp_path / "run"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{mark}'\ncat\n")
    program.chmod(0o755)
    return program, mark


@pytest.mark.parametrize("where", ["local", "included", "worktree", "git-file"])
async def test_opening_a_folder_runs_nothing_that_it_names(
    tmp_path: Path, canary: tuple[Path, Path], where: str
) -> None:
    program, mark = canary
    root = made(tmp_path / "root")
    for name in ("nested", "sub"):
        made(root / name)
    plain(root, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", "./sub")
    plain(root, "add", "nested")
    plain(root, "commit", "--quiet", "-m", "nested")
    if where == "git-file":
        (root / ".git").rename(root / "kept")
        (root / ".git").write_text(f"gitdir: {root / 'kept'}\n")
    for each in (root / "nested", root / "sub", root):
        arm(each, program, "local" if where == "git-file" else where)
        (each / "a.evil").write_text("two\n")
        os.utime(each / "a.evil", (1, 1))

    assert await worktree(root) == root
    for order in OURS:
        await git(root, *order)
        reading.git(root, *order)
    checkpoints = await Checkpoints.open(root, tmp_path / "home")
    for _ in range(2):
        await checkpoints.take(["a.evil"])
        (root / "nested" / "a.evil").write_text("three\n")
    await checkpoints.unkept()
    checkpoints.close()
    repo = find_repository(str(root))
    assert repo is not None
    for _ in range(2):
        snapshots.snapshot(repo)
    start_tree.take(repo, str(tmp_path / "start"), ("a.evil", "before\n"))
    reading.dirty(str(root))
    authors(repo, "a.evil")
    assert not mark.exists(), mark.read_text()


def test_a_filter_of_the_person_s_own_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path / "root")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text('[filter "evil"]\n\tclean = sed s/a/b/\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (root / "a.evil").write_text("a\n")
    written = run(root, "hash-object", "-w", "a.evil").stdout.decode().strip()
    assert run(root, "cat-file", "blob", written).stdout == b"b\n"


def test_a_folder_with_very_many_settings_is_refused(tmp_path: Path) -> None:
    root = made(tmp_path / "root")
    with (root / ".git" / "config").open("a") as file:
        file.writelines(f'[x "{n}"]\n\ty = z\n' for n in range(3000))
    with pytest.raises(subprocess.SubprocessError, match="more than 2000"):
        settings(root)


def test_a_few_small_objects_that_stand_for_very_many_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of ten trees of ten trees lists a milliard of files, and would fill the memory."""
    root = made(tmp_path / "bomb")
    (root / "test_a.py").write_text("def test_a(): pass\n")
    plain(root, "add", ".")
    below = run(root, "hash-object", "-w", "a.evil").stdout.decode().strip()
    kind = "100644 blob"
    for _ in range(9):
        rows = "".join(f"{kind} {below}\tname{number}\n" for number in range(10))
        below = run(root, "mktree", given=rows.encode()).stdout.decode().strip()
        kind = "040000 tree"
    commit = run(root, "commit-tree", "-m", "a bomb of trees", below).stdout.decode().strip()
    plain(root, "update-ref", "refs/heads/main", commit)
    plain(root, "symbolic-ref", "HEAD", "refs/heads/main")
    monkeypatch.setattr("ostinato.git.MOST_OUTPUT", 1 << 20)
    with pytest.raises(MiningError, match=r"git .* wrote more than 1 MiB"):
        History(root, tmp_path).head()


def test_a_command_has_an_end(tmp_path: Path) -> None:
    root = made(tmp_path / "root")
    with pytest.raises(subprocess.TimeoutExpired):
        start(root, "-c", "alias.x=!sleep 300 <&- >&-", "x", environment=trusting(), timeout_s=0.5)
