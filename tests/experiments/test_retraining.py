"""The study of retraining: its figures on made-up curves, and once the whole of it, tiny.

Covers experiments/retraining.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from experiments.retraining import AFTER, COMPARED, FIRST, START, Retraining, costs, reached, study
from experiments.study import judged


def test_a_target_is_reached_by_the_mean_of_four_versions_and_never_by_one_lucky_one() -> None:
    assert reached([0.2, 0.2, 0.9, 0.2, 0.4, 0.5, 0.5], 0.45) == 6
    assert reached([0.2, 0.2, 0.9, 0.2], 0.45) is None
    assert reached([0.5, 0.7], 0.6) == 2


@pytest.mark.deep
def test_the_whole_study_tiny_and_read_again(tmp_path: Path, tiny_run: Mapping[str, Any]) -> None:
    runs = Retraining(directory=tmp_path, smaller=tiny_run)
    asked = study(runs)
    results = {arm: [runs.run(arm, 1)] for arm in asked.arms}
    assert set(judged(asked, results).values()) <= {True, False}
    assert len(results[AFTER][0].curves["solved under short"]) == 2
    assert results[COMPARED][0].figures["versions, start"] == 2
    more = costs(runs, [1])
    assert more["cpu_s"] > more["cpu_s_of_a_version"] > 0
    assert all(each["prompts_trained_twice"] == 0 for each in more["integrity"])
    assert runs.run(START, 1) == results[START][0] and runs.run(FIRST, 1) == results[FIRST][0]
