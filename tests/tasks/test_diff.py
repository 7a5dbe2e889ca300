"""What a session changed, as text, and how much of it nobody needed."""

from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.tasks.diff import MOST_CHARACTERS, MOST_LINES, SLACK, authored, beyond, unified
from ostinato.tasks.pebble import generate, write
from ostinato.types import Task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return write(generate("fix", "train", 3), tmp_path / "task")


def solved(task: Task) -> dict[str, bytes | None]:
    (change,) = generate("fix", "train", 3).changes
    text = (task.repo / change.path).read_text()
    return {change.path: text.replace(change.old, change.new).encode()}


def test_the_text_is_a_unified_diff(task: Task) -> None:
    (change,) = generate("fix", "train", 3).changes
    patch = unified(task, {**solved(task), "new.py": b"x = 1", "pyproject.toml": None})
    assert f"-{change.old}\n+{change.new}\n" in patch
    assert "--- a/new.py\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n" in patch
    assert "+++ b/pyproject.toml\n@@ -1,3 +0,0 @@\n" in patch
    assert unified(task, {}) == ""
    assert len(unified(task, {"big.py": b"x = 1\n" * MOST_LINES})) == MOST_CHARACTERS
    assert unified(task, {"big.py": b"x = 1\n" * 10**5}) == "Files a/big.py and b/big.py differ\n"


def test_the_reference_solution_is_within_its_scope(task: Task) -> None:
    changes = solved(task)
    assert beyond(task, changes) == beyond(task, {}) == 0
    (path,) = changes
    more = (changes[path] or b"") + b"\n\ndef helper():\n    return 1\n"
    assert beyond(task, {path: more}) == 1 + 4 - SLACK
    assert beyond(task, {**changes, "notes.txt": b"a\nb\n"}) == 2
    assert beyond(task, {**changes, "test_more.py": b"a\nb\n"}) == 0, "a new test is welcome"
    assert beyond(task, {**changes, "test_calc.py": None, "pyproject.toml": b""}) > 2


def test_a_task_with_a_patch_needs_what_the_patch_changes(task: Task) -> None:
    bare = replace(task, metadata={})
    assert beyond(bare, solved(task)) is None
    (change,) = generate("fix", "train", 3).changes
    head = f"--- a/{change.path}\n+++ b/{change.path}\n@@ -2 +2,2 @@\n"
    patch = bare.directory / "solution" / "solution.patch"
    patch.write_text(f"{head}-{change.old}\n+{change.new}\n+\n")
    assert beyond(bare, solved(task)) == 0
    assert beyond(bare, {**solved(task), "notes.txt": b"a\nb\n"}) == 2


def test_a_patch_may_need_a_file_to_be_deleted(task: Task) -> None:
    name = next(iter(solved(task)))
    lines = (task.repo / name).read_text().splitlines(keepends=True)
    bare = replace(task, metadata={})
    (bare.directory / "solution" / "solution.patch").write_text(
        f"--- a/{name}\n+++ /dev/null\n@@ -1,{len(lines)} +0,0 @@\n" + "".join(f"-{line}" for line in lines)
    )
    assert beyond(bare, {name: None}) == 0


def test_bytes_that_are_no_text_are_counted(task: Task) -> None:
    assert beyond(task, {"image.png": b"\xff\x00\n\xfe"}) == 2
    assert "\ufffd" in unified(task, {"image.png": b"\xff\n"})


def test_what_tools_write_by_the_way_is_no_edit(task: Task) -> None:
    (task.repo / ".gitignore").write_text("/build/\n*.log\n")
    (task.repo / "kept.log").write_text("of the repository\n")
    written: dict[str, bytes | None] = dict.fromkeys(
        (
            *(
                ".pytest_cache/README.md",
                ".pytest_cache/v/cache/nodeids",
                "sub/__pycache__/a.cpython-311.pyc",
            ),
            *(
                ".mypy_cache/3.11/a.json",
                ".hypothesis/unicode_data/x.gz",
                ".coverage",
                "build/lib/a.py",
                "run.log",
            ),
        ),
        b"{}\n" * 500,
    )
    assert authored(task, written) == {} and unified(task, written) == ""
    assert beyond(task, written) == 0
    edits: dict[str, bytes | None] = {**solved(task), "kept.log": b"changed\n", "sub/build/a.py": b"x = 1\n"}
    assert authored(task, {**written, **edits}) == edits


def test_a_session_cannot_hide_its_files_by_an_ignore_of_its_own(task: Task) -> None:
    edits: dict[str, bytes | None] = {".gitignore": b"*\n", "much.py": b"x = 1\n" * 50}
    assert authored(task, edits) == edits
