"""`ostinato session` on the command line."""

import json
from pathlib import Path

import pytest

from ostinato.cli import main
from ostinato.harness.session_log import LogEventKind, Sessions


@pytest.fixture(autouse=True)
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    monkeypatch.setenv("OSTINATO_STATE", str(tmp_path))
    return Sessions.of_user()


@pytest.fixture
def recorded(sessions: Sessions) -> None:
    call = {"id": "c0", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    with sessions.open("s1") as log:
        start = {"root": "/r", "profile": "core", "harness": "9f", "tools": [], "system": "be good"}
        log.append(LogEventKind.SESSION, format=1, id="s1", **start)
        log.append(LogEventKind.USER, text="[bold]calc.py is off")
        origin = {"arm": "main", "version": 1}
        log.append(
            LogEventKind.REPLY, turn=0, message=message, finish="stop", tokens=9, broken=None, **origin
        )
        log.append(LogEventKind.CALL, id="c0", name="read", arguments={"path": "a"}, tool="read")
        log.append(LogEventKind.OBSERVATION, id="c0", text="x = 1", error=None)
        log.append(LogEventKind.CANCELLED, reason="")


def test_what_there_is(recorded, sessions: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    sessions.path("bad").write_text("x\n")
    assert main(["session", "list"]) == 0
    listed = capsys.readouterr().out
    assert "s1  " in listed and "/r  1 turns  [bold]calc.py is off" in listed
    assert "bad  (damaged or empty)" in listed


def test_what_happened(recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["session", "show", "s1"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("session s1  ") and first.endswith("  /r  1 turns")
    assert [line[10:].rstrip() for line in rest] == [
        "you         [bold]calc.py is off",
        "agent       I look.",
        "            [version 1, turn 0]",
        "call        read a",
        "result      x = 1",
        "interrupted",
    ]
    assert main(["session", "show", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["session"] == "s1" and len(told["events"]) == 6
    assert main(["session", "replay"]) == 0
    replayed = capsys.readouterr().out.splitlines()
    expected = ["> [bold]calc.py is off", "I look.", "● read a", "  x = 1", "interrupted"]
    assert replayed == expected


@pytest.mark.parametrize("name", ["openai", "atif", "mini", "agent-trace", "jsonl"])
def test_other_formats(recorded, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["session", "export", "--format", name, "s1"]) == 0
    output = capsys.readouterr().out
    if name in {"atif", "mini"}:
        assert json.loads(output)
    else:
        assert all(json.loads(line) for line in output.splitlines() if line)


@pytest.mark.parametrize("command", [["show"], ["replay"], ["export", "--format", "jsonl"]])
def test_a_session_is_meant_by_the_beginning_of_its_id(
    sessions: Sessions, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for id in ("3f058d82", "3f0599"):
        with sessions.open(id) as log:
            log.append(LogEventKind.SESSION, format=1, id=id, root="/r")
            log.append(LogEventKind.USER, text=f"a\nb\x1b[2J of {id}")
    assert main(["session", *command, "3f058"]) == 0
    shown = capsys.readouterr().out
    assert "of 3f058d82" in shown and (command == ["replay"] or "\x1b" not in shown)
    assert main(["session", *command, "3f05"]) == 2
    assert "3f058d82, 3f0599" in capsys.readouterr().err


def test_what_is_not_there(sessions: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["session", "list"]) == 0
    assert "no sessions in" in capsys.readouterr().out
    assert main(["session", "show"]) == 2
    assert "`ostinato code` records one" in capsys.readouterr().err
    assert main(["session", "show", "s9"]) == 2
    assert "no session s9 in" in capsys.readouterr().err
    sessions.directory.mkdir(parents=True, exist_ok=True)
    sessions.path("s0").touch()
    assert main(["session", "export", "--format", "atif", "s0"]) == 2
    assert "session s0 is empty" in capsys.readouterr().err
