"""A call does what was judged: files and folders of a hostile repository cannot change its meaning.

Each attack is carried out under the rules a person has without a word, by the executor that works in place.

Covers harness/git.py, harness/tools/paths.py and the rules of harness/permissions/rules.py on disk.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ostinato.harness.execute import Executor
from ostinato.harness.git import guarded
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.profiles.profile import profile
from ostinato.harness.users import SilentUser
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import SandboxPathError, Spec
from ostinato.sandbox.files import tree


class Session:
    """Judges a call as `ostinato code` does, and carries it out when it is allowed."""

    def __init__(self, root: Path, executor: Executor, extra: tuple[Rule, ...] = ()) -> None:
        self.root = root
        self.permissions = Permissions([*policy.DEFAULT, *extra], root=str(root))
        self._executor = executor

    async def call(self, tool: str, **arguments: object) -> Action:
        action = self.permissions.decide(tool, arguments).action
        if action is Action.ALLOW:
            await self._executor.run(tool, arguments)
        return action

    @property
    def broken_into(self) -> bool:
        return (self.root / "PWNED").exists()


@pytest.fixture
async def session(repo: Path):
    backend = ProcessBackend(in_place=True)
    sandbox = await backend.create(Spec(repo=repo))
    yield Session(repo, Executor(sandbox, SilentUser(), command_timeout_s=10.0, profile=profile("full")))
    await backend.aclose()


CONFIG = '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch {root}/PWNED; false"\n'


def bare(where: Path, root: Path) -> None:
    """A folder that git takes for a repository, as a clone could bring it."""
    for folder in ("objects", "refs"):
        (where / folder).mkdir(parents=True)
        (where / folder / "keep").write_text("")
    (where / "HEAD").write_text("ref: refs/heads/main\n")
    (where / "config").write_text(CONFIG.format(root=root) + f"\tworktree = {root}\n\tbare = false\n")


async def test_a_redirection_that_shells_read_differently_is_asked(session: Session) -> None:
    assert await session.call("bash", command="ls &>/dev/null touch PWNED") is Action.ASK
    assert await session.call("bash", command="git status &>>/dev/null touch PWNED") is Action.ASK
    assert not session.broken_into


async def test_a_file_named_git_is_not_written(session: Session) -> None:
    bare(session.root / "evil", session.root)
    (session.root / "sub").mkdir()
    for path in ("sub/.git", "sub/.GIT", "./sub/.git/", "sub/.git ", "sub/.g\u200cit", "sub/git~1"):
        assert await session.call("write", path=path, content="gitdir: ../evil\n") is Action.DENY, path
    assert await session.call("bash", command="cd sub && git status") is Action.ALLOW
    assert not session.broken_into


async def test_a_repository_among_the_files_is_none(session: Session) -> None:
    bare(session.root / "evil", session.root)
    (session.root / "linked").symlink_to("evil")
    for command in ("cd evil && git status", "cd evil/objects; git status", "cd linked && git status"):
        assert await session.call("bash", command=command) is Action.ASK, command
    assert not session.broken_into


@pytest.mark.parametrize("command", ["cd evil && git status", "(cd evil; git status)"])
def test_git_that_looks_runs_no_monitor_of_a_bare_repository(repo: Path, command: str) -> None:
    """Even where somebody answered yes."""
    bare(repo / "evil", repo)
    unguarded = subprocess.run(["/bin/sh", "-c", command], cwd=repo, capture_output=True, check=False)
    assert unguarded.returncode == 0 and (repo / "PWNED").exists(), unguarded.stderr
    (repo / "PWNED").unlink()
    subprocess.run(["/bin/sh", "-c", guarded(command)], cwd=repo, capture_output=True, check=False)
    assert not (repo / "PWNED").exists()


async def test_hooks_among_the_files_do_not_run_while_git_looks(session: Session) -> None:
    """Husky keeps hooks among the files: an edit of one is asked, and none runs while git looks."""
    root = session.root
    subprocess.run(["git", "-C", root, "config", "core.hooksPath", ".husky"], check=True)
    (root / "run.sh").write_text("#!/bin/sh\necho\n")
    patch = "*** Begin Patch\n*** Update File: run.sh\n*** Move to: .husky/post-index-change\n"
    assert await session.call("apply_patch", patch=f"{patch} #!/bin/sh\n*** End Patch") is Action.ASK
    (root / ".husky").mkdir()
    (root / ".husky" / "post-index-change").write_text(f"#!/bin/sh\ntouch {root}/PWNED\n")
    (root / ".husky" / "post-index-change").chmod(0o755)
    os.utime(root / "calc.py", (1, 1))
    assert await session.call("bash", command="git status") is Action.ALLOW
    assert not session.broken_into
    os.utime(root / "calc.py", (2, 2))
    subprocess.run(["git", "status"], cwd=root, capture_output=True, check=True)
    assert session.broken_into, "the attack works no more, with or without us"


async def test_a_link_to_git_is_not_written_through(session: Session) -> None:
    (session.root / "docs").symlink_to(".git")
    (session.root / "settings").symlink_to(".git/config")
    (session.root / "pkg" / "up").symlink_to("..")
    for path in ("docs/config", "settings", "pkg/up/.git/config", "pkg/up/docs/config"):
        assert await session.call("write", path=path, content="[core]\n") is Action.DENY, path
        assert await session.call("edit", path=path, old_string="a", new_string="b") is Action.DENY, path
        with pytest.raises(SandboxPathError, match="only git writes there"):
            tree.write(str(session.root), path, b"[core]\n")
    with pytest.raises(SandboxPathError, match="only git writes there"):
        tree.delete(str(session.root), "docs/config")


@pytest.mark.parametrize(
    ("spelled", "denied"),
    [
        ("secret", True),
        ("./pkg/../secret", True),
        ("{root}/secret", True),
        ("/{root}/secret", True),
        ("again", True),
        ("pkg/up/secret", True),
        ("{root}//{root}/secret", False),  # another file, also for a patch
        ("other", False),
    ],
)
async def test_a_denial_holds_for_each_name_of_a_file(session: Session, spelled: str, denied: bool) -> None:
    root = session.root
    (root / "secret").write_text("keep\n")
    (root / "again").symlink_to("secret")
    (root / "pkg" / "up").symlink_to("..")
    path = spelled.format(root=root)
    rules = [*policy.DEFAULT, *policy.given(Action.DENY, ["edit: secret", "read: secret"])]
    session.permissions = Permissions(rules, root=str(root))
    patch = f"*** Begin Patch\n*** Update File: {path}\n-keep\n+lost\n*** End Patch"
    await session.call("apply_patch", patch=patch)
    for tool in ("read", "write"):
        action = await session.call(tool, path=path, content="lost\n")
        assert (action is Action.DENY) is denied
    assert (root / "secret").read_text() == "keep\n"


async def test_a_link_is_shown_with_what_it_leads_to_and_granted_so(session: Session) -> None:
    (session.root / "a").symlink_to("calc.py")
    asking = Permissions([], root=str(session.root))
    asked = asking.decide("write", {"path": "a", "content": ""})
    assert asked.asks == ("a (really calc.py)",)
    granted = asking.granting(asked.grants)
    assert granted.decide("write", {"path": "a", "content": ""}).action is Action.ALLOW
    (session.root / "a").unlink()
    (session.root / "a").symlink_to("pkg/util.py")
    assert granted.decide("write", {"path": "a", "content": ""}).action is Action.ASK


def test_a_folder_that_becomes_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process puts a link in its place between judging and doing."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "folder").mkdir(parents=True)
    elsewhere.mkdir()
    judged = tree.resolve

    def swapped(top: str, path: str) -> str:
        real = judged(top, path)
        (root / "folder").rmdir()
        (root / "folder").symlink_to(elsewhere)
        return real

    monkeypatch.setattr(tree, "resolve", swapped)
    with pytest.raises(OSError, match="director"):
        tree.write(str(root), "folder/x", b"lost")
    assert not list(elsewhere.iterdir())


async def test_programs_are_not_edited_where_the_shell_looks_for_them(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in the repository is on the PATH of many people."""
    monkeypatch.setenv("PATH", f"{repo}/.venv/bin:node_modules/.bin::{os.environ['PATH']}")
    assert [str(rule) for rule in policy.keeping_programs(repo)] == ["deny edit: .venv/bin/*"]
    permissions = Permissions([*policy.DEFAULT, *policy.keeping_programs(repo)], root=str(repo))
    assert permissions.decide("write", {"path": ".venv/bin/ls"}).action is Action.DENY
    assert permissions.decide("write", {"path": ".venv/lib/x.py"}).action is Action.ALLOW
    assert "node_modules" not in policy.search_path() and "::" not in policy.search_path()


SETTING = " (a setting of this repository by which git runs a program)"


async def test_git_is_asked_where_the_repository_names_programs(repo: Path) -> None:
    """What git reads counts at the moment of the call, and a grant is of one setting and its value."""
    permissions = Permissions(policy.DEFAULT, root=str(repo))
    looking = ("git status", "git diff", "git log")
    assert [permissions.decide("bash", {"command": each}).action for each in looking] == [Action.ALLOW] * 3
    subprocess.run(["git", "-C", repo, "config", "diff.pdf.textconv", "touch PWNED;"], check=True)
    for command in looking:
        asked = permissions.decide("bash", {"command": command})
        assert asked.asks == (f"diff.pdf.textconv=touch PWNED;{SETTING}",), command
        assert [str(rule) for rule in asked.grants] == ["allow git: diff.pdf.textconv=touch PWNED;"]
    granted = permissions.granting(asked.grants)
    assert granted.decide("bash", {"command": "git diff"}).action is Action.ALLOW
    subprocess.run(["git", "-C", repo, "config", "diff.pdf.textconv", "touch MORE;"], check=True)
    assert granted.decide("bash", {"command": "git diff"}).action is Action.ASK
    for rules, action in ((["bash: git *"], Action.ASK), (["bash: *"], Action.ALLOW)):
        given = permissions.granting(policy.given(Action.ALLOW, rules))
        assert given.decide("bash", {"command": "cd pkg && env git diff"}).action is action
    assert permissions.decide("bash", {"command": "ls"}).action is Action.ALLOW


def test_what_is_guarded() -> None:
    assert guarded("git commit -m x") == "git commit -m x"
    assert guarded("git status <<E\nE") == "git status <<E\nE"
    assert guarded("pytest && git diff").startswith("export GIT_CONFIG_COUNT=4 ")
    assert "hooksPath" not in guarded("git commit -am x && git status")
    assert guarded("ls; git -C x log") == "ls; git -C x log"


async def test_a_redirection_after_cd_is_judged_where_it_leads(session: Session) -> None:
    rules = policy.given(Action.ALLOW, ["bash: > out*", "bash: echo *"])
    permissions = Permissions([*policy.DEFAULT, *rules], root=str(session.root))
    (session.root / "out-of-here").symlink_to("/")
    (session.root / "pkg" / "hook").symlink_to("../.git")

    def action(command: str) -> Action:
        return permissions.decide("bash", {"command": command}).action

    assert action("echo x > out.txt") is Action.ALLOW
    assert action("echo x > ./out.txt") is Action.ALLOW
    assert action("cd pkg && echo x > out.txt") is Action.ASK
    assert action("echo x > out/../calc.py") is Action.ASK
    assert action("echo x > out$X") is Action.ASK
    assert action("echo x > out-of-here/tmp/x") is Action.ASK
    assert action("cd pkg; cd hook; echo x > out") is Action.DENY
    assert action("cd .git; echo x > out") is Action.DENY


def test_a_file_has_the_name_that_its_folder_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk ignores case; here only the system call that looks a name up does so."""
    (tmp_path / "Src").mkdir()
    (tmp_path / "Src" / "Secret").write_text("")
    look_up = os.lstat

    def ignoring_case(path: str) -> os.stat_result:
        folder, _, name = path.rpartition("/")
        found = [each for each in os.listdir(folder or "/") if each.casefold() == name.casefold()]
        return look_up(f"{folder}/{found[0]}" if found else path)

    monkeypatch.setattr(os, "lstat", ignoring_case)
    assert tree.spelled(f"{tmp_path}/src/SECRET") == f"{tmp_path}/Src/Secret"
    assert tree.spelled(f"{tmp_path}/src/new/File") == f"{tmp_path}/Src/new/File"


@pytest.mark.parametrize(
    "name", [".git", ".GIT", ".Git", ".git ", ".git.", ".g\u200cit", "git~1", "GIT~1", ".git::$X"]
)
def test_every_name_of_git_is_git(name: str) -> None:
    assert tree.is_git(name)


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", ".gi", "x.git", "agit~1", ".git-x"])
def test_other_names_are_not(name: str) -> None:
    assert not tree.is_git(name)
