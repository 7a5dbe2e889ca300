"""`ostinato rewards` says what a session was worth and why, and keeps what changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import group, session, turn, version

from ostinato.cli import main
from ostinato.store import Ledger, Store
from ostinato.types import Ending, Signal, SignalKind, Source


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    store = Store.open(path)
    kept = Signal(
        session_id="s", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1e9, edit="e1", id="fact-1"
    )
    store.record([turn(0, "s")], [kept], [session("s", ending=Ending.FINISHED)])
    store.close()
    return path


def test_explain_shows_parts_states_and_evidence(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewards", "explain", "s", "--store", str(path)]) == 0
    text = capsys.readouterr().out
    assert "+1.000  observed  kept" in text and "edit_kept 1.0  fact-1" in text
    assert "expired   committed, " in text and "complaint, " in text and "none seen edited, " in text
    assert "never trained on: no consent when it began" in text.splitlines()[0]


def test_explain_says_when_a_session_is_trained_on(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Consent when it began, consent taken back, no consent, a session that is not live."""
    store = Store.open(path)
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    for id, source in (("asked", Source.LIVE), ("drill", Source.PRACTICE)):
        store.record([turn(0, id)], [], [session(id, source=source, consent=True, ending=Ending.FINISHED)])

    def said(id: str) -> str:
        assert main(["rewards", "explain", id, "--store", str(path)]) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert "  trained on from 1970-" in said("asked") and "never trained on" in said("s")
    assert "source practice: no live reward" in said("drill")
    store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert "not trained on: consent was taken back" in said("asked")
    ledger = Ledger(store)
    ledger.reserve("asked")
    ledger.offer(replace(group("g", session_id="asked"), prompt="asked"))
    ledger.claim(7, 1, 0)
    ledger.commit(version(7, "g"))
    assert "  trained into version 7" in said("asked")
    store.close()


def test_explain_as_json_is_the_canonical_reward(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewards", "explain", "s", "--store", str(path), "--json", "--as-of", "5"]) == 0
    reward = json.loads(capsys.readouterr().out)
    assert reward["as_of"] == 5 and {part["name"] for part in reward["parts"]} >= {"kept", "effort"}


@pytest.mark.parametrize("command", ["explain", "score"])
def test_a_session_is_meant_by_the_beginning_of_its_id(
    path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(path)
    comment = Signal(session_id="3f058d8209d8", kind=SignalKind.COMMENT, value="a\n\x1b[2Jb", observed_at=1e9)
    for id in ("3f058d8209d8", "3f0599"):
        store.record([turn(0, id)], [], [session(id, ending=Ending.FINISHED)])
    store.record([], [comment])
    store.close()
    assert main(["rewards", command, "3f058", "--store", str(path)]) == 0
    assert "1 sessions scored" in (text := capsys.readouterr().out) or text.startswith("3f058d8209d8  ada")
    assert "\x1b" not in text
    assert main(["rewards", command, "3f05", "--store", str(path)]) == 2
    assert "3f058d8209d8, 3f0599" in capsys.readouterr().err


def test_score_counts_what_changed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for changed in (1, 0):
        assert main(["rewards", "score", "--store", str(path), "--json", "--as-of", "2e9"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"] == changed
    assert main(["rewards", "score", "s", "--store", str(path)]) == 0
    assert "1 sessions scored by live" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["explain", "nobody"], ["score", "nobody"]])
def test_an_unknown_session_is_refused(path: Path, words: list[str]) -> None:
    assert main(["rewards", *words, "--store", str(path)]) == 2


def test_a_definition_that_cannot_work_is_refused(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.toml").write_text('name = "bad"\n[parts.vibes]\nweight = 1\n')
    words = ["rewards", "explain", "s", "--store", str(path), "--definition", str(tmp_path / "bad.toml")]
    assert main(words) == 2
    assert "unknown fact 'vibes'" in capsys.readouterr().err


def test_no_store_is_no_new_store(tmp_path: Path) -> None:
    assert main(["rewards", "score", "--store", str(tmp_path / "none.db")]) == 2
    assert not (tmp_path / "none.db").exists()
