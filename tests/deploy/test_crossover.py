"""A trial whose people meet both arms: what it finds, how often it errs, and what makes it void."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ostinato.deploy.abtest import judge
from ostinato.deploy.crossover import Met, within
from ostinato.deploy.statistics import half_width
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.deploy.traffic import BLOCK_H, named
from ostinato.gateway.arms import assign
from ostinato.types import Arm, Decision
from ostinato.types.release import unit_of

TRIAL = Trial(experiment="trial-of-7@4h.5ec", share=0.5, horizon=900, alpha=0.05, guardrails={"harm": 0.1})
ARMS = [
    Arm(name=name, version=n, share=0.5, engines=(), experiment=TRIAL.experiment)
    for n, name in enumerate(("champion", "challenger"))
]


def week(gain: float, people: int = 12, *, carried: float = 0.0, seed: int = 1) -> list[TrialSession]:
    """Sessions of a week, ten a working day of each person, dealt as the gateway deals them.

    A gain lifts the challenger; what is carried over lifts the champion directly after it.
    """
    rng, sessions = np.random.default_rng(seed), []
    for person in map(str, range(people)):
        habit, last = rng.normal(0, 1.0), ""
        for day in range(7):
            for hour in np.sort(rng.uniform(8, 18, 10)):
                at = 86_400.0 * (20_000 + day) + 3600 * hour
                arm = assign(person, ARMS, "salt", at=at).name
                value = habit + rng.normal(0, 0.5) + gain * (arm == "challenger")
                if (arm, last) == ("champion", "challenger"):
                    value += carried
                last = arm
                sessions.append(
                    TrialSession(arm=arm, user=person, at=at, value=value, tokens=1.0, harms={"harm": 0.0})
                )
    return sessions


def decided(sessions: Sequence[TrialSession], trial: Trial = TRIAL) -> tuple[Decision, str]:
    verdict = judge(7, trial, sessions, closed=True)
    return verdict.decision, verdict.reason


def test_a_gain_shows_within_a_team_whose_habits_would_hide_it_between_two_arms() -> None:
    assert decided(week(0.2))[0] is Decision.PROMOTE
    assert decided(week(-0.2))[0] is Decision.ROLL_BACK
    kept_apart = [replace(s, arm="challenger" if int(s.user) % 2 else "champion") for s in week(0.0)]
    apart = [replace(s, value=s.value + 0.2 * (s.arm == "challenger")) for s in kept_apart]
    assert decided(apart, replace(TRIAL, experiment="trial-of-7"))[0] not in (
        Decision.PROMOTE,
        Decision.ROLL_BACK,
    )


def test_equal_versions_are_told_apart_as_rarely_as_was_set() -> None:
    decisions = [decided(week(0.0, seed=seed))[0] for seed in range(40)]
    assert decisions.count(Decision.PROMOTE) <= 5 and decisions.count(Decision.ROLL_BACK) <= 5


@pytest.mark.parametrize(("people", "runs"), [(5, 2000), (10, 2000), (20, 1000), (50, 500)])
def test_intervals_cover_whatever_the_activity_and_the_shocks_that_all_share(people: int, runs: int) -> None:
    """Pareto(1.5) activity, quiet weekends, shocks of a block that all share; 5 % to both sides together."""
    rng, blocks = np.random.default_rng(3), 21
    activity = 2 * np.minimum(rng.pareto(1.5, (runs, people, 1)) + 1, 20.0)
    sessions = rng.poisson(activity * np.repeat([1.0, 1.2, 1.2, 1.1, 0.9, 0.3, 0.3], 3))
    chance = 0.6 + rng.normal(0, 0.15, (runs, people, 1)) + rng.normal(0, 0.08, (runs, 1, blocks))
    theirs = np.where(rng.random(sessions.shape) < 0.5, sessions, 0)
    counts = np.stack([sessions - theirs, theirs], axis=-1)
    kept = rng.binomial(counts, np.clip(chance, 0, 1)[..., None])
    estimate = within(counts.sum(axis=2).astype(float), kept.sum(axis=2).astype(float))
    beyond = np.abs(estimate.value) > half_width(estimate, 0.025)
    assert beyond.mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_what_one_arm_leaves_to_the_other_withholds_a_promotion() -> None:
    decision, reason = decided(week(0.5, carried=-1.0))
    assert decision is Decision.HOLD and "directly after a change of arms +1" in reason
    withheld = [decided(week(0.5, seed=seed))[0] is not Decision.PROMOTE for seed in range(20)]
    assert sum(withheld) <= 4


def test_too_few_people_and_blocks_that_met_both_arms_are_no_comparison() -> None:
    assert "too few people met both arms, 4" in decided(week(1.0, people=4))[1]
    sessions = week(0.0)
    moved = replace(sessions[0], arm="challenger" if sessions[0].arm == "champion" else "champion")
    decision, reason = decided([moved, *sessions[1:]])
    assert decision is Decision.HOLD and reason.startswith("void: 1 blocks met both arms")
    lost = [s for s in sessions if s.arm == "challenger" or int(s.at) % 7 == 0]
    assert "find out which were lost" in decided(lost)[1]


def test_what_is_dealt_is_in_the_name_of_the_experiment() -> None:
    assert named("trial-of-7", "user") == "trial-of-7"
    blocks, other = named("trial-of-7", "block"), named("trial-of-7", "block")
    assert blocks != other and blocks.startswith(f"trial-of-7@{BLOCK_H}h.")
    hour = 3600.0
    assert unit_of(blocks, "ada", "s1", 9 * hour) == unit_of(blocks, "ada", "s2", 11 * hour)
    assert unit_of(blocks, "ada", "s1", 9 * hour) != unit_of(blocks, "ada", "s1", 12 * hour)
    assert unit_of(named("t", "session"), "ada", "s1", 0.0) == "ada/s1"
    assert unit_of("t", "ada", "s1", 0.0) == "ada"


def test_a_person_who_met_one_arm_alone_says_nothing() -> None:
    met = Met(people=["a", "a", "b"], challenger=[False, True, True], units=["1", "2", "3"])
    assert met.paired([1.0, 2.0, 100.0]).value == pytest.approx(1.0) and met.both == 1
