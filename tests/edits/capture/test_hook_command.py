"""`ostinato hook` as agents and git call it: a process that never fails and prints nothing.

Covers edits/capture/hook_command.py, edits/capture/agent_sessions.py, edits/capture/snapshots.py and
edits/capture/spool.py.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.edits.capture.conftest import claude

from ostinato.edits.capture import hook_command, spool
from ostinato.edits.capture.repository_paths import state_of

COMMAND = [sys.executable, "-P", "-m", "ostinato", "hook", "--input", "stdin"]


def edits(desk):
    desk.reporter.tick()
    return desk.named("edit.proposed")


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("Edit", {"old_string": "total -= value", "new_string": "total += value"}),
        ("Write", {"content": "…"}),
        ("MultiEdit", {"edits": [{"old_string": "a", "new_string": "b"}]}),
    ],
)
def test_an_edit_of_claude_code(desk, hook, tool, told) -> None:
    told |= {"file_path": str(desk.root / "calc.py")}
    hook(claude(desk, "PreToolUse", tool, told))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", tool, told, tool_response={"filePath": "calc.py"}))
    [event] = edits(desk)
    assert event["session_id"] == "5b1c" and event["turn"] is None
    facts = event["attributes"]
    assert (facts["tool_name"], facts["tool_use_id"]) == (tool, "toolu_1")
    assert (facts["lines_added"], facts["lines_removed"], facts["edit_source"]) == (3, 1, "claude-code")
    assert desk.survival("0")["survival_rate_four_gram"] == 1.0


@pytest.mark.parametrize(
    ("more", "turn"),
    [({"tool_use_id": "call_7_0"}, 7), ({"tool_use_id": "call_7_0", "agent_id": "a1"}, None)],
    ids=["the session's own", "a sub-agent's"],
)
def test_the_id_of_a_call_of_our_gateway_names_its_turn(desk, hook, more, turn) -> None:
    told = {"file_path": str(desk.root / "calc.py"), "content": "…"}
    hook(claude(desk, "PreToolUse", "Write", told, **more))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", "Write", told, **more))
    [event] = edits(desk)
    assert event["turn"] == turn


def test_a_new_file_of_claude_code(desk, hook) -> None:
    told = {"file_path": "fresh.py", "content": "x = 1\n"}
    hook(claude(desk, "PreToolUse", "Write", told))
    desk.write("fresh.py", "x = 1\n")
    hook(claude(desk, "PostToolUse", "Write", told))
    assert edits(desk)[0]["attributes"]["before_hash"] is None


def test_a_notebook_cell(desk, hook) -> None:
    told = {"notebook_path": str(desk.root / "n.ipynb"), "cell_id": "c1", "new_source": "x = 2"}
    desk.write("n.ipynb", json.dumps({"cells": [{"source": "x = 1"}]}, indent=1))
    hook(claude(desk, "PreToolUse", "NotebookEdit", told))
    desk.write("n.ipynb", json.dumps({"cells": [{"source": "x = 2"}]}, indent=1))
    hook(claude(desk, "PostToolUse", "NotebookEdit", told))
    assert edits(desk)[0]["attributes"]["language_id"] == "ipynb"


def test_without_the_event_before_the_response_holds_the_text_before(desk, hook) -> None:
    told = {"file_path": str(desk.root / "calc.py")}
    desk.write("calc.py", desk.PROPOSED)
    response = {"filePath": "calc.py", "originalFile": desk.BASE}
    hook(claude(desk, "PostToolUse", "Edit", told, tool_response=response))
    assert edits(desk)[0]["attributes"]["lines_added"] == 3


def test_without_a_text_before_it_is_counted(desk, hook) -> None:
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", "Edit", {"file_path": str(desk.root / "calc.py")}))
    assert not edits(desk)
    assert desk.named("edit.skipped")[0]["attributes"]["reason"] == "unseen"


def test_a_failed_call_is_no_edit(desk, hook) -> None:
    told = {"file_path": str(desk.root / "calc.py")}
    hook(claude(desk, "PreToolUse", "Edit", told))
    hook(claude(desk, "PostToolUseFailure", "Edit", told, error="old_string not found"))
    hook(claude(desk, "Stop", None, None))
    assert not edits(desk) and not desk.named("edit.feedback")


def test_a_call_that_was_turned_down_is_rejected(desk, hook) -> None:
    told = {"file_path": str(desk.root / "calc.py")}
    hook(claude(desk, "PreToolUse", "Edit", told, tool_use_id="call_4_1"))
    hook(claude(desk, "Stop", None, None, session_id="another"))
    desk.reporter.tick()
    assert not desk.named("edit.feedback")
    hook(claude(desk, "Stop", None, None))
    desk.reporter.tick()
    [event] = desk.named("edit.feedback")
    assert event["attributes"]["outcome"] == "rejected"
    assert (event["session_id"], event["turn"]) == ("5b1c", 4)


def test_files_that_a_shell_command_changed_are_edits(desk, hook) -> None:
    desk.write("mine.py", "not = 'yet committed'\n")
    hook(claude(desk, "PreToolUse", "Bash", {"command": "sed …"}))
    desk.write("calc.py", desk.PROPOSED)
    desk.write("made.py", "made = 1\n")
    (desk.root / "other.py").unlink()
    hook(claude(desk, "PostToolUse", "Bash", {"command": "sed …"}, tool_response={"stdout": ""}))
    found = edits(desk)
    assert [e["attributes"]["lines_added"] for e in found] == [3, 1, 0]
    assert desk.git("status", "--porcelain").splitlines()[0].startswith("M")
    assert not desk.git("diff", "--cached", "--name-only")


def test_a_shell_command_that_changed_nothing(desk, hook) -> None:
    hook(claude(desk, "PreToolUse", "Bash", {"command": "ls"}))
    hook(claude(desk, "PostToolUse", "Bash", {"command": "ls"}))
    assert not edits(desk) and not spool.waiting(state_of(desk.repo))


def test_sessions_and_their_models(desk, hook) -> None:
    hook({"hook_event_name": "SessionStart", "session_id": "5b1c", "cwd": str(desk.root), "model": "m-1"})
    hook(claude(desk, "UserPromptSubmit", None, None, prompt="my secret plan"))
    told = {"file_path": str(desk.root / "calc.py")}
    hook(claude(desk, "PreToolUse", "Edit", told))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", "Edit", told))
    assert edits(desk)[0]["attributes"]["model"] == "m-1"
    hook(claude(desk, "SessionEnd", None, None, reason="exit"))
    desk.reporter.tick()
    names = [e["name"] for e in desk.journal if e.get("name", "").startswith(("session", "user"))]
    assert names == ["session.start", "user.prompt", "session.end"]
    assert desk.named("user.prompt")[0]["attributes"]["prompt_id"] == "p1"
    everything = "".join(p.read_text() for p in Path(state_of(desk.repo)).rglob("*.json*"))
    assert "secret plan" not in everything


def test_the_plain_form(desk, hook) -> None:
    told = {"session_id": "s1", "turn": 4, "tool_use_id": "c9", "agent": "aider", "model": "m-2"}
    plain = {"hook_event_name": "edit.proposed", "cwd": str(desk.root), "path": "calc.py", **told}
    desk.write("calc.py", desk.PROPOSED)
    hook(plain | {"before": desk.BASE, "after": desk.PROPOSED})
    hook(plain | {"before": desk.BASE, "after": desk.PROPOSED})
    [event] = edits(desk)
    assert event["turn"] == 4 and event["attributes"]["edit_source"] == "aider"


def plain(desk, before, after):
    told = {"hook_event_name": "edit.proposed", "cwd": str(desk.root), "path": "calc.py", "session_id": "s9"}
    return told | {"before": before, "after": after}


def test_a_piece_of_the_file_is_the_edit_of_the_whole_file(desk, hook) -> None:
    desk.write("calc.py", desk.BASE.replace("total -= value", "total += abs(value)"))
    hook(plain(desk, "total -= value", "total += abs(value)"))
    [event] = edits(desk)
    assert (event["attributes"]["lines_added"], event["attributes"]["lines_removed"]) == (1, 1)
    desk.after(5)
    assert desk.survival("5")["verdict"] == "kept"
    desk.write("calc.py", desk.BASE)
    desk.after(25)
    assert desk.survival("30")["verdict"] == "reverted"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("old", "text that is nowhere in the file"),
        ("old", "return"),  # a piece that stands there more than once
        ("def beta(x):", ""),  # a piece that was deleted says nothing of its place
        (None, "return x[1]"),  # a new file holds more than that
        ("old", None),  # the file is there
    ],
)
def test_a_text_that_is_neither_the_file_nor_a_piece_of_it_is_counted_and_logged(
    desk, hook, before, after
) -> None:
    hook(plain(desk, before, after))
    assert not edits(desk)
    assert [e["attributes"]["reason"] for e in desk.named("edit.skipped")] == ["mismatch"]
    assert "give whole texts" in Path(state_of(desk.repo), spool.ERRORS).read_text()


def test_a_formatter_that_ran_on_save_makes_no_mismatch(desk, hook) -> None:
    desk.write(
        "calc.py", desk.PROPOSED.replace("abs(value) * scale_of(value)", "abs( value )*scale_of( value )")
    )
    hook(plain(desk, desk.BASE, desk.PROPOSED))
    assert len(edits(desk)) == 1
    desk.after(900)
    assert desk.signals == ["edit_kept"]


def test_a_piece_that_is_no_text_is_noted(desk, hook, monkeypatch) -> None:
    monkeypatch.chdir(desk.root)
    hook(plain(desk, 3, "x"))
    assert not edits(desk)
    assert "before must be text or null" in Path(state_of(desk.repo), spool.ERRORS).read_text()


def test_a_link_into_the_repository_names_the_file_itself(desk, hook, tmp_path) -> None:
    (tmp_path / "link").symlink_to(desk.root)
    told = {"file_path": str(tmp_path / "link" / "calc.py")}
    hook(claude(desk, "PreToolUse", "Edit", told, cwd=str(tmp_path)))
    desk.write("calc.py", desk.PROPOSED)
    hook(claude(desk, "PostToolUse", "Edit", told, cwd=str(tmp_path)))
    assert edits(desk)


def test_files_elsewhere_and_repositories_that_did_not_ask_are_nobodys(desk, hook, tmp_path) -> None:
    for name in ("PreToolUse", "PostToolUse"):
        hook(claude(desk, name, "Write", {"file_path": str(tmp_path / "notes.txt")}))
    (Path(state_of(desk.repo)) / "enabled").unlink()
    for name in ("PreToolUse", "PostToolUse"):
        hook(claude(desk, name, "Edit", {"file_path": str(desk.root / "calc.py")}))
    assert not spool.waiting(state_of(desk.repo))
    assert not list((Path(state_of(desk.repo))).glob("pending/*"))


NAMES = st.sampled_from(["PreToolUse", "PostToolUse", "SessionStart", "Stop", "edit.proposed", "x"])
ODD = st.none() | st.integers() | st.text(max_size=5) | st.dictionaries(st.text(max_size=3), st.text())
EVENT = st.fixed_dictionaries(
    {"hook_event_name": NAMES},
    optional=dict.fromkeys(("session_id", "cwd", "tool_input", "path", "before", "after", "tool_use_id"), ODD)
    | {"tool_name": st.sampled_from(["Edit", "Bash", "Read"]) | ODD},
)


@given(st.binary(max_size=50) | (EVENT | ODD).map(lambda event: json.dumps(event).encode()))
def test_nonsense_is_noted_and_never_an_error(desk, monkeypatch, capsys, data) -> None:
    monkeypatch.chdir(desk.root)
    monkeypatch.setattr(spool, "wake", lambda repo: None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert hook_command.main(["--input", "stdin"]) == 0
    assert capsys.readouterr() == ("", "")
    desk.reporter.tick()


def test_as_a_process_it_is_silent_and_loads_little(desk) -> None:
    code = (
        "import sys; sys.argv = ['x', 'hook', '--input', 'stdin']; import ostinato.__main__ as m; m.main(); "
    )
    code += "print(sorted({'asyncio', 'argparse', 'dataclasses', 'typing', 'pathlib'} & set(sys.modules)))"
    event = {"hook_event_name": "Stop", "session_id": "s", "cwd": str(desk.root.parent)}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, input=json.dumps(event), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"hook_event_name": "Stop"}'])
def test_as_a_process_it_exits_with_0(desk, data) -> None:
    done = subprocess.run(COMMAND, input=data, capture_output=True, check=False, cwd=desk.root)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_repository_cannot_put_its_own_modules_in_the_way(desk) -> None:
    desk.write("json.py", "raise SystemExit(9)\n")
    desk.write("ostinato/__init__.py", "raise SystemExit(9)\n")
    event = json.dumps({"hook_event_name": "Stop", "session_id": "s", "cwd": str(desk.root.parent)})
    done = subprocess.run(COMMAND, input=event.encode(), check=False, cwd=desk.root, env=os.environ)
    assert done.returncode == 0


def test_a_complaint_about_a_name_of_any_bytes_is_written(tmp_path: Path) -> None:
    spool.complain(str(tmp_path), "edit of \udce9")
    assert (tmp_path / spool.ERRORS).read_text().endswith(" edit of \\udce9\n")
