"""Settings of practice that make no sense, or could be waited for without end."""

from typing import Any

import pytest

from ostinato.harness.outside.config import OutsideConfig
from ostinato.rollout.config import PracticeConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_size": 1}, "group_size is 1: a session is compared with the others of its group"),
        ({"branches": 0}, "branches 0"),
        ({"session_s": 0.0}, "session_s 0.0 is above 0"),
        ({"session_s": float("nan")}, "session_s nan is above 0"),
        ({"harder": -1.0}, "harder -1.0 is 0 at least"),
        ({"branches": 2, "outside": OutsideConfig(harness="codex")}, "codex cannot be forked"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PracticeConfig(**settings)


def test_a_batch_that_would_deadlock_is_refused_with_the_numbers() -> None:
    config = PracticeConfig(groups_at_once=3, ready_ahead=4)
    config.refuse_deadlock(6)
    for batch in (7, 0):
        with pytest.raises(ValueError, match=f"refine.groups is {batch}.*groups_at_once - 1, which is 6"):
            config.refuse_deadlock(batch)
    with pytest.raises(ValueError, match="groups_at_once 0"):
        PracticeConfig(groups_at_once=0).refuse_deadlock(1)


def test_turns_and_time_limits_that_cannot_fit_into_a_session_are_refused_with_the_numbers() -> None:
    config = PracticeConfig(session_s=200.0)
    config.refuse_too_short(9, 20.0)
    with pytest.raises(ValueError, match=r"max_turns is 10, .*_s 20 and .*session_s 200: 10 turns .* 200 s"):
        config.refuse_too_short(10, 20.0)
    outside = PracticeConfig(session_s=600.0, outside=OutsideConfig(harness="codex", wall_s=600.0))
    with pytest.raises(ValueError, match=r"outside.wall_s is 600 and practice.session_s 600"):
        outside.refuse_too_short(1, 1.0)


def test_a_synchronous_run_has_no_such_bound() -> None:
    PracticeConfig(mode="synchronous", groups_at_once=1, ready_ahead=1).refuse_deadlock(50)
