"""Histories of edits over real sources, against a reference that knows every line by identity."""

from pathlib import Path

import pytest
from benchmarks.survival import run_history

from ostinato.edits.follow import locate
from ostinato.edits.follow.edit import Edit
from ostinato.edits.git import Tree


@pytest.mark.parametrize("seed", range(24))
def test_what_became_of_an_edit_is_told_truly(seed: int, tmp_path: Path) -> None:
    found = run_history(seed, tmp_path / "repo")
    assert found.comparisons and found.disagreement is None, found.disagreement


def test_the_reference_notices_lines_that_are_met_rather_than_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison can fail: with the old rule, that lines found anywhere have moved there, it does."""

    def met(edit: Edit, tree: Tree, wanted, was):
        return locate.Counter(dict.fromkeys(wanted, 100))

    monkeypatch.setattr(locate, "_gained", met)
    monkeypatch.setattr(locate, "TELLING", 0)
    seeds = range(24)
    assert any(run_history(seed, tmp_path / str(seed)).disagreement for seed in seeds)
