"""Covers demo/config.py and loop/config.py: settings that would wait for ever are refused at the start."""

import pytest

from ostinato.config import ConfigError, load
from ostinato.demo.config import DemoConfig, check
from ostinato.deploy.abtest import Claim
from ostinato.loop.config import CLAIMS


@pytest.mark.parametrize(("groups", "ahead"), [(24, 12), (13, 12), (3, 2)])
def test_a_batch_that_practice_never_fills_is_refused_with_the_numbers(groups: int, ahead: int) -> None:
    config = load(DemoConfig, None, [f"refine.groups={groups}", f"practice.ready_ahead={ahead}"])
    with pytest.raises(ConfigError, match=f"refine.groups is {groups} and practice.ready_ahead is {ahead}"):
        check(config)


def test_settings_that_can_work_are_taken() -> None:
    check(DemoConfig())
    check(load(DemoConfig, None, ["refine.groups=24", "practice.ready_ahead=24", "refine.staleness=0"]))
    for setting in ("refine.staleness=-1", "refine.groups=0"):
        with pytest.raises(ConfigError, match=f"{setting.partition('=')[0][:6]}.*at least"):
            load(DemoConfig, None, [setting])
    with pytest.raises(ConfigError, match="practice ends at"):
        check(load(DemoConfig, None, ["refine.versions=none"]))


@pytest.mark.parametrize(
    "setting", ["live.claim=best", "live.challenger_share=1.0", "live.challenger_share=0.0", "bench.passes=0"]
)
def test_a_trial_that_cannot_be_held_is_refused_before_it_is_prepared(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.split("=", maxsplit=1)[0]):
        check(load(DemoConfig, None, [setting]))


def test_every_claim_of_a_setting_is_one_of_a_trial() -> None:
    assert set(CLAIMS) == set(Claim)
