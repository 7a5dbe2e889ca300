"""Logs that real clients wrote, in the record: demonstrations with consent, nothing for the policy gradient.

Covers exchange/importing.py, exchange/commands.py, exchange/logs/base.py, exchange/logs/claude_code.py,
exchange/logs/codex.py, exchange/logs/opencode.py and exchange/logs/calls.py. `wire/` has one session each
of Claude Code 2.1.197, Codex 0.169.0 and opencode 1.18.33 that edited a file, and two calls of LiteLLM
1.110.2, with notes that no message is in made short.
"""

import io
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.exchange.talk import checkpoint, renderer, turns

import ostinato as o
from ostinato.cli import main
from ostinato.exchange.importing import UNTRAINABLE, Imported, Owner, bring
from ostinato.exchange.logs import LOGS
from ostinato.exchange.logs.base import Damage, Transcript
from ostinato.rewards.follow_ups.read import first_request
from ostinato.store import Ledger, Store
from ostinato.store.purge import purge
from ostinato.train.samples import UntrainableError, rows_of, samples_of
from ostinato.train.teacher import TeacherRows
from ostinato.types import Ending, Source, State

WIRE = Path(__file__).with_name("wire")
ASKED = "add in calc.py subtracts. Make it add."
SECRET = "AKIA" + "Q3EGWNSK5VKZPLM7"
IDS = {
    "claude-code": "7257e800-f229-4fed-bfa7-2ae416516c09",
    "codex": "01a228ce-0cc9-7101-8cae-0e3b06c60d04",
    "opencode": "ses_dd7322cdaffeBo4b4fcfrYc1pJ",
    "litellm": "litellm/sess-1",
}
FILES = {format: next(WIRE.glob(f"{format}.*")) for format in IDS}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    checkpoint(tmp_path / "run" / "checkpoints" / "start")
    store = Store.open(tmp_path / "run" / "store.db")
    yield store
    store.close()


def brought(store: Store, format: str, *files: Path, user: str = "ada") -> Imported:
    return bring(store, renderer(), format, files or [FILES[format]], Owner(user=user))


def read(format: str, path: Path) -> tuple[list[Transcript], list[Damage]]:
    found = list(LOGS[format].read([path]))
    return [e for e in found if isinstance(e, Transcript)], [e for e in found if isinstance(e, Damage)]


@pytest.mark.parametrize("format", IDS)
def test_a_session_of_a_real_client_is_a_demonstration(format: str, store: Store, tmp_path: Path) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    found = brought(store, format)
    assert (found.sessions, found.damaged, found.left_out, found.unconsented) == (1, 0, {}, 0)
    session, recorded = store.session(IDS[format]), store.turns(IDS[format])
    assert session is not None and session.consent and session.user == "ada"
    assert (session.source, session.ending) == (Source.IMPORTED, Ending.FINISHED)
    assert len(recorded) == found.turns == {"claude-code": 3, "codex": 4, "opencode": 3, "litellm": 2}[format]
    request = first_request(recorded, renderer().tokenizer)
    assert request is not None and "add in calc.py subtracts" in request.text
    said = [renderer().parse(turn.completion.ids) for turn in recorded]
    assert [len(each.tool_calls) for each in said] == [1] * (len(said) - 1) + [0]
    assert said[-1].content in {"The line is changed.", "Fixed."} and not any(each.broken for each in said)
    (row,) = rows_of(recorded)
    assert "return a - b" in renderer().tokenizer.decode(row.ids)
    with pytest.raises(UntrainableError, match="no log-probabilities"):
        samples_of(recorded, 1.0)
    ledger = Ledger(store)
    assert (ledger.unaccounted(), ledger.reasons(State.UNTRAINABLE)) == (0, {UNTRAINABLE: len(recorded)})
    (lesson,) = TeacherRows(store, Source.IMPORTED, context=100_000).read()
    assert lesson.session_id == session.id
    run = o.open(tmp_path / "run")
    assert [each.id for each in run.sessions(source="imported")] == [session.id]
    assert main(["export", str(tmp_path / "out"), "--directory", str(tmp_path / "run")]) == 0
    (chat,) = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert chat["messages"][-1]["content"] == said[-1].content
    assert len(json.loads(chat["tools"])) == (format == "litellm")


@pytest.mark.parametrize("format", IDS)
def test_the_same_log_twice_adds_nothing_and_a_longer_one_what_it_gained(
    format: str, store: Store, tmp_path: Path
) -> None:
    whole = FILES[format].read_text()
    short = tmp_path / FILES[format].name
    if format == "opencode":
        exported = json.loads(whole)
        short.write_text(json.dumps({**exported, "messages": exported["messages"][:2]}))
    else:
        lines = whole.splitlines(keepends=True)
        result = '"tool_result"' if format == "claude-code" else '"function_call_output"'
        keep = 1 + next((n for n, line in enumerate(lines) if result in line), 0)
        short.write_text("".join(lines[:keep]))
    first = brought(store, format, short)
    assert first.sessions == 1 and first.turns < brought(store, format, FILES[format]).turns + first.turns
    again = brought(store, format)
    assert (again.sessions, again.grown, again.turns, again.known) == (0, 0, 0, 1)
    fresh = Store.open(tmp_path / "fresh.db")
    brought(fresh, format)
    assert [turn.completion for turn in fresh.turns(IDS[format])] == [
        turn.completion for turn in store.turns(IDS[format])
    ]
    assert Ledger(store).unaccounted() == 0
    fresh.close()


def test_opencode_is_read_from_its_database_as_from_its_export(store: Store, tmp_path: Path) -> None:
    exported = json.loads(FILES["opencode"].read_text())
    info, path = exported["info"], tmp_path / "opencode.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE session (id, version, time_created)")
        db.execute("CREATE TABLE message (id, session_id, time_created, data)")
        db.execute("CREATE TABLE part (id, message_id, session_id, time_created, data)")
        db.execute("INSERT INTO session VALUES (?, ?, 1)", (info["id"], info["version"]))
        for message in exported["messages"]:
            name = message["info"].pop("id")
            db.execute(
                "INSERT INTO message VALUES (?, ?, 1, ?)", (name, info["id"], json.dumps(message["info"]))
            )
            for part in message["parts"]:
                row = (part["id"], name, info["id"], json.dumps(part))
                db.execute("INSERT INTO part VALUES (?, ?, ?, 1, ?)", row)
    db.close()
    (from_file,), (from_database,) = read("opencode", FILES["opencode"])[0], read("opencode", path)[0]
    assert from_database.threads == from_file.threads
    assert brought(store, "opencode", path).turns == 3


def test_pieces_of_one_answer_are_one_turn_and_a_summary_begins_a_segment(
    store: Store, tmp_path: Path
) -> None:
    """Claude Code writes two calls at once as two lines, between which the first result may stand."""

    def line(type: str, content: Any, id: str = "", **rest: Any) -> str:
        message = {"role": type, "content": content, "id": id, "model": "m"}
        whole = {"type": type, "message": message, "sessionId": "s-1", "version": "2", "isSidechain": False}
        return json.dumps({**whole, "timestamp": "2025-11-29T10:00:00Z", **rest})

    def uses(id: str) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": id, "name": "Read", "input": {"path": id}}]

    def gives(id: str) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": f"of {id}"}]}]

    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([
        line("user", "look"), line("assistant", [{"type": "thinking", "thinking": "hm"}], "m1"),
        line("assistant", [{"type": "text", "text": "Both."}], "m1"), line("assistant", uses("a"), "m1"),
        line("user", gives("a")), line("assistant", uses("b"), "m1"), line("user", gives("b")),
        line("assistant", [{"type": "text", "text": "Done."}], "m2"),
        line("assistant", [{"type": "text", "text": "overloaded"}], "m3", isApiErrorMessage=True),
        line("user", "You did this.", isCompactSummary=True), line("user", "go on"),
        line("assistant", [{"type": "text", "text": "Ended."}], "m4"),
        line("user", "explore", isSidechain=True, agentId="x"),
        line("assistant", [{"type": "text", "text": "Found."}], "m5", isSidechain=True, agentId="x"),
    ]))  # fmt: skip
    found = brought(store, "claude-code", path)
    assert (found.sessions, found.turns, found.damaged) == (2, 4, 0)
    first, second, third = store.turns("s-1")
    assert [call.arguments for call in renderer().parse(first.completion.ids).tool_calls] == [
        {"path": "a"},
        {"path": "b"},
    ]
    assert "of a" in renderer().tokenizer.decode(second.prompt_ids) and third.segment == 1
    assert "hm" not in renderer().tokenizer.decode(third.prompt_ids)
    assert renderer().tokenizer.decode(third.prompt_ids).count("<|im_start|>user") == 2
    assert len(store.turns("s-1/x")) == 1


def test_langfuse_exports_and_its_api_are_read_alike(store: Store, tmp_path: Path) -> None:
    """By the fields that its pages list; no server of it was tried."""
    ask = [{"role": "user", "content": "fix it"}]
    answer = {"role": "assistant", "content": "Fixed."}
    rows = [
        {"type": "SPAN"},
        {"type": "GENERATION", "trace_id": "t", "session_id": "a", "user_id": "ben",
         "provided_model_name": "m", "start_time": "2025-11-29 10:00:00.000000",
         "input": json.dumps(ask), "output": json.dumps(answer)},
        {"type": "GENERATION", "traceId": "b", "userId": "ben", "startTime": "2025-11-29T10:00:00Z",
         "input": {"messages": ask, "tools": []}, "output": "Fixed."},
        {"type": "GENERATION", "traceId": "c", "startTime": 1.0, "input": "plain words", "output": "x"},
    ]  # fmt: skip
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = brought(store, "langfuse", path, user="")
    assert (found.sessions, found.damaged, [each.line for each in found.named]) == (2, 1, [4])
    assert store.turns("langfuse/a")[0].completion == store.turns("langfuse/b")[0].completion
    assert {each.user for each in store.sessions()} == {"ben"} and found.unconsented == 2


def test_secrets_do_not_come_in(store: Store, tmp_path: Path) -> None:
    text = FILES["claude-code"].read_text()
    path = tmp_path / "s.jsonl"
    path.write_text(text.replace("subtracts", f"subtracts {SECRET}").replace("replace_all", SECRET, 1))
    brought(store, "claude-code", path)
    told = renderer().tokenizer.decode(store.turns(IDS["claude-code"])[-1].prompt_ids)
    assert SECRET not in told and "[redacted" in told


def test_what_is_there_already_stays(store: Store) -> None:
    brought(store, "codex")
    assert brought(store, "codex", user="ben").left_out == {"purged, or imported for another person": 1}
    purge(store, by="ada", user="ada")
    assert "purged, or imported for another person" in brought(store, "codex").left_out
    session = o.Session(
        id=IDS["opencode"], source=Source.LIVE, user="ada", arm="a", task_id=None, harness="", started_at=1.0
    )
    store.record(turns(session.id), (), [session])
    assert brought(store, "opencode").left_out == {"recorded by the gateway already": 1}
    assert len(store.turns(session.id)) == 3


@pytest.mark.parametrize("format", ["claude-code", "codex", "litellm"])
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_named_and_ends_nothing(format: str, data: st.DataObject, tmp_path: Path) -> None:
    """One line is replaced by anything; the lines around it are read as if it were not there."""
    lines = FILES[format].read_bytes().splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    junk = st.sampled_from(
        [b"{", b"[]", b"3", b'{"type": "user"}', b"\xff\xfe", b'{"type": []}', lines[at][:-9]]
    )
    lines[at] = data.draw(
        junk | st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b and b.strip())
    )
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join(lines))
    _, damage = read(format, path)
    assert {each.file for each in damage} <= {path} and len(damage) <= 1
    assert all(each.why and (each.line == at + 1 or b"\r" in lines[at]) for each in damage)


def test_a_session_under_way_waits_for_a_later_import(tmp_path: Path) -> None:
    """Its last answer may be half written, and its ending is not known."""
    transcript = read("codex", FILES["codex"])[0][0]
    for late, sessions in ((3_599, 0), (3_601, 1)):
        store = Store.open(tmp_path / f"{late}.db", lambda late=late: transcript.last_at + late)
        found = brought(store, "codex")
        assert (found.sessions, len(found.left_out)) == (sessions, 1 - sessions)
        store.close()


def test_the_command_names_what_it_leaves_out(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["--directory", str(tmp_path / "run")]
    folder = tmp_path / ".claude" / "projects" / "-home-ada-repo"
    folder.mkdir(parents=True)
    shutil.copy(FILES["claude-code"], folder)
    (folder / "b.jsonl").write_text('{"type": "user", "sess\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert main(["import", "claude-code", "--user", "ada", *run]) == 2
    assert "no word of ada on training: --consent yes or no" in capsys.readouterr().err
    assert main(["import", "claude-code", "--user", "ada", "--consent", "yes", *run]) == 0
    told = capsys.readouterr().out
    assert f"left out: {folder}/b.jsonl line 1: no JSON" in told
    assert "1 sessions and 3 turns are new" in told and "1 lines are damaged; 0 of the new" in told
    assert store.accounts.consented([("", "ada")]) == {("", "ada"): True}
    assert main(["import", "codex", str(WIRE / "codex.jsonl"), "--user", "ada", "--json", *run]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == 1
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["import", "opencode", str(FILES["opencode"]), "--user", "ben", *run]) == 0
    assert "May the model be trained on these sessions of ben?" in capsys.readouterr().out
    assert [each.consent for each in store.sessions()] == [True, True, True]
    for words, why in (
        (["litellm"], "which logs of litellm"),
        (["codex"], "is neither a file nor a folder"),
        (["litellm", str(FILES["litellm"]), "--consent", "yes"], "the word of one person"),
    ):
        assert main(["import", *words, *run]) == 2
        assert why in capsys.readouterr().err
