"""Random histories of edits, against a reference that knows every line by identity."""

from pathlib import Path

import pytest
from fuzz.edit_survival import run_history

from ostinato.edits.follow import locate
from ostinato.edits.follow.edit import FollowedEdit
from ostinato.edits.git import FileTree


@pytest.mark.parametrize("seed", range(24))
def test_the_verdict_on_an_edit_agrees_with_the_reference(seed: int, tmp_path: Path) -> None:
    outcome = run_history(seed, tmp_path / "repo")
    assert outcome.comparisons and outcome.disagreement is None, outcome.disagreement


def test_the_reference_notices_lines_that_were_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison fails, as it should, when equal lines anywhere count as a move."""

    def met(edit: FollowedEdit, tree: FileTree, wanted, was):
        return locate.Counter(dict.fromkeys(wanted, 100))

    monkeypatch.setattr(locate, "_gained", met)
    monkeypatch.setattr(locate, "TELLING", 0)
    seeds = range(24)
    assert any(run_history(seed, tmp_path / str(seed)).disagreement for seed in seeds)
