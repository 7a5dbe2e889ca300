"""The choice of a demonstrator: habits for pebbles, the reference patch for other tasks."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ostinato.tasks.pebble import generate, write
from ostinato.tasks.teaching.demonstrate import SolutionTeacher, Teacher, demonstrator
from ostinato.types import Task

PATCH = """diff --git a/{path} b/{path}
--- a/{path}
+++ b/{path}
@@ -1,2 +1,2 @@
 {head}
-{old}
+    return 1
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task that is no pebble any more, with a patch as its solution."""
    pebble = generate("fix", "train", 3)
    written = replace(write(pebble, tmp_path / "task"), id="mined-1")
    path, text = next((p, t) for p, t in pebble.files.items() if not p.startswith("test_"))
    head, old = text.splitlines()[:2]
    (written.directory / "solution" / "solution.patch").write_text(
        PATCH.format(path=path, head=head, old=old)
    )
    return written


def test_a_pebble_has_its_habits(tmp_path: Path) -> None:
    assert isinstance(demonstrator(write(generate("fix", "train", 3), tmp_path / "t"), Random(1)), Teacher)


def test_a_reference_patch_is_read_edited_and_tested(task: Task) -> None:
    teacher = demonstrator(task, Random(1))
    assert isinstance(teacher, SolutionTeacher)
    turns = [teacher.act([]) for _ in range(4)]
    calls = [json.loads(turn.split("\n")[1]) for turn in turns[:3]]
    assert [each["name"] for each in calls] == ["read", "edit", "bash"] and turns[3] == "done"
    edit = calls[1]["arguments"]
    text = (task.repo / edit["path"]).read_text()
    assert text.count(edit["old_string"]) == 1 and edit["new_string"].endswith("    return 1\n")


def test_a_solution_that_no_edit_can_make_is_not_shown(task: Task) -> None:
    patch = task.directory / "solution" / "solution.patch"
    patch.write_text(patch.read_text().replace("def ", "def no_such_"))
    assert demonstrator(task, Random(1)) is None
    patch.write_bytes(b"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+\xff\n")
    assert demonstrator(task, Random(1)) is None
    patch.unlink()
    assert demonstrator(task, Random(1)) is None
