"""What this program does in a repository runs no program that the repository names, however it names it.

Covers git.py: each repository combines settings, hooks and files by chance, and every use of git that `src`
makes meets them. A program that is run leaves a mark.
"""

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ostinato.edits import git as reading
from ostinato.edits.attribution.blame import authors
from ostinato.edits.attribution.notes import read_note
from ostinato.edits.capture import snapshots, start_tree
from ostinato.edits.capture.repository_paths import RepositoryPaths, find_repository
from ostinato.edits.install import git_hooks
from ostinato.git import nested
from ostinato.harness.git import git, guarded, worktree
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions
from ostinato.harness.tools import find
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.edit_journal import EditJournal
from ostinato.mining.base import MiningError
from ostinato.mining.history import History
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.environment.repository import write_repository

REPOSITORIES = 200
PROMISOR = (
    '[extensions]\n\tpartialClone = origin\n[protocol]\n\tallow = always\n[remote "origin"]\n\tpromisor\n'
)
ARMS = {
    "monitor": "[core]\n\tfsmonitor = {0}\n",
    "hooks path": "[core]\n\thooksPath = {1}\n",
    "filter": '[filter "evil"]\n\tclean = {0}\n\tsmudge = {0}\n\trequired\n',
    "process": '[filter "evil"]\n\tprocess = {0}\n',
    "external": "[diff]\n\texternal = {0}\n",
    "driver": '[diff "evil"]\n\tcommand = {0}\n',
    "text": '[diff "evil"]\n\ttextconv = {0}\n\tcachetextconv\n',
    "submodules": "[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n[submodule]\n\trecurse\n",
    "ignore": '[submodule "sub"]\n\tignore = none\n\tactive = true\n\tupdate = !{0}\n',
    "summary": "[status]\n\tsubmoduleSummary = true\n\tshowUntrackedFiles = all\n",
    "signature": "[gpg]\n\tprogram = {0}\n[log]\n\tshowSignature\n[format]\n\tpretty = %G? %H\n",
    "key": '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = {0}\n\tallowedSignersFile = a\n',
    "remote": PROMISOR + '\turl = ext::{0}\n[protocol "ext"]\n\tallow = always\n',
    "vcs": PROMISOR + "\tvcs = ext\n\turl = {0}\n",
    "ssh": PROMISOR + "\turl = ssh://nowhere.invalid/x\n[core]\n\tsshCommand = {0}\n",
    "helper": PROMISOR
    + "\turl = http://127.0.0.1:9/x\n[credential]\n\thelper = !{0}\n[core]\n\taskPass = {0}\n",
    "proxy": PROMISOR + "\turl = git://127.0.0.1/x\n[core]\n\tgitProxy = {0}\n",
    "uploadpack": PROMISOR + "\turl = .\n\tuploadpack = {0}\n[uploadpack]\n\tpackObjectsHook = {0}\n",
    "alias": "".join(
        f"[alias]\n\t{name} = !{{0}}\n" for name in ("status", "diff", "log", "add", "ls-files", "blame")
    ),
    "pager": "[core]\n\tpager = {0}\n[pager]\n\tlog = {0}\n\tdiff = {0}\n\tstatus = {0}\n\tgrep = {0}\n",
    "manual": '[man]\n\tviewer = x\n[man "x"]\n\tcmd = {0}\n[help]\n\tautocorrect = immediate\n',
    "editor": "[core]\n\teditor = {0}\n[sequence]\n\teditor = {0}\n[interactive]\n\tdiffFilter = {0}\n",
    "others": '[merge "evil"]\n\tdriver = {0}\n[trailer "x"]\n\tcommand = {0}\n\tcmd = {0}\n',
    "alternate": "[core]\n\talternateRefsCommand = {0}\n[gc]\n\tauto = 1\n\trecentObjectsHook = {0}\n",
    "cache": "[core]\n\tuntrackedCache = true\n\tsplitIndex = true\n[feature]\n\tmanyFiles = true\n",
}
"""The text of each setting, in which {0} stands for the program and {1} for a folder of hooks."""
FILES = ("hooks", "missing object", "missing attributes", "alternates", "attributes", "gitmodules")
PLACES = ("local", "included", "on branch", "in folder", "worktree", "git file", "linked")
HOOKS = ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman")
LOOKS = (
    "git status",
    "git diff",
    "git log",
    "cd nested && git status",
    "cd sub; git diff",
    "git status -uno",
)
NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A repository, the arms that it carries, and a folder for what is made of it."""

    root: Path
    said: str
    scratch: Path

    @property
    def paths(self) -> RepositoryPaths:
        found = find_repository(str(self.root))
        assert found is not None
        return found


def plain(folder: Path, *words: str, given: bytes = b"") -> str:
    environment = {**os.environ, **NOBODY}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(
        command, check=True, capture_output=True, input=given, env=environment
    ).stdout.decode()


def made(folder: Path) -> Path:
    """Return a repository with a commit that claims a signature, a note, and files with drivers."""
    folder.mkdir(parents=True)
    plain(folder, "init", "--quiet", "--template=", "--initial-branch=main")
    (folder / ".gitattributes").write_text("*.evil filter=evil diff=evil merge=evil\n")
    (folder / "test_a.py").write_text("def test(): pass\n")
    (folder / "a.evil").write_text("one\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "a.log").write_text("x")
    (folder / "tracked.log").write_text("one\n")
    plain(folder, "add", "--force", ".gitignore", "tracked.log", ".")
    plain(folder, "commit", "--quiet", "-m", "one")
    (folder / "a.py").write_text("a = 1\n")
    (folder / "test_a.py").write_text("def test(): assert True\n")
    plain(folder, "add", ".")
    plain(folder, "commit", "--quiet", "-m", "correct the sign of a")
    text = plain(folder, "cat-file", "commit", "HEAD")
    forged = text.replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1).encode()
    head = plain(folder, "hash-object", "-t", "commit", "-w", "--stdin", given=forged).strip()
    plain(folder, "update-ref", "HEAD", head)
    plain(folder, "notes", "add", "-m", "x")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return modelled(tmp_path_factory.mktemp("model"))


def modelled(folder: Path) -> Path:
    """Return a repository with a submodule and a nested repository, from which the others are copied."""
    root = made(folder / "root")
    made(root / "sub")
    made(root / "nested")
    plain(root, "submodule", "add", "--quiet", "./sub")
    plain(root, "submodule", "absorbgitdirs", "sub")
    plain(root, "add", "nested")
    plain(root, "commit", "--quiet", "-m", "nested")
    return root


def canary(folder: Path) -> Path:
    """Return a program, beside which a file `mark` tells that it was run."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{folder / 'mark'}'\n")
    program.chmod(0o755)
    (folder / "hooks").mkdir()
    for hook in HOOKS:
        (folder / "hooks" / hook).symlink_to(program)
    return program


def armed(model: Path, folder: Path, chosen: random.Random, program: Path, *only: str) -> Hostile:
    """Return a copy of the model with some of the arms, or `only` these, in a place chosen by chance."""
    root = folder / "root"
    shutil.copytree(model, root, symlinks=True, copy_function=_copied)
    every = [*ARMS, *FILES]
    arms = only or chosen.sample(every, chosen.randint(3, len(every)))
    place = "local" if only else chosen.choice(PLACES)
    text = "".join(ARMS[arm].format(program, program.parent / "hooks") for arm in arms if arm in ARMS)
    everything = "".join(ARMS.values()).format(program, program.parent / "hooks")
    for inner in (root / ".git/modules/sub", root / "nested/.git"):
        with (inner / "config").open("a") as file:
            file.write(everything)
        (inner / "hooks").mkdir()
        for hook in HOOKS:
            (inner / "hooks" / hook).symlink_to(program)
    git_dir = root / ".git"
    git_dir = _placed(root, git_dir, text, place)
    _put(root, git_dir, arms, program)
    for name in ("a.evil", "sub/a.evil", "nested/a.evil"):
        (root / name).write_text("two\n")
        os.utime(root / name, (1, 1))
    (folder / "scratch").mkdir()
    return Hostile(root=root, said=f"{place}: {', '.join(arms)}", scratch=folder / "scratch")


def _copied(source: str, target: str) -> None:
    (os.link if "/objects/" in source else shutil.copy2)(source, target)


def _placed(root: Path, git_dir: Path, text: str, place: str) -> Path:
    """Put the settings in their place, and return the git directory that all work trees share."""
    config, own = git_dir / "config", text
    if place in {"included", "on branch", "in folder"}:
        (root / ".settings").write_text(text)
        when = {"on branch": 'If "onbranch:**"', "in folder": 'If "gitdir:**"'}.get(place, "")
        own = f"[include{when}]\n\tpath = ../.settings\n"
    if place == "worktree":
        (git_dir / "config.worktree").write_text(text)
        own = "[extensions]\n\tworktreeConfig = true\n"
    with config.open("a") as file:
        file.write(own)
    if place in {"git file", "linked"}:
        kept = root / "kept"
        git_dir.rename(kept)
        (root / "sub" / ".git").write_text("gitdir: ../kept/modules/sub\n")
        named, git_dir = kept, kept
        if place == "linked":
            named = kept / "worktrees" / "w"
            named.mkdir(parents=True)
            shutil.copyfile(kept / "index", named / "index")
            (named / "HEAD").write_text("ref: refs/heads/main\n")
            (named / "commondir").write_text("../..\n")
            (named / "gitdir").write_text(f"{root / '.git'}\n")
        (root / ".git").write_text(f"gitdir: {named}\n")
    return git_dir


def _put(root: Path, git_dir: Path, arms: tuple[str, ...] | list[str], program: Path) -> None:
    if "hooks" in arms:
        (git_dir / "hooks").mkdir()
        for hook in HOOKS:
            (git_dir / "hooks" / hook).symlink_to(program)
    if "missing object" in arms:
        blob = plain(root / "nested", "rev-parse", "HEAD:a.evil").strip()
        (git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    if "missing attributes" in arms:
        blob = plain(root / "nested", "rev-parse", "HEAD:.gitattributes").strip()
        (git_dir / "objects" / blob[:2] / blob[2:]).unlink()
        (root / ".gitattributes").unlink()
    if "alternates" in arms:
        (git_dir / "objects/info").mkdir(exist_ok=True)
        (git_dir / "objects/info/alternates").write_text(f"{root / 'nested/.git/objects'}\n../nowhere\n")
    if "attributes" in arms:
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info/attributes").write_text("* filter=evil diff=evil merge=evil\n")
    if "gitmodules" in arms:
        text = f"path = sub\n\turl = ext::{program}\n\tignore = none\n\tupdate = !{program}"
        (root / ".gitmodules").write_text(f'[submodule "sub"]\n\t{text}\n')


# The uses of git in `src`. What a hostile repository may do to one is an error that it names.


def use_status(repository: Hostile) -> None:
    reading.dirty(str(repository.root))


def use_work_tree(repository: Hostile) -> None:
    tree = reading.WorkTree(str(repository.root))
    head = reading.head_commit(repository.root)
    tree.changed(head)
    tree.renamed(head, "a.evil")
    tree.submodules()
    tree.read("sub/a.evil")


def use_index(repository: Hostile) -> None:
    tree = reading.IndexTree(str(repository.root))
    head = reading.head_commit(repository.root)
    tree.changed(head)
    tree.changed(None)
    tree.renamed(head, "a.evil")
    tree.read("a.evil")
    reading.ignored(str(repository.root))


def use_commits(repository: Hostile) -> None:
    head = reading.head_commit(repository.root) or ""
    tree = reading.CommitTree(str(repository.root), head)
    tree.read("a.evil")
    tree.changed(f"{head}~1")
    tree.renamed(f"{head}~1", "a.py")
    reading.contains(repository.root, f"{head}~1", head)
    reading.ask(repository.root, "for-each-ref", "--no-merged=HEAD", "refs/heads")
    reading.ask(repository.root, "check-ignore", "--quiet", "--", "a.log")


def use_lines(repository: Hostile) -> None:
    order = ("log", "-1", "-s", "--no-textconv", "--no-ext-diff", "--format=%H", "-L1,1:a.evil", "HEAD")
    reading.ask(repository.root, *order)
    read_note(str(repository.root), "HEAD")
    authors(repository.paths, "a.evil")


def use_snapshot(repository: Hostile) -> None:
    before = snapshots.snapshot(repository.paths)
    (repository.root / "a.py").write_text("a = 2\n")
    after = snapshots.snapshot(repository.paths)
    with snapshots.reading(repository.paths) as indexed:
        assert indexed("diff-tree", "-r", "--no-renames", "--name-only", before, after).startswith(b"a.py\n")


def use_start(repository: Hostile) -> None:
    tree, why = start_tree.take(repository.paths, str(repository.scratch / "start"), ("a.evil", "before\n"))
    assert tree or why


def use_installer(repository: Hostile) -> None:
    git_hooks.find(repository.root)
    git_hooks.hooks_folder(repository.paths)
    git_hooks._hints(repository.paths)


def use_checkpoints(repository: Hostile) -> None:
    async def taken() -> None:
        root = await worktree(repository.root)
        checkpoints = await Checkpoints.open(root, repository.scratch / "home")
        before = await checkpoints.take(["a.evil"])
        (root / "nested" / "a.evil").write_text("three\n")
        (root / "new").mkdir()
        await checkpoints.diff(before, await checkpoints.take(["new/a.evil"]))
        await checkpoints.unkept()
        await checkpoints.unsaved_since(0.0)
        checkpoints.close()

    asyncio.run(taken())


def use_terminal(repository: Hostile) -> None:
    async def opened() -> None:
        await EditJournal.of(repository.root)
        await git(repository.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")

    asyncio.run(opened())


def use_image(repository: Hostile) -> None:
    write_repository(repository.root, repository.scratch / "written")


def use_history(repository: Hostile) -> None:
    history = History(repository.root, repository.scratch)
    for commit in history.commits(3):
        try:
            history.commit(commit)
        except MiningError:
            continue
    history.head()


def use_nested(repository: Hostile) -> None:
    assert len(list(nested(repository.root))) == 2


def use_search(repository: Hostile) -> None:
    _shell(repository, find.IGNORED)
    _shell(repository, find._grep_command("one", ".", "*.evil"))
    _shell(repository, find._grep_command("one", ".", None))


def use_looking(repository: Hostile) -> None:
    """What the default policy does not ask about runs as the agent runs it."""
    permissions = Permissions(policy.DEFAULT, root=str(repository.root))
    command = LOOKS[len(repository.said) % len(LOOKS)]
    if permissions.decide("bash", {"command": command}).action is Action.ALLOW:
        _shell(repository, guarded(command))


def _shell(repository: Hostile, command: str) -> None:
    environment = {**os.environ, **NOBODY}
    where, nothing = repository.root, subprocess.DEVNULL
    subprocess.run(
        ["sh", "-c", command], cwd=where, stdin=nothing, capture_output=True, env=environment, check=False
    )


OURS = {"git", "git-upload-pack", "sh", "grep", "xargs", Path(sys.executable).name}
EVERY: list[Callable[[Hostile], None]] = [
    each for name, each in sorted(globals().items()) if name.startswith("use_")
]
SAID = (reading.GitCommandError, MiningError, SandboxError, subprocess.SubprocessError)


def meet(model: Path, folder: Path, seed: int, program: Path, uses: int) -> None:
    """Let `uses` uses of git meet one repository; raises AssertionError where a program was run."""
    chosen = random.Random(seed)
    repository = armed(model, folder, chosen, program)
    mark = program.with_name("mark")
    for number in range(uses):
        use = EVERY[(seed * uses + number) % len(EVERY)]
        try:
            use(repository)
        except Exception as error:
            if not isinstance(error, SAID) and type(error).__name__ != "GitError":
                raise AssertionError(f"{use.__name__} in {seed} ({repository.said})") from error
        assert not mark.exists(), f"{use.__name__} in {seed} ({repository.said}): {mark.read_text()}"
    shutil.rmtree(folder)


def test_nothing_that_a_repository_names_is_run(model: Path, tmp_path: Path) -> None:
    program = canary(tmp_path)
    for seed in range(REPOSITORIES):
        meet(model, tmp_path / str(seed), seed, program, 1)


@pytest.mark.deep
def test_every_use_in_every_repository(model: Path, tmp_path: Path) -> None:
    program = canary(tmp_path)
    for seed in range(REPOSITORIES, 2 * REPOSITORIES):
        meet(model, tmp_path / str(seed), seed, program, len(EVERY))


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_nothing_but_git_and_our_own_is_started(tmp_path: Path) -> None:
    """The system's own list of started programs holds no other one, whether or not it leaves a mark."""
    log = tmp_path / "log"
    trace = ("strace", "-f", "-qq", "-e", "trace=execve", "-e", "signal=none", "-o", str(log))
    done = subprocess.run(
        [*trace, sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    started = re.findall(r'execve\("([^"]+)".* = 0$', log.read_text(), re.MULTILINE)
    assert len(started) > REPOSITORIES
    assert {Path(each).name for each in started} - OURS == set()


@pytest.mark.parametrize(
    ("arm", "command"),
    [
        ("monitor", "status"),
        ("hooks path", "status"),
        ("filter", "status"),
        ("process", "status"),
        ("external", "diff"),
        ("driver", "diff"),
        ("text", "diff"),
        ("submodules", "diff"),
        ("signature", "log"),
        ("alias", "ls-files"),
    ],
)
def test_git_alone_would_run_it(model: Path, tmp_path: Path, arm: str, command: str) -> None:
    program = canary(tmp_path)
    repository = armed(model, tmp_path / "armed", random.Random(0), program, arm)
    _shell(repository, f"git {command}")
    assert program.with_name("mark").exists() or arm == "alias"


if __name__ == "__main__":  # as a program of its own, so that all that it starts can be traced
    where = Path(sys.argv[1])
    (where / "program").mkdir()
    for each in range(REPOSITORIES):
        meet(
            modelled(where / "model") if not each else where / "model/root",
            where / str(each),
            each,
            canary(where / "program") if not each else where / "program/program",
            2,
        )
