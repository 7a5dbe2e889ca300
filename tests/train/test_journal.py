import multiprocessing
import resource
import signal
from pathlib import Path

import pytest

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
    journal.add({"version": 2})
    assert Journal(journal.path).lines() == [{"version": 1}, {"version": 2}]


def fill_the_disk(path: Path, left: int) -> None:
    """Add a line where only some bytes are left, as a child that ends with 0 when it is told so."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + left, size + left))
    with pytest.raises(OSError, match=r"the disk is full|File too large"):
        Journal(path).add({"version": 2, "loss": 0.25})


@pytest.mark.parametrize("left", [0, 1, 12])
def test_a_full_disk_is_an_error_and_leaves_no_part_of_a_line(tmp_path: Path, left: int) -> None:
    journal = Journal(tmp_path / "log.jsonl")
    journal.add({"version": 1})
    child = multiprocessing.get_context("spawn").Process(target=fill_the_disk, args=(journal.path, left))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert journal.path.read_text() == '{"version": 1}\n'
    journal.add({"version": 2})
    assert journal.lines() == [{"version": 1}, {"version": 2}]
