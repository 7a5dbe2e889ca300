"""Lines typed in one session are there in the next one, and a damaged line costs no other."""

from pathlib import Path

from ostinato.harness.frontends.terminal.history import LineHistory


def test_the_next_session_goes_back_to_what_was_typed_in_this_one(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.jsonl"
    first = LineHistory(path)
    for text in ("one", "two\nlines", "two\nlines", "  "):
        first.add(text)
    second = LineHistory(path)
    assert [second.back("draft"), second.back(""), second.back("")] == ["two\nlines", "one", None]
    assert [second.forward(), second.forward(), second.forward()] == ["two\nlines", "draft", None]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('"one"\n"tw')
    history = LineHistory(path)
    assert [history.back(""), history.back("")] == ["one", None]
