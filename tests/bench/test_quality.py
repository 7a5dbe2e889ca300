from collections import Counter
from pathlib import Path

import pytest

from ostinato.bench.quality import KeptPatch, beside_kept, kept_by_person, line_changes, lint, quality
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(generate("fix", "seeds", 1), tmp_path / "task")


def test_the_diff_is_held_beside_what_was_kept(task: Task) -> None:
    path = next(task.repo.glob("*.py")).name
    text = (task.repo / path).read_bytes()
    found = quality(task, {path: text + b"x = 1\n", "new.py": b"def f(:\n"})
    assert (found["files"], found["lines_added"], found["lines_removed"]) == (2, 2, 0)
    assert found["syntax_errors"] == 1 and "lines_of_kept" not in found
    patch = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+b\n+c\n+d\n"
    (task.directory / "solution" / "solution.patch").write_text(patch)
    assert kept_by_person(task.directory).size == 4
    assert quality(task, {path: text + b"x = 1\n"})["lines_of_kept"] == 0.25


def test_a_link_out_of_the_repository_is_not_followed(task: Task, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("one\ntwo\n")
    (task.repo / "link.txt").symlink_to(tmp_path / "secret")
    assert quality(task, {"link.txt": b"x\n"})["lines_removed"] == 0


def test_lines_and_findings_are_counted() -> None:
    assert line_changes(None, b"a\nb\n") == (2, 0) and line_changes(b"a\n", None) == (0, 1)
    assert lint(b"import os\n") in {1, None}  # None where no linter is installed


def test_lines_that_both_added_are_found_whatever_their_indentation() -> None:
    kept = KeptPatch(files=frozenset({"a.py"}), size=3, added=Counter({"x = 1": 1, "y = 2": 1}))
    changes = {"a.py": b"if a:\n    x = 1\n\n    z = 3\n", "b.py": b"x = 1\n"}
    found = beside_kept(kept, {"a.py": b"if a:\n    x = 0\n", "b.py": None}, changes, 5)
    assert found == {
        "lines_of_kept": 5 / 3,
        "files_beyond_kept": 1.0,
        "kept_found": 0.5,
        "survives": 1 / 3,
    }


def test_a_person_who_only_deleted_has_no_lines_to_find(task: Task) -> None:
    (task.directory / "solution" / "solution.patch").write_text("--- a/x.py\n+++ b/x.py\n@@ -1 +0,0 @@\n-a\n")
    found = quality(task, {"x.py": b"b\n"})
    assert found["lines_of_kept"] == 1.0 and "kept_found" not in found and "survives" not in found
