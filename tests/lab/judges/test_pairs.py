import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from ostinato.bench.judge import RUBRIC
from ostinato.mining.base import SourceTree
from ostinato.mining.write import Draft, write_task
from ostinato.types import Task
from ostinato_lab.judges.pairs import RULES, PairsError, line_of, load_pairs, pairs_of, reference, shipped

WORDS = "".join(f'def word_{n}():\n    return "word {n}"\n\n\n' for n in range(6))
BEFORE = f'{WORDS}def clamp(value):\n    """Return the value, at most 10."""\n    return value\n'
AFTER = BEFORE.replace("    return value\n", "    if value > 10:\n        return 10\n    return value\n")


@pytest.fixture
def task(tmp_path: Path) -> Task:
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
    return write_task(draft, tmp_path)


def test_a_reference_is_read_out_of_its_patch(task: Task) -> None:
    assert reference(task) == ("calc.py", BEFORE, AFTER)


def test_every_rule_makes_another_text_that_python_reads() -> None:
    for rule in RULES.values():
        worse = rule(BEFORE, AFTER)
        assert worse is not None and worse not in {BEFORE, AFTER}
        ast.parse(worse)


def test_a_task_gives_a_pair_for_each_aspect_and_a_tie(task: Task) -> None:
    pairs = list(pairs_of([task]))
    assert [pair.aspect for pair in pairs if pair.better != "tie"] == list(RUBRIC)
    (tie,) = (pair for pair in pairs if pair.better == "tie")
    assert tie.first == tie.second
    for pair in pairs:
        assert getattr(pair, pair.better, tie.first) == tie.first and pair.request == "clamp is off"


def test_pairs_are_read_back_and_a_wrong_line_is_named(task: Task, tmp_path: Path) -> None:
    pairs, path = list(pairs_of([task])), tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{line_of(pair)}\n" for pair in pairs))
    assert load_pairs(path) == pairs
    for wrong in ("no JSON", "{}", json.dumps(json.loads(line_of(pairs[0])) | {"better": "both"})):
        path.write_text(f"{line_of(pairs[0])}\n{wrong}\n")
        with pytest.raises(PairsError, match=r"pairs.jsonl:2 is no pair"):
            load_pairs(path)
    path.write_text("")
    with pytest.raises(PairsError, match="no pair"):
        load_pairs(path)


def test_the_shipped_pairs_cover_every_aspect_and_both_places() -> None:
    pairs = shipped()
    sides = Counter((pair.aspect, pair.better) for pair in pairs)
    assert sides.keys() == {(aspect, side) for aspect in RUBRIC for side in ("first", "second", "tie")}
    assert len({pair.id for pair in pairs}) == len(pairs) >= 60
