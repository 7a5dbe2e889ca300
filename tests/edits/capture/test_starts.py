"""Covers edits/capture/starts.py and edits/capture/start_tree.py: the tree at the start of a session."""

import os
import subprocess
from pathlib import Path

from tests.edits.capture.conftest import claude

from ostinato.edits.capture import start_tree, starts
from ostinato.edits.capture.repository_paths import state_of

ID = "5b1c"


def started(desk, id=ID):
    return starts.read(starts.folder_of(state_of(desk.repo), id))


def held(desk, path, id=ID):
    """Return the text of a file in the kept tree, as any git reads it in the folder of the session."""
    command = [
        "git",
        "-C",
        starts.folder_of(state_of(desk.repo), id),
        "show",
        f"{started(desk, id)['tree']}:{path}",
    ]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return done.stdout if done.returncode == 0 else None


def edit(desk, hook, path, text, **more):
    told = {"file_path": str(desk.root / path), "content": "…"}
    hook(claude(desk, "PreToolUse", "Write", told, **more))
    desk.write(path, text)
    hook(claude(desk, "PostToolUse", "Write", told, **more))


def test_the_tree_is_that_before_the_first_call(desk, hook) -> None:
    desk.write("notes.txt", "not committed\n")
    hook(claude(desk, "SessionStart", None, None, source="startup"))
    assert held(desk, "calc.py") == desk.BASE
    desk.write("other.py", "by_hand = 1\n")
    hook(claude(desk, "UserPromptSubmit", None, None, prompt="my secret plan"))
    assert held(desk, "other.py") == "by_hand = 1\n"
    edit(desk, hook, "calc.py", desk.PROPOSED)
    edit(desk, hook, "more/new.py", "x = 1\n", tool_use_id="toolu_2")
    hook(claude(desk, "UserPromptSubmit", None, None, prompt="and now"))
    desk.reporter.tick()
    assert (held(desk, "calc.py"), held(desk, "notes.txt")) == (desk.BASE, "not committed\n")
    assert held(desk, "more/new.py") is None and started(desk)["root"] == str(desk.root)
    folder = starts.folder_of(state_of(desk.repo), ID)
    assert starts.edited(folder) == ("calc.py", "more/new.py")
    assert list(starts.folders(state_of(desk.repo))) == [folder]
    assert not desk.git("diff", "--cached", "--name-only")


def test_a_command_begins_a_session_too(desk, hook) -> None:
    hook(claude(desk, "PreToolUse", "Bash", {"command": "sed …"}))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", "Bash", {"command": "sed …"}, tool_response={"stdout": ""}))
    desk.reporter.tick()
    assert held(desk, "calc.py") == desk.BASE
    assert starts.edited(starts.folder_of(state_of(desk.repo), ID)) == ("calc.py",)


def plain(desk, path, before, after, **more):
    told = {"session_id": ID, "agent": "aider", "cwd": str(desk.root), "path": path}
    return {"hook_event_name": "edit.proposed", "before": before, "after": after, **told, **more}


def test_an_edit_that_is_reported_afterwards_is_taken_back(desk, hook) -> None:
    desk.write("calc.py", desk.PROPOSED)
    hook(plain(desk, "calc.py", desk.BASE, desk.PROPOSED))
    desk.write("new.py", "x = 1\n")
    hook(plain(desk, "new.py", None, "x = 1\n"))
    assert held(desk, "calc.py") == desk.BASE and held(desk, "new.py") is None
    desk.write("new.py", "x = 2\n")
    hook(plain(desk, "new.py", "x = 1\n", "x = 2\n", session_id="later"))
    assert held(desk, "new.py", "later") == "x = 1\n"
    (desk.root / "other.py").unlink()
    hook(plain(desk, "other.py", "def other():\n    return 1\n", None, session_id="gone"))
    assert held(desk, "other.py", "gone") == "def other():\n    return 1\n"
    desk.write("fresh.py", "x = 1\n")
    hook(plain(desk, "fresh.py", None, "x = 1\n", session_id="made"))
    assert held(desk, "fresh.py", "made") is None and held(desk, "new.py", "made") == "x = 2\n"


def test_a_first_edit_that_fits_nothing_leaves_a_reason(desk, hook) -> None:
    hook(plain(desk, "calc.py", "a text", "another text"))
    assert started(desk)["tree"] == "" and started(desk)["why"] == "its first edit is mismatch"


def test_a_session_that_began_earlier_has_no_start(desk, hook) -> None:
    hook(claude(desk, "SessionStart", None, None, source="resume"))
    hook(claude(desk, "UserPromptSubmit", None, None))
    assert started(desk)["tree"] == "" and started(desk)["why"] == "it began earlier"
    hook(claude(desk, "SessionStart", None, None, source="startup", session_id="new"))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "SessionStart", None, None, source="resume", session_id="new"))
    assert held(desk, "calc.py", "new") == desk.PROPOSED  # nothing was asked for before


def test_sessions_with_a_log_and_repositories_without_hooks_keep_none(desk, hook, tmp_path) -> None:
    desk.write("calc.py", desk.PROPOSED)
    hook(plain(desk, "calc.py", desk.BASE, desk.PROPOSED, agent="ostinato-code"))
    assert started(desk) is None
    (Path(state_of(desk.repo)) / "enabled").unlink()
    hook(claude(desk, "SessionStart", None, None, source="startup"))
    assert started(desk) is None


def test_what_is_too_large_is_not_read(desk, hook, monkeypatch) -> None:
    with (desk.root / "data.bin").open("wb") as file:
        os.truncate(file.fileno(), start_tree.MOST_BYTES + 1)
    edit(desk, hook, "calc.py", desk.PROPOSED)
    assert started(desk)["tree"] == "" and started(desk)["why"] == "more than 16 MiB were not committed"
    (desk.root / "data.bin").unlink()
    hook(claude(desk, "UserPromptSubmit", None, None))
    assert started(desk)["tree"] == ""  # and it is not tried again
    desk.reporter.tick()
    assert desk.named("edit.proposed")  # the edit is followed all the same


def test_git_that_takes_long_costs_the_tree_alone(desk, hook, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text('[filter "slow"]\n\tclean = sleep 5\n')  # the person's own filter
    monkeypatch.setenv("HOME", str(tmp_path))
    desk.write(".gitattributes", "*.md filter=slow\n")
    desk.write("notes.md", "slow to add\n")
    monkeypatch.setattr(start_tree, "TIMEOUT_S", 0.5)
    hook(claude(desk, "SessionStart", None, None, source="startup"))
    assert started(desk)["tree"] == "" and str(started(desk)["why"]).startswith("git took more than")
    assert not (Path(starts.folder_of(state_of(desk.repo), ID)) / "objects").exists()


def test_git_that_fails_is_named(desk, hook) -> None:
    index = Path(desk.repo.git_dir) / "index"
    index.write_bytes(b"rubbish")
    hook(claude(desk, "SessionStart", None, None, source="startup"))
    assert str(started(desk)["why"]).startswith("git failed: ")


def test_the_oldest_sessions_leave(desk, hook, monkeypatch) -> None:
    monkeypatch.setattr(starts, "MOST", 2)
    for number in range(4):
        hook(claude(desk, "SessionStart", None, None, source="startup", session_id=f"s{number}"))
        os.utime(Path(starts.folder_of(state_of(desk.repo), f"s{number}")) / starts.START, (number, number))
    assert [Path(folder).name for folder in starts.folders(state_of(desk.repo))] == ["s2", "s3"]


def test_ids_that_are_no_names_of_folders(desk, hook) -> None:
    hook(claude(desk, "SessionStart", None, None, source="startup", session_id="../../x"))
    assert started(desk, "../../x")["session_id"] == "../../x"
    assert Path(starts.folder_of(state_of(desk.repo), "../../x")).parent.name == starts.FOLDER
