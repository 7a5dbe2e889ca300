"""`ostinato bench calibrate` and `ostinato bench pairs` from the outside. Covers loop/suites/judge.py."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz.endpoint import Message, says
from tests.lab.judges.test_pairs import AFTER, BEFORE
from tests.loop.suites.test_commands import serving

from ostinato.bench.judge import RUBRIC
from ostinato.cli import main
from ostinato.mining.base import SourceTree
from ostinato.mining.write import Draft, write_task


@pytest.fixture
def pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a file of the pairs of one task, as the command writes it."""
    draft = Draft(
        tree=SourceTree(name="calc", version="1", files={}, licence="MIT"),
        name="clamp",
        files={"calc.py": BEFORE.encode()},
        solution={"calc.py": AFTER.encode()},
        suite={"test_calc.py": b""},
        failing=("test_calc.py::test_a",),
        passing=(),
        instruction="clamp is off",
        evidence={},
    )
    write_task(draft, tmp_path)
    assert main(["bench", "pairs", str(tmp_path), "--out", str(tmp_path / "pairs.jsonl")]) == 0
    assert "5 pairs of 1 tasks" in capsys.readouterr().out
    return tmp_path / "pairs.jsonl"


def judge(_: str, messages: Sequence[Message]) -> Message:
    """Prefer the shorter diff: right on every pair of one task."""
    shown = json.loads(messages[1]["content"])
    gap = len(shown["second"]) - len(shown["first"])
    word = "first" if gap > 0 else "second" if gap < 0 else "tie"
    return says(json.dumps(dict.fromkeys(RUBRIC, word)))


def test_a_judge_is_calibrated(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(url: str) -> int:
        assert main(["bench", "calibrate", f"m@{url}", "--pairs", str(pairs)]) == 0
        return main(["bench", "calibrate", f"m@{url}", "--pairs", str(pairs), "--json"])

    assert serving(judge, work) == 0
    text, line = capsys.readouterr().out.rsplit("\n", 2)[:2]
    found = json.loads(line)
    assert found["answered"] == found["pairs"] == 5 and found["whole"]["kappa"] == 1.0
    assert "kappa    1.000 [1.000, 1.000], 100 % of 5 pairs" in text and "smaller diff" in text


def test_a_judge_that_answers_rubbish_is_no_judge(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(url: str) -> int:
        return main(["bench", "calibrate", f"m@{url}", "--pairs", str(pairs)])

    assert serving(lambda *_: says("both are fine"), work) == 1
    assert "a verdict on 0 of 5 pairs" in capsys.readouterr().out


def test_wrong_requests_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "calibrate", "no-model"]) == 2
    assert "is no MODEL@URL" in capsys.readouterr().err
    (tmp_path / "pairs.jsonl").write_text("{}\n")
    assert main(["bench", "calibrate", "m@http://x", "--pairs", str(tmp_path / "pairs.jsonl")]) == 2
    assert "pairs.jsonl:1 is no pair" in capsys.readouterr().err
