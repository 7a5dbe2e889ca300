from pathlib import Path

from ostinato.train.journal import Journal


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "log.jsonl")
    assert journal.lines() == []
    journal.add({"version": 1})
    journal.add({"version": 2})
    assert journal.lines() == [{"version": 1}, {"version": 2}]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "log.jsonl")
    journal.add({"version": 1})
    with journal.path.open("a") as file:
        file.write('{"versi')
    assert journal.lines() == [{"version": 1}]
