"""A run as one file: whole, closed, and without a word of any session."""

import re
import shutil
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.report import report
from ostinato.store import Store


def test_it_asks_no_server_for_anything_and_names_nobody(history: RecordSource) -> None:
    text = report(history, caveat="a toy & nothing else")
    assert not re.search(r'<script|<link|src=|href="/|url\(|https?://|@import', text)
    assert not [word for word in ("ada", "mallory", "secret words", "product now") if f">{word}" in text]
    assert "a toy &amp; nothing else" in text and text.rstrip().endswith("</html>")


def test_it_tells_what_came_of_the_run(history: RecordSource) -> None:
    text = report(history)
    assert "is being tried on 50% of the users" in text
    assert "Version 7 was shown to be better" in text and "challenger minus champion" in text
    for heading in (
        "Held-out tasks solved",
        "Training",
        "Rewards of practice sessions",
        "What became of all",
    ):
        assert heading in text
    assert text.count("<svg") > 20


def test_the_command_writes_it_into_the_run_folder(
    grown: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(grown, tmp_path / "run")
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    written = tmp_path / "run" / "report.html"
    assert capsys.readouterr().out.strip() == str(written)
    assert "<title>Run run" in written.read_text() and not list(tmp_path.glob("run/*.part"))
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_an_empty_run_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    text = report(RecordSource(store=store, lexicon=None, directory=tmp_path))
    assert "None was tried." in text and "No version was measured." in text
    store.close()
