import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.edits.report import journal as module
from ostinato.edits.report.journal import EventJournal

WRITER = """
import sys
from pathlib import Path
from ostinato.edits.report.journal import EventJournal
journal = EventJournal(Path(sys.argv[1]))
for n in range(100_000):
    journal.append([{"id": f"{sys.argv[2]}-{n}", "text": "x" * 5_000}, {"id": f"{sys.argv[2]}-{n}b"}])
    print(n, flush=True)
"""


def test_appended_entries_are_read_back(tmp_path) -> None:
    EventJournal(tmp_path).append([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    EventJournal(tmp_path).append([])
    assert [e["n"] for e in EventJournal(tmp_path).entries()] == [1, 2]
    assert (tmp_path / "journal.jsonl").stat().st_mode & 0o77 == 0


def test_a_repeated_entry_counts_once(tmp_path) -> None:
    journal = EventJournal(tmp_path)
    journal.append([{"id": "a", "n": 1}])
    journal.append([{"id": "a", "n": 2}])
    assert [e["n"] for e in journal.entries()] == [1]


@pytest.mark.parametrize("torn", [b'{"id": "b", "te', b'{"id"', b"\0\0\0", b"[1, 2]", b"{}"])
def test_a_line_torn_by_a_crash_is_skipped(tmp_path, torn) -> None:
    journal = EventJournal(tmp_path)
    journal.append([{"id": "a"}])
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(torn)
    journal.append([{"id": "c"}])
    assert [e["id"] for e in journal.entries()] == ["a", "c"]
    assert list(journal.read())[-1].end == (tmp_path / "journal.jsonl").stat().st_size


@given(st.integers(0, 200))
def test_cut_anywhere_it_holds_the_whole_lines(tmp_path_factory, cut) -> None:
    folder = tmp_path_factory.mktemp("j")
    EventJournal(folder).append([{"id": f"e{n}", "text": "é" * n} for n in range(8)])
    data = (folder / "journal.jsonl").read_bytes()[:cut]
    (folder / "journal.jsonl").write_bytes(data)
    assert len(EventJournal(folder).entries()) == data.count(b"\n")
    EventJournal(folder).append([{"id": "last"}])
    assert EventJournal(folder).entries()[-1] == {"id": "last"}


def test_killed_while_writing_nothing_acknowledged_is_lost(tmp_path) -> None:
    """Two writers are killed with `kill -9`, three times over the same journal."""
    acknowledged = []
    for life in range(3):
        writers = [start(tmp_path, f"{life}{name}") for name in "xy"]
        for name, writer in zip("xy", writers, strict=True):
            lines = [writer.stdout.readline() for _ in range(5)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
            writer.wait()
            writer.stdout.close()
            acknowledged += [f"{life}{name}-{int(line)}" for line in lines if line.endswith("\n")]
    EventJournal(tmp_path).append([{"id": "after"}])
    kept = {entry["id"] for entry in EventJournal(tmp_path).entries()}
    assert len(acknowledged) >= 30 and kept >= {*acknowledged, *(f"{a}b" for a in acknowledged), "after"}


def start(folder, name):
    command = [sys.executable, "-c", WRITER, str(folder), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


def test_a_long_journal_makes_room_once_it_is_sent(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "TURNOVER", 100)
    journal = EventJournal(tmp_path)
    journal.append([{"id": "a", "text": "x" * 200}])
    journal.turn_over()
    assert journal.entries()
    journal.acknowledge(list(journal.read())[-1].end)
    journal.turn_over()
    assert not journal.entries() and journal.sent() == 0
    assert json.loads((tmp_path / "journal.old.jsonl").read_text())["id"] == "a"


def test_a_spoiled_mark_sends_again(tmp_path) -> None:
    (tmp_path / "sent.json").write_text("nonsense")
    assert EventJournal(tmp_path).sent() == 0
