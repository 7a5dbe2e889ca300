"""The traces of accepted and committed edits, and the blame that reads traces and notes.

Covers edits/attribution/trace.py, edits/attribution/notes.py and edits/attribution/blame.py.
"""

import json
import re
import uuid
from pathlib import Path

import pytest

from ostinato.edits.attribution import trace
from ostinato.edits.attribution.blame import authors
from ostinato.edits.attribution.notes import REF, parse_note, read_note
from ostinato.edits.attribution.trace import Contributor, Range, content_hash, ranges_of, read
from ostinato.edits.capture.repository_paths import state_of

NOTE = """calc.py
  d9978a8844 6-8
"with space.py"
  h_12 1
  0bb1::t1 2,4-5
---
{"schema_version": "authorship/3.0.0", "prompts": {"d9978a8844": {"agent_id": {"tool": "x", "model": "m-1"}}}}
"""
MINIMAL = {
    "version": "0.1.0",
    "id": "550e8400-e29b-41d4-a716-446655440000",
    "timestamp": "2026-01-25T10:00:00Z",
    "files": [
        {
            "path": "app.ts",
            "conversations": [{"contributor": {"type": "ai"}, "ranges": [{"start_line": 1, "end_line": 50}]}],
        }
    ],
}


def records(desk):
    path = Path(state_of(desk.repo)) / trace.FILE
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(record):
    """The schema of a record in the Agent Trace format."""
    assert record["version"] == "0.1.0" and str(uuid.UUID(record["id"])) == record["id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", record["timestamp"])
    assert set(record) <= {"version", "id", "timestamp", "vcs", "tool", "files", "metadata"}
    assert set(record["tool"]) == {"name", "version"}
    for file in record["files"]:
        assert not file["path"].startswith("/") and set(file) == {"path", "conversations"}
        for talk in file["conversations"]:
            assert set(talk) <= {"url", "contributor", "ranges", "related"} and ":" in talk["url"]
            assert talk["contributor"]["type"] in {"human", "ai", "mixed", "unknown"}
            assert all(1 <= r["start_line"] <= r["end_line"] for r in talk["ranges"])


def test_an_accepted_edit_and_its_commit_are_traced(desk) -> None:
    base = desk.git("rev-parse", "HEAD")
    desk.agent("calc.py", desk.PROPOSED, model="vendor/m-1")
    commit = desk.commit("agent")
    accepted, committed = records(desk)
    check(accepted)
    check(committed)
    assert "vcs" not in accepted and accepted["metadata"]["dev.ostinato"]["base_revision"] == base
    assert committed["vcs"] == {"type": "git", "revision": commit}
    [talk] = committed["files"][0]["conversations"]
    assert talk["contributor"] == {"type": "ai", "model_id": "vendor/m-1"}
    lines = desk.PROPOSED.splitlines()[6:9]
    assert talk["ranges"] == [{"start_line": 7, "end_line": 9, "content_hash": content_hash(lines)}]
    assert set(committed["metadata"]) == {"dev.ostinato"}


def test_lines_that_the_developer_changed_before_the_commit_are_mixed(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.write("calc.py", desk.PROPOSED.replace("abs(value)", "value"))
    desk.commit("agent and I")
    assert records(desk)[-1]["files"][0]["conversations"][0]["contributor"]["type"] == "mixed"


@pytest.mark.parametrize(
    ("developer", "authors_of"),
    [
        ([("value", "number")], {"a = 1": "ai", "b = number": "mixed", "c = 3": "ai", "d = 4": "ai"}),
        ([("c = 3", "c = 3\nmine = 1")], {"a = 1": "ai", "c = 3": "ai", "mine = 1": "human", "d = 4": "ai"}),
        ([("a = 1\n", "")], {"b = value": "ai", "c = 3": "ai", "d = 4": "ai"}),
        ([("a = 1", "x = 9"), ("d = 4", "y = 9")], {"x = 9": "mixed", "b = value": "ai", "c = 3": "ai"}),
    ],
)
def test_a_line_that_nobody_changed_stays_the_agents(
    desk, developer: list[tuple[str, str]], authors_of: dict[str, str]
) -> None:
    """The developer changes, adds or removes lines of an edit before its commit."""
    desk.git("notes", "--ref", REF, "add", "-m", "calc.py\n  h_1 1\n---\n{}", "HEAD")
    new = desk.PROPOSED + "\na = 1\nb = value\nc = 3\nd = 4\n"
    desk.agent("calc.py", new, model="m-1")
    now = new
    for old, other in developer:
        now = now.replace(f"{old}\n" if not old.endswith("\n") else old, f"{other}\n" if other else "")
    desk.write("calc.py", now)
    desk.commit("agent and I")
    check(records(desk)[-1])
    lines = now.splitlines()
    found = {lines[a.line - 1]: a.contributor.value for a in authors(desk.repo, "calc.py")}
    assert authors_of.items() <= found.items()


def test_a_pure_deletion_has_no_lines_to_trace(desk) -> None:
    desk.agent("other.py", "def other():\n")
    assert not (Path(state_of(desk.repo)) / trace.FILE).exists()


def test_records_are_read_back(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    commit = desk.commit("agent")
    found = read(Path(state_of(desk.repo)) / trace.FILE)
    assert [(r.start, r.end, r.contributor, r.revision) for r in found][-1] == (7, 9, Contributor.AI, commit)


def test_records_of_others_are_read(tmp_path) -> None:
    other = json.loads(json.dumps(MINIMAL))
    other["files"][0]["conversations"][0]["ranges"][0]["contributor"] = {"type": "human"}
    bad = [
        b"{",
        b"[]",
        b'{"files": [{}]}',
        b'{"files": 3}',
        b'{"files": [{"path": "a", "conversations": [7]}]}',
    ]
    lines = [json.dumps(MINIMAL).encode(), *bad, json.dumps(other).encode()]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    assert [r.contributor for r in read(tmp_path / "t.jsonl")] == [Contributor.AI, Contributor.HUMAN]
    assert read(tmp_path / "missing") == []
    with pytest.raises(KeyError):
        ranges_of({})


def test_content_hashes_do_not_depend_on_place_or_newlines() -> None:
    assert content_hash(["a\r\n", "b\n"]) == content_hash(["a", "b"]) != content_hash(["b", "a"])


def test_notes_are_read(desk) -> None:
    commit = desk.git("rev-parse", "HEAD")
    desk.git("notes", "--ref", REF, "add", "-m", NOTE, commit)
    found = read_note(str(desk.root), commit)
    told = {"path": "calc.py", "contributor": Contributor.AI, "revision": commit}
    assert found[0] == Range(**told, start=6, end=8, model="m-1", conversation="d9978a8844")
    assert [(r.path, r.start, r.end, r.contributor.value) for r in found[1:]] == [
        ("with space.py", 1, 1, "human"),
        ("with space.py", 2, 2, "ai"),
        ("with space.py", 4, 5, "ai"),
    ]
    assert read_note(str(desk.root), "0" * 40) == []


@pytest.mark.parametrize("text", ["", "---", "x", "  a 1", "p\n  s 1\n---\n[]", "p\n  s 1\n---\n{"])
def test_notes_that_are_odd_are_read_as_far_as_they_go(text) -> None:
    assert all(r.path == "p" for r in parse_note(text, "c"))


def test_blame_names_the_author_of_each_line(desk) -> None:
    desk.git("notes", "--ref", REF, "add", "-m", "calc.py\n  s9 1\n---\n{}", "HEAD")
    desk.agent("calc.py", desk.PROPOSED, model="m-1")
    desk.commit("agent")
    desk.git("mv", "calc.py", "sums.py")
    desk.write("sums.py", desk.PROPOSED.replace("hello", "good day"))
    desk.git("commit", "-q", "-a", "-m", "mine")
    found = authors(desk.repo, "sums.py")
    who = {a.line: (a.contributor.value, a.model) for a in found}
    assert who[1] == ("ai", "") and who[4] == ("human", "")
    assert [who[n] for n in (7, 8, 9)] == [("ai", "m-1")] * 3
    assert who[18] == ("unknown", "")


def test_the_command_line_blames(desk, capsys) -> None:
    from ostinato.cli import main

    desk.agent("calc.py", desk.PROPOSED)
    desk.commit("agent")
    arguments = ["hooks", "blame", "calc.py", "--directory", str(desk.root)]
    assert main([*arguments, "--json"]) == 0
    assert [a["line"] for a in json.loads(capsys.readouterr().out) if a["contributor"] == "ai"] == [7, 8, 9]
    assert main(["hooks", "blame", "missing.py", "--directory", str(desk.root)]) == 2
    assert "no such file" in capsys.readouterr().err
