"""The log: every line acknowledged is there after any death of its process, and one process writes."""

import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ostinato.harness.session_log import (
    LogError,
    LogEvent,
    LogEventKind,
    SessionBusy,
    SessionLog,
    Sessions,
    load,
)


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    sessions = Sessions(directory=tmp_path / "sessions")
    with sessions.open("s1") as log:
        log.append(LogEventKind.USER, text="calc.py \u2028 is off \ud800")
        log.append(LogEventKind.OUTCOME, ending="finished", reason="")
    assert [(event.kind, dict(event.data)) for event in sessions.load("s1")] == [
        (LogEventKind.USER, {"text": "calc.py \u2028 is off \ud800"}),
        (LogEventKind.OUTCOME, {"ending": "finished", "reason": ""}),
    ]
    assert sessions.path("s1").stat().st_mode & 0o077 == 0
    assert [found for found, _ in sessions.newest()] == ["s1"]
    assert not list(sessions.newest("/elsewhere"))


def test_a_cut_line_was_never_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    with SessionLog(path) as log:
        log.append(LogEventKind.USER, text="one")
    path.write_bytes(path.read_bytes() + LogEvent(kind=LogEventKind.USER, data={"text": "two"}).line()[:-9])
    assert len(load(path)) == 1
    with SessionLog(path) as log:
        log.append(LogEventKind.USER, text="three")
    assert [event.data["text"] for event in load(path)] == ["one", "three"]


@pytest.mark.parametrize("line", [b"{}", b"x", b"[]", b'{"at": 1, "kind": "song"}', b"\xff"])
def test_a_damaged_log_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(LogEvent(kind=LogEventKind.USER, data={"text": "one"}).line() + line + b"\n")
    with pytest.raises(
        LogError, match=r"s1 is damaged: line 2 of .*s1.jsonl is no .*first 1 lines are whole"
    ):
        load(path)
    with pytest.raises(LogError, match="session s1 is damaged"):
        SessionLog(path)
    assert [events for _, events in Sessions(directory=tmp_path).newest()] == [[]]


def test_what_is_no_session(tmp_path: Path) -> None:
    sessions = Sessions(directory=tmp_path)
    with pytest.raises(LogError, match="no session s1 in"):
        sessions.load("s1")
    for name in ("", "../x", ".x"):
        with pytest.raises(LogError, match="no session id"):
            sessions.open(name)


HOLD = """
import sys
from pathlib import Path
from ostinato.harness.session_log import LogEventKind, SessionLog
log = SessionLog(Path(sys.argv[1]))
count = 0
while True:
    log.append(LogEventKind.USER, text="x" * 500, count=count)
    print(count, flush=True)
    count += 1
"""


def test_a_killed_writer_loses_nothing_and_frees_the_session(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(20):
            acknowledged = int(process.stdout.readline())
        with pytest.raises(SessionBusy, match="session s1 is open in another process"):
            SessionLog(path)
        process.kill()
        rest = process.stdout.read().split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    with SessionLog(path) as log:
        counts = [event.data["count"] for event in log.events]
    assert counts == list(range(len(counts)))
    assert len(counts) > acknowledged


def test_what_a_full_disk_cut_short_is_not_there_and_nothing_after_it_is_lost(tmp_path: Path) -> None:
    """A file that may not grow stands for a full disk: in both a write is cut short."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SessionLog(tmp_path / "s1.jsonl") as log:
        log.append(LogEventKind.USER, text="one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            with pytest.raises(OSError, match="large"):
                log.append(LogEventKind.USER, text="2" * 200)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        log.append(LogEventKind.USER, text="three")
    assert [event.data["text"] for event in load(tmp_path / "s1.jsonl")] == ["one", "three"]
