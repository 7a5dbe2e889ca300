"""Checkpoints and undo on real repositories of every shape; nothing is written there but files.

Covers harness/workspace/checkpoints.py and harness/workspace/undo.py.
"""

import asyncio
import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from ostinato.harness.conversation import Call, Conversation, call_of
from ostinato.harness.git import GitError, worktree
from ostinato.harness.git import git as run_git
from ostinato.harness.permissions.rules import ALLOW_ALL, Action, Permissions
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.session_log import LogEventKind, SessionLog
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.undo import complete, named, steps, undo

IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *IDENTITY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def everything(directory: Path) -> dict[str, str]:
    """Every file below, with a hash of its bytes."""
    paths = [Path(place, name) for place, _, names in os.walk(directory) for name in names]
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if not path.is_symlink()
    }


def call(name: str, **arguments: object) -> Call:
    import json

    wire = {"id": "c0", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return call_of(wire, PROFILES["full"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def test_nothing_is_left_in_the_repository(repo: Path, home: Path) -> None:
    (repo / "staged.py").write_text("staged\n")
    git(repo, "add", "staged.py")
    before = everything(repo / ".git")
    checkpoints = await Checkpoints.open(repo, home)
    one = await checkpoints.take()
    (repo / "calc.py").unlink()
    two = await checkpoints.take()
    assert "deleted file" in await checkpoints.diff(one, two)
    assert (await checkpoints.undo(one, two)).restored == ("calc.py",)
    checkpoints.close()
    assert everything(repo / ".git") == before
    assert git(repo, "status", "-s") == "A  staged.py\n"


async def test_bytes_modes_and_links_come_back_as_they_were(repo: Path, home: Path) -> None:
    (repo / ".gitattributes").write_text("* text=auto eol=lf\n*.big filter=lfs\n")
    git(repo, "config", "core.autocrlf", "true")
    (repo / "dos.txt").write_bytes(b"a\r\nb\r\n")
    (repo / "raw.big").write_bytes(bytes(range(256)))
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("dos.txt")
    (repo / "née.txt").write_text("é")
    checkpoints = await Checkpoints.open(repo, home)
    one = await checkpoints.take()
    for name in ("dos.txt", "raw.big", "run.sh", "link", "née.txt"):
        (repo / name).unlink()
    (repo / "made" / "deep").mkdir(parents=True)
    (repo / "made" / "deep" / "new").write_text("x")
    (repo / "link").write_text("a file now")
    await checkpoints.undo(one, await checkpoints.take())
    assert (repo / "dos.txt").read_bytes() == b"a\r\nb\r\n"
    assert (repo / "raw.big").read_bytes() == bytes(range(256))
    assert os.access(repo / "run.sh", os.X_OK)
    assert (repo / "link").readlink() == Path("dos.txt")
    assert (repo / "née.txt").read_text() == "é"
    assert not (repo / "made").exists()


async def test_what_somebody_changed_since_is_left(repo: Path, home: Path) -> None:
    checkpoints = await Checkpoints.open(repo, home)
    one = await checkpoints.take()
    (repo / "calc.py").write_text("agent\n")
    (repo / "pkg/util.py").write_text("agent\n")
    two = await checkpoints.take()
    (repo / "calc.py").write_text("agent, then me\n")
    done = await checkpoints.undo(one, two)
    assert (done.restored, done.left) == (("pkg/util.py",), ("calc.py",))
    assert (repo / "calc.py").read_text() == "agent, then me\n"


async def test_an_ignored_file_is_kept_when_a_call_names_it(repo: Path, home: Path) -> None:
    (repo / ".gitignore").write_text(".env\nbuild/\n")
    (repo / ".env").write_text("A=1\n")
    checkpoints = await Checkpoints.open(repo, home)
    write = call("write", path=".env", content="A=2\n")
    before = await checkpoints.before(write)
    assert before is not None
    (repo / ".env").write_text("A=2\n")
    (edit,) = await checkpoints.after(write, before)
    assert (edit.path, edit.before, edit.after) == (".env", b"A=1\n", b"A=2\n")
    assert [span[:2] for span in edit.lines] == [(1, 1)]
    assert (await checkpoints.undo(*edit.trees)).restored == (".env",)
    assert (repo / ".env").read_text() == "A=1\n"
    assert await checkpoints.before(call("read", path=".env")) is None


async def test_prompts_are_undone_one_by_one(repo: Path, home: Path, tmp_path: Path) -> None:
    checkpoints = await Checkpoints.open(repo, home)
    original = (repo / "calc.py").read_text()
    with SessionLog(tmp_path / "s1.jsonl") as log:
        conversation = Conversation(session_id="s1", permissions=ALLOW_ALL, log=log)
        for text in ("one", "two"):
            conversation.start(text)
            for step in (1, 2):
                before = await checkpoints.before(call("bash", command="x"))
                (repo / "calc.py").write_text(f"{text} {step}\n")
                for edit in await checkpoints.after(call("bash", command="x"), before or ""):
                    conversation.note_edit(call("bash", command="x"), edit)
        conversation.start("only a question")
        assert len(steps(log.events)) == 2
        for expected in ("one 2\n", original):
            done = await undo(checkpoints, conversation)
            assert done is not None and done.restored == ("calc.py",)
            assert (repo / "calc.py").read_text() == expected
            assert conversation.messages[-1]["content"] == "[I took your changes back: calc.py]"
        assert await undo(checkpoints, conversation) is None


async def test_an_undo_names_what_no_checkpoint_has_and_was_written_since(
    repo: Path, home: Path, tmp_path: Path
) -> None:
    (repo / ".gitignore").write_text(".env\nbuild/\n")
    git(repo, "init", "-q", "library")
    (repo / "library" / "old").write_text("mine\n")
    for name in (".env", "build/old", "build/kept"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("mine\n")
    checkpoints = await Checkpoints.open(repo, home)
    with SessionLog(tmp_path / "s1.jsonl") as log:
        conversation = Conversation(session_id="s1", permissions=ALLOW_ALL, log=log)
        while conversation.log and (repo / ".env").lstat().st_ctime >= time.time() - 0.02:
            await asyncio.sleep(0.01)  # the clock of files is coarse
        conversation.start("one")
        bash, write = call("bash", command="x"), call("write", path="build/kept", content="new")
        before = [await checkpoints.before(bash)]
        (repo / ".env").write_text("A=2\n")
        (repo / "build" / "new\033").write_text("x")
        (repo / "library" / "deep").mkdir()
        (repo / "library" / "deep" / "theirs").write_text("x")
        (repo / "calc.py").write_text("changed\n")
        for edit in await checkpoints.after(bash, before[0] or ""):
            conversation.note_edit(bash, edit)
        before.append(await checkpoints.before(write))
        (repo / "build" / "kept").write_text("new")
        for edit in await checkpoints.after(write, before[1] or ""):
            conversation.note_edit(write, edit)
        done = await undo(checkpoints, conversation)
        assert done is not None and done.restored == ("build/kept", "calc.py") and not done.left
        assert done.unsaved == (".env", "build/new\033", "library/deep/theirs")
        assert named(done.unsaved * 10)[-2:] == ["build/new\\x1b", "and 10 more"]
        assert conversation.messages[-1]["content"].endswith(
            "as they are now: .env, build/new\\x1b, library/deep/theirs]"
        )
        again = await undo(checkpoints, conversation)
        assert again is not None and not again.restored and again.unsaved == done.unsaved


async def test_a_call_that_the_process_did_not_survive_can_be_undone(
    repo: Path, home: Path, tmp_path
) -> None:
    checkpoints = await Checkpoints.open(repo, home)
    original = (repo / "calc.py").read_text()
    with SessionLog(tmp_path / "s1.jsonl") as log:
        conversation = Conversation(session_id="s1", permissions=ALLOW_ALL, log=log)
        conversation.start("one")
        conversation.note(LogEventKind.CHECKPOINT, id="c0", tree=await checkpoints.take())
        (repo / "calc.py").write_text("half")
        await complete(checkpoints, conversation)
        await complete(checkpoints, conversation)
        assert sum(event.kind is LogEventKind.EDIT for event in log.events) == 1
        await undo(checkpoints, conversation)
    assert (repo / "calc.py").read_text() == original


@pytest.mark.parametrize("name", ["fresh", "caf\udce9"])
async def test_a_repository_without_commits(tmp_path: Path, home: Path, name: str) -> None:
    git(tmp_path, "init", "-q", name)
    (tmp_path / name / "a").write_text("1")
    checkpoints = await Checkpoints.open(tmp_path / name, home)
    one = await checkpoints.take()
    (tmp_path / name / "a").write_text("2")
    await checkpoints.undo(one, await checkpoints.take())
    assert (tmp_path / name / "a").read_text() == "1"


async def test_a_linked_worktree_is_one_of_its_own(repo: Path, home: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    root = await worktree(tmp_path / "linked" / "pkg")
    assert root == tmp_path / "linked"
    checkpoints = await Checkpoints.open(root, home)
    one = await checkpoints.take()
    (root / "calc.py").write_text("x")
    await checkpoints.undo(one, await checkpoints.take())
    assert git(root, "status", "-s") == git(repo, "status", "-s") == ""


async def test_a_submodule_is_worked_on_from_inside(repo: Path, home: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "outer")
    outer = tmp_path / "outer"
    git(outer, "submodule", "--quiet", "add", str(repo), "sub")
    git(outer, "init", "-q", "empty")
    checkpoints = await Checkpoints.open(outer, home)
    permissions = Permissions([*ALLOW_ALL.rules, *await checkpoints.unkept()])
    edit = {"path": "sub/calc.py", "old_string": "a", "new_string": "b"}
    judged = permissions.decide("edit", edit)
    assert (judged.action, judged.reason) == (Action.DENY, "the rule `deny edit: sub/*`")
    assert permissions.decide("edit", edit | {"path": "sub.py"}).action is Action.ALLOW
    root = await worktree(outer / "sub" / "pkg")
    assert root == outer / "sub"
    inner = await Checkpoints.open(root, home)
    one = await inner.take()
    (root / "calc.py").write_text("x")
    assert (await inner.undo(one, await inner.take())).restored == ("calc.py",)


async def test_where_there_is_nothing_to_work_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    (tmp_path / "plain").mkdir()
    with pytest.raises(GitError, match="it is bare, `git worktree add` gives it one"):
        await worktree(tmp_path / "bare.git")
    with pytest.raises(GitError, match="run `git init` there first"):
        await worktree(tmp_path / "plain")
    git(tmp_path, "init", "-q", "odd")
    (tmp_path / "odd/.git/HEAD").write_text("no branch\n")
    with pytest.raises(GitError, match=r"git does not read the \.git there"):
        await worktree(tmp_path / "odd")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GitError, match="git is not installed"):
        await worktree(tmp_path)


async def test_two_sessions_keep_checkpoints_side_by_side(repo: Path, home: Path) -> None:
    first, second = await Checkpoints.open(repo, home), await Checkpoints.open(repo, home)
    assert await first.take() == await second.take()
    first.close()
    assert await second.take() == await second.take()
    second.close()
    third = await Checkpoints.open(repo, home)
    assert not await third.changed(await third.take(), await third.take())


async def test_a_cancelled_command_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that is left behind holds the lock of the index, and the next checkpoint would fail."""
    programs, begun, gate = tmp_path / "programs", tmp_path / "begun", tmp_path / "gate"
    programs.mkdir()
    os.mkfifo(gate)
    settings = 'case "$*" in *--list*) exit 0;; esac'
    held = f"touch {begun}\nread _ < {gate}\ntouch {tmp_path}/ended"
    (programs / "git").write_text(f"#!/bin/sh\n{settings}\n{held}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    running = asyncio.ensure_future(run_git(tmp_path, "add", "--all"))
    while not begun.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not running.done()
    await asyncio.to_thread(gate.write_text, "go\n")
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (tmp_path / "ended").exists()
