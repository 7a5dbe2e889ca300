"""State tracking: the distance is the textbook's, and the changes shown lead from the file to the answer."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.bench.select.base import SelectError
from ostinato.bench.select.state import FENCE, StateTracking, distance, prompt, tracked

FILES = {f"{name}.py": "".join(f"{name}_{i} = call({i})\n" for i in range(30)) for name in "abc"}
TEXT = st.text(alphabet="abé\n", max_size=14)


def textbook(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


@given(TEXT, TEXT)
def test_the_distance_is_that_of_the_textbook(one: str, other: str) -> None:
    assert distance(one, other) == textbook(one, other)


def made(changes: int = 5, seed: int = 3) -> StateTracking:
    return tracked(FILES, number=2, lines=12, changes=changes, seed=seed)


def test_git_applies_the_changes_that_are_shown(tmp_path: Path) -> None:
    for item in made().items:
        (tmp_path / item.path).write_text(item.states[0])
        shown = re.findall(r"Change \d+:\n```diff\n(.*?)```\n", prompt(item), re.DOTALL)[1:]
        assert len(shown) == 5
        for change in shown:
            diff = f"--- a/{item.path}\n+++ b/{item.path}\n{change}"
            subprocess.run(
                ["git", "apply", "--unidiff-zero", "-"], input=diff, text=True, cwd=tmp_path, check=True
            )
        assert (tmp_path / item.path).read_text() == item.states[-1]


def test_the_same_seed_gives_the_same_items_and_hash() -> None:
    assert made().hash == made().hash != made(seed=4).hash
    assert made().facts["files"] == 2 and made().facts["changes"] == 10 and made().facts["unchanged"] > 0


def test_a_file_with_an_endless_line_is_left_out_and_counted() -> None:
    """Otherwise a line of it, or one that moves into another file, makes a prompt that no context holds."""
    rows = "".join(f"value_{number} = {number}\n" for number in range(20))
    found = tracked({"a.py": rows, "b.js": rows + "x" * 5_000_000}, number=2, lines=12, changes=3, seed=1)
    assert [item.path for item in found.items] == ["a.py"] and found.facts["left out"] == 1
    assert len(prompt(found.items[0])) < 5_000


def test_code_that_cannot_be_tracked_is_refused() -> None:
    for files in ({"a.py": "x\n"}, {"a.md": f"{FENCE}\nx\n{FENCE}\n" * 9}, {"a.py": "\n" * 30}):
        with pytest.raises(SelectError):
            tracked(files, number=2, lines=12, changes=1, seed=1)
