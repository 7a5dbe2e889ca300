"""The study of loss and reward: its ranks on made-up runs, and once the whole of it, tiny.

Covers experiments/loss_predicts_reward.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from experiments.loss_predicts_reward import BITS, COMPARED, Pretrained, draw, ranks, ranks_of, study
from experiments.study import judged


def test_ranks_say_how_rare_an_order_is_among_those_within_the_seeds() -> None:
    falls = [(3.0, 0.1), (2.0, 0.2), (1.0, 0.3)]
    found = ranks([falls, falls, falls])
    assert found["estimate"] == pytest.approx(-1) and found["p"] == pytest.approx(1 / 216)
    assert found["low"] < found["high"] < -0.99 and found["runs"] == 9
    mixed = ranks([[(3.0, 0.3), (2.0, 0.1), (1.0, 0.2)], falls])
    assert ranks([[(3.0, 0.0), (2.0, 0.0)]])["p"] == 1.0
    assert mixed["low"] < mixed["estimate"] < 0 < mixed["high"] and mixed["p"] > 0.05


@pytest.mark.deep
def test_the_whole_study_tiny_and_read_again(tmp_path: Path, tiny_run: Mapping[str, Any]) -> None:
    levels = {"1": 2048, "4": 8192}
    runs = Pretrained(directory=tmp_path, levels=levels, smaller={**tiny_run, "engine.slots": 8})
    asked = study(runs)
    results = {arm: [runs.run(arm, 1)] for arm in asked.arms}
    assert set(judged(asked, results).values()) <= {True, False}
    assert results["4"][0].figures[BITS] < results["1"][0].figures[BITS]
    assert results[COMPARED][0].figures["least step of loss"] > 0
    assert ranks_of(runs, results)["ranks, held out, taught"]["runs"] == 2
    draw(asked, results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0
    assert runs.run("1", 1) == results["1"][0]
