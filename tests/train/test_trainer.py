"""The rate of a practice step; what a trainer of a chain publishes and resumes is in `test_learner.py`."""

import pytest

from ostinato.train.config import LearnerConfig
from ostinato.train.trainer import RISE_STEPS, learning_rate


def test_the_rate_rises_and_stays() -> None:
    config = LearnerConfig(learning_rate=1.0)
    rates = [learning_rate(config, step) for step in range(100)]
    assert rates[:RISE_STEPS] == [step / RISE_STEPS for step in range(1, RISE_STEPS + 1)]
    assert set(rates[RISE_STEPS:]) == {1.0}


def test_the_rate_falls_in_a_line_to_a_tenth() -> None:
    config = LearnerConfig(learning_rate=1.0, fall_steps=20)
    rates = [learning_rate(config, step) for step in range(30)]
    assert rates[10:18] == pytest.approx([1 - step / 20 for step in range(10, 18)])
    assert rates[18:] == pytest.approx([0.1] * 12)


def test_a_fall_over_no_step_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step, got fall_steps 0"):
        LearnerConfig(fall_steps=0)
