"""What git reads in a person's repository is asked when it is read, and not edited without a question."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.harness.git import guarded
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    program = tmp_path / "canary"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def outer(repo: Path, tmp_path: Path) -> Path:
    """A repository with a submodule `sub`."""
    outer = tmp_path / "outer"
    git(tmp_path, "init", "-q", "outer")
    git(outer, "submodule", "--quiet", "add", str(repo), "sub")
    git(outer, "commit", "-q", "-m", "sub")
    return outer


def judged(root: Path, tool: str, **arguments: str) -> Action:
    return Permissions(policy.DEFAULT, root=str(root)).decide(tool, arguments).action


def signed(root: Path, program: Path) -> None:
    git(root, "config", "gpg.program", str(program))
    git(root, "config", "format.pretty", "%G?")
    text = subprocess.run(["git", "-C", root, "cat-file", "commit", "HEAD"], capture_output=True, check=True)
    forged = text.stdout.replace(b"\n\n", b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1)
    made = subprocess.run(
        ["git", "-C", root, "hash-object", "-t", "commit", "-w", "--stdin"],
        input=forged,
        capture_output=True,
        check=True,
    )
    git(root, "update-ref", "HEAD", made.stdout.decode().strip())


def promising(root: Path, program: Path) -> None:
    """A missing object would be fetched from a remote that is a program."""
    for key, value in (
        ("remote.origin.url", f"ext::{program}"),
        ("protocol.ext.allow", "always"),
        ("extensions.partialClone", "origin"),
    ):
        git(root, "config", key, value)
    git(root, "config", "core.repositoryformatversion", "1")
    blob = subprocess.run(["git", "-C", root, "rev-parse", "HEAD:calc.py"], capture_output=True, check=True)
    name = blob.stdout.decode().strip()
    (root / ".git" / "objects" / name[:2] / name[2:]).unlink()
    (root / "calc.py").write_text("changed\n")


def helped(root: Path, program: Path) -> None:
    git(root, "config", "man.viewer", "x")
    git(root, "config", "man.x.cmd", str(program))


def differing(root: Path, program: Path) -> None:
    git(root, "config", "diff.submodule", "diff")
    git(root / "sub", "config", "diff.external", str(program))
    (root / "sub" / "calc.py").write_text("changed\n")


def filtering(root: Path, program: Path) -> None:
    git(root / "sub", "config", "filter.x.clean", str(program))
    (root / "sub" / ".gitattributes").write_text("* filter=x\n")
    os.utime(root / "sub" / "calc.py", (1, 1))


def hooked(root: Path, program: Path) -> None:
    hook = root / ".git" / "modules" / "sub" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_bytes(program.read_bytes())
    hook.chmod(0o755)
    os.utime(root / "sub" / "calc.py", (1, 1))


@pytest.mark.parametrize(
    ("arm", "command"),
    [
        (signed, "git log"),
        (promising, "git diff"),
        (helped, "git status --help"),
        (differing, "git diff"),
        (filtering, "git status"),
        (hooked, "git status"),
    ],
)
def test_a_command_that_would_run_a_program_of_the_repository_is_asked(
    repo: Path, outer: Path, canary: Path, arm: Callable[[Path, Path], None], command: str
) -> None:
    root = outer if arm in {differing, filtering, hooked} else repo
    assert judged(root, "bash", command=command) is Action.ALLOW
    arm(root, canary)
    assert judged(root, "bash", command=command) is Action.ASK
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    line = ["sh", "-c", guarded(command)]
    nobody = subprocess.DEVNULL
    subprocess.run(line, cwd=root, stdin=nobody, capture_output=True, check=False, env=environment)
    assert canary.with_name("ran").exists() or arm is hooked, "the attack works no more, with or without us"


@pytest.mark.parametrize("setting", ["include.path", "includeIf.onbranch:other.path"])
def test_an_included_file_is_not_edited_unasked(repo: Path, setting: str) -> None:
    assert judged(repo, "write", path=".gitconfig", content="") is Action.ALLOW
    git(repo, "config", setting, "../.gitconfig")
    assert judged(repo, "write", path=".gitconfig", content="") is Action.ASK
    asked = Permissions(policy.DEFAULT, root=str(repo)).decide("write", {"path": "./.gitconfig"})
    assert asked.asks == (".gitconfig (git reads or runs it)",)
    again = Permissions(policy.DEFAULT, root=str(repo)).granting(asked.grants)
    assert again.decide("write", {"path": ".gitconfig"}).action is Action.ALLOW
    (repo / "link").symlink_to(".gitconfig")
    assert judged(repo, "edit", path="link", old_string="a", new_string="b") is Action.ASK
    assert judged(repo, "write", path="other", content="") is Action.ALLOW
    copying = policy.given(Action.ALLOW, ["bash: cp *", "bash: tee *", "bash: > *", "bash: echo *"])
    permissions = Permissions([*policy.DEFAULT, *copying], root=str(repo))
    for command in ("cp x .gitconfig", "tee link", "echo x > .gitconfig", "cp a/.gitconfig ."):
        assert permissions.decide("bash", {"command": command}).action is Action.ASK, command
    assert permissions.decide("bash", {"command": "cp x y"}).action is Action.ALLOW
    if setting == "include.path":
        (repo / ".gitconfig").write_text("[core]\n\tfsmonitor = touch PWNED\n[alias]\n\tx = !y\n")
        assert judged(repo, "bash", command="git status") is Action.ASK


def test_a_git_folder_of_another_name_is_not_edited_unasked(repo: Path) -> None:
    (repo / ".git").rename(repo / "meta")
    (repo / ".git").write_text("gitdir: meta\n")
    for path in ("meta/config", "meta/hooks/pre-commit", "meta/info/attributes", "meta/modules/x/config"):
        assert judged(repo, "write", path=path, content="") is Action.ASK, path
    assert judged(repo, "write", path="metal/config", content="") is Action.ALLOW
    assert judged(repo, "bash", command="git status") is Action.ALLOW
    (repo / "new" / "refs").mkdir(parents=True)
    (repo / "new" / "objects").mkdir()
    assert judged(repo, "write", path="new/config", content="") is Action.ALLOW
    assert judged(repo, "write", path="new/HEAD", content="ref: x") is Action.ASK  # it becomes one


def test_attributes_and_programs_of_settings_are_not_edited_unasked(repo: Path) -> None:
    assert judged(repo, "write", path="pkg/.gitattributes", content="* text") is Action.ALLOW
    git(repo, "config", "filter.x.clean", "tools/clean %f")
    assert judged(repo, "write", path="pkg/.gitattributes", content="* filter=x") is Action.ASK
    assert judged(repo, "write", path="tools/clean", content="") is Action.ASK
    assert judged(repo, "write", path="tools/other", content="") is Action.ALLOW
    assert judged(repo, "write", path=".gitignore", content="") is Action.ALLOW
    git(repo, "config", "core.hooksPath", "tools/hooks")
    assert judged(repo, "write", path="tools/hooks/pre-commit", content="") is Action.ASK


def test_settings_that_cannot_be_read_are_asked(repo: Path) -> None:
    (repo / ".git" / "config").write_text("[core\n")
    permissions = Permissions(policy.DEFAULT, root=str(repo))
    (asked,) = permissions.decide("bash", {"command": "git status"}).asks
    assert asked.startswith("settings that cannot be read: fatal: bad config line 1")
    assert judged(repo, "write", path="calc.py", content="") is Action.ASK


def test_hooks_of_a_commit_are_asked_once(repo: Path) -> None:
    rules = policy.given(Action.ALLOW, ["bash: git commit *"])
    permissions = Permissions([*policy.DEFAULT, *rules], root=str(repo))
    commit = {"command": "git commit -m x"}
    assert permissions.decide("bash", commit).action is Action.ALLOW
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    asked = permissions.decide("bash", commit)
    assert [str(rule) for rule in asked.grants] == ["allow git: hooks/pre-commit"]
    assert permissions.granting(asked.grants).decide("bash", commit).action is Action.ALLOW
    assert permissions.decide("bash", {"command": "git status"}).action is Action.ALLOW
    always = policy.given(Action.ALLOW, ["git: hooks/*"])
    assert permissions.granting(always).decide("bash", commit).action is Action.ALLOW
