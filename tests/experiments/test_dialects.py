"""The study of dialects: its figures on made-up outcomes, and once the whole of it, tiny.

Covers experiments/dialects.py and experiments/runs.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from experiments.dialects import (
    COMPARED,
    IN,
    TAUGHT,
    Dialects,
    differences,
    extra,
    gain,
    looks,
    ratio,
    shares,
    study,
    through_practice,
    transfer,
)
from experiments.runs import RunError, best_of, carry_out
from experiments.study import judged

from ostinato.deploy.outcomes import TaskOutcome


def rows(*solved: bool, broken: bool = False) -> list[TaskOutcome]:
    return [
        TaskOutcome(task=f"t{i}", split="seeds", cluster=f"c{i}", solved=(each,), broken=(broken,))
        for i, each in enumerate(solved)
    ]


def test_a_version_that_is_worse_away_from_home_costs_that_under_both_profiles() -> None:
    at = {
        "short": shares({"short": rows(True, True), "codex": rows(True, False, broken=True)}),
        "codex": shares({"short": rows(False, False), "codex": rows(True, True)}),
    }
    found = differences(at)
    assert (found["loss, short"], found["loss, codex"], found["loss, both"]) == (1.0, 0.5, 0.75)
    assert (found["broken more, short"], found["broken more, codex"]) == (0.0, 1.0)


def test_a_gain_is_paired_by_task_and_refuses_other_tasks() -> None:
    found = gain(rows(False, False, True, True), rows(True, False, True, True))
    assert found.estimate == 0.25 and found.low < 0.25 < found.high
    with pytest.raises(ValueError, match="measured on other tasks"):
        gain(rows(False), rows(False, True))


def test_fiellers_interval_inverts_students_test_and_is_open_over_a_denominator_of_zero() -> None:
    above, below = [0.1, 0.12, 0.05, 0.08, 0.1], [0.2, 0.25, 0.15, 0.2, 0.18]
    found = ratio(above, below)
    assert found.estimate == pytest.approx(sum(above) / sum(below))
    for end in (found.low, found.high):
        left = [a - end * b for a, b in zip(above, below, strict=True)]
        mean = sum(left) / 5
        error = math.sqrt(sum((x - mean) ** 2 for x in left) / 4 / 5)
        assert abs(mean) / error == pytest.approx(2.776, rel=1e-3)
    assert ratio(below, below).low == ratio(below, below).high == pytest.approx(1.0)
    assert ratio(above, [0.2, -0.2, 0.1, -0.1, 0.05]).high == math.inf
    assert ratio([0.1], [0.2]).low == -math.inf


def test_the_best_of_four_is_no_less_than_the_mean_and_is_the_chance_of_a_draw_of_four() -> None:
    group = [True, False, False, False, False]
    assert best_of(group, 4) == pytest.approx(0.8) and best_of([False] * 5, 4) == 0.0
    curves = through_practice({1: [[True] * 4], 0: [[False] * 4, [True] * 4]})
    assert curves == {"mean": [0.5, 1.0], "best of 4": [0.5, 1.0]}
    assert looks({"mean": [0.0, 0.2, 0.4, 0.6]}) == pytest.approx(
        {"mean, begin": 0.1, "mean, half": 0.3, "mean, end": 0.5}
    )


def test_a_run_that_fails_says_where(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[teach]\nstep = 3\n")
    with pytest.raises(RunError, match=r"did you mean 'teach\.steps'"):
        carry_out(file, tmp_path / "run", {})


@pytest.mark.deep
def test_the_whole_study_tiny_and_read_again(tmp_path: Path, tiny_run: Mapping[str, Any]) -> None:
    runs = Dialects(directory=tmp_path, smaller=tiny_run)
    asked = study(runs)
    results = {arm: [runs.run(arm, 1)] for arm in asked.arms}
    assert set(results) == {TAUGHT, *IN.values(), COMPARED} and set(judged(asked, results).values()) <= {
        True,
        False,
    }
    for arm in IN.values():
        assert len(results[arm][0].curves["best of 4"]) == 2
    more = extra(runs, results, [1])
    assert len(more["gains"]) == 4 and more["cpu_s"] > 0 and transfer(results, "short").high == math.inf
    assert all(each["prompts_trained_twice"] == 0 for each in more["integrity"])
    assert {arm: [runs.run(arm, 1)] for arm in asked.arms} == results
