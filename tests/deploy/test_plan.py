"""The plan of a trial, against simulated trials that the trial's own functions judge.

Covers deploy/plan.py and deploy/plan_commands.py.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.cli import main
from ostinato.deploy.crossover import within
from ostinato.deploy.effects import effect
from ostinato.deploy.plan import FOUR_WEEKS, Prospect, ladder, plan
from ostinato.deploy.statistics import half_width

PROSPECT = Prospect(baseline=0.6, lift=0.1, users=240, sessions_a_day=2.0, correlation=0.15)


def found(prospect: Prospect, sessions_each: int, runs: int = 2000) -> float:
    """The share of simulated trials that promote at their last look; users are beta-binomial."""
    rng, users, rate = np.random.default_rng(7), prospect.users, prospect.baseline
    challenger = np.arange(users) < round(users * prospect.share)
    spread, history = 1 / prospect.correlation - 1, int(prospect.history)
    own = rng.beta(rate * spread, (1 - rate) * spread, (runs, users))
    before = rng.binomial(history, own) / history if history else np.full((runs, users), np.nan)
    now = np.clip(own + prospect.lift * challenger, 0.0, 1.0)
    good = rng.binomial(sessions_each, now).astype(float)
    counts = np.full((runs, users), float(sessions_each))
    estimate = effect(counts, good, challenger, before)
    return float(np.mean(estimate.value - half_width(estimate, prospect.alpha, 1.0) > 0))


@pytest.mark.parametrize(
    "change", [{}, {"share": 0.2, "lift": 0.125}, {"users": 160, "history": 30.0, "lift": 0.06}]
)
def test_the_planned_trial_has_the_power(change: dict[str, Any]) -> None:
    prospect = replace(PROSPECT, **change)
    size = plan(prospect)
    assert size.sessions_each is not None
    assert found(prospect, size.sessions_each) == pytest.approx(prospect.power, abs=0.04)


def test_four_weeks_with_the_users_that_they_need() -> None:
    enough = replace(PROSPECT, users=plan(replace(PROSPECT, lift=0.06)).users_needed, lift=0.06)
    size = plan(enough)
    assert size.days is not None and size.days <= FOUR_WEEKS
    fewer = plan(replace(enough, users=enough.users - 8))
    assert fewer.days is None or fewer.days > size.days


def test_a_history_makes_possible_what_is_impossible_without() -> None:
    busy = Prospect(baseline=0.6, lift=0.06, users=100, sessions_a_day=10.0)
    assert plan(busy).days is None
    known = replace(busy, history=100.0)
    assert (plan(known).sessions_each or 101) <= 100 and found(known, 100, runs=400) > 0.97


def test_no_number_of_sessions_is_enough() -> None:
    size = plan(replace(PROSPECT, users=40, lift=0.02))
    assert (size.sessions_each, size.sessions, size.days) == (None, None, None)
    assert size.users_needed > 40
    assert found(replace(PROSPECT, users=40, lift=0.02), 3000, runs=400) < 0.5


@given(st.floats(0.05, 0.9), st.floats(0.005, 0.09), st.integers(20, 100_000), st.floats(0.1, 0.9))
def test_a_larger_lift_and_more_users_never_take_longer(
    baseline: float, lift: float, users: int, share: float
) -> None:
    prospect = Prospect(baseline=baseline, lift=lift, users=users, sessions_a_day=1.0, share=share)
    days = [plan(each).days for each in (prospect, replace(prospect, users=2 * users))]
    assert days[0] is None or (days[1] is not None and days[1] <= days[0])


@pytest.mark.parametrize("claim", ["better", "suite"])
def test_a_week_within_a_team_finds_what_the_ladder_says(claim: str) -> None:
    """Twenty people of Pareto(1.5) activity, whose gains differ, in blocks of hours; at the last look."""
    team = Prospect(baseline=0.6, lift=0.06, users=20, sessions_a_day=15.0)
    rung = next(each for each in ladder(team) if each.claim == claim)
    rng, runs, blocks = np.random.default_rng(11), 2000, 21
    gain = rung.in_a_week if claim == "better" else 0.0
    habit = rng.beta(2.4, 1.6, (runs, 20, 1))  # correlates two sessions by 0.2
    busy = np.minimum(rng.pareto(1.5, (runs, 20, 1)) + 1, 20.0) * 15 * 7 / 2.7 / blocks
    sessions = rng.poisson(np.broadcast_to(busy, (runs, 20, blocks)))
    counts = np.stack([np.where(dealt := rng.random(sessions.shape) < 0.5, 0, sessions), sessions * dealt])
    gains = np.stack([np.zeros_like(habit), gain + rng.normal(0, 0.05, habit.shape)])
    kept = rng.binomial(counts, np.clip(habit + gains, 0, 1)).sum(axis=-1)
    estimate = within(np.moveaxis(counts.sum(axis=-1), 0, -1).astype(float), np.moveaxis(kept, 0, -1) * 1.0)
    level, margin = (team.alpha, 0.0) if claim == "better" else (team.alpha / 2, rung.in_a_week)
    shown = estimate.value - half_width(estimate, level, 1.0) > -margin
    assert shown.mean() == pytest.approx(0.8, abs=0.07)


def test_a_claim_that_rules_out_less_takes_less_time() -> None:
    team = Prospect(baseline=0.6, lift=0.1, users=20, sessions_a_day=15.0)
    better, suite, cheaper = ladder(team)
    assert (suite.days, suite.in_a_week) == (cheaper.days, cheaper.in_a_week)
    assert better.days is not None and better.days < (suite.days or 0) and better.works
    wide = ladder(replace(team, margin=0.2))[1]
    assert wide.days is not None and wide.days < (suite.days or 0)
    assert ladder(replace(team, lift=0.01))[0].days is None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ab", "--baseline", "0.6", "--lift", "2.28%", "--users", "20000", "--json"]) == 0
    size = json.loads(capsys.readouterr().out)
    assert size["lift"] == pytest.approx(0.01368)
    assert size["sessions"] == size["sessions_each"] * 20_000
    assert main(["plan", "ab", "--baseline", "0.6", "--lift", "2.28%", "--users", "300", "--history=0"]) == 0
    assert "On two arms, 28 days need 10,495 users." in capsys.readouterr().out
    team = ["--users", "20", "--sessions-a-day", "15"]
    for lift, claim in (("10%", "better"), ("2.28%", "suite")):
        assert main(["plan", "ab", "--baseline", "0.6", "--lift", lift, *team]) == 0
        out = capsys.readouterr().out
        assert f'assign = "block"`, claim `{claim}`' in out and "a week finds a gain of 0.093" in out
    assert main(["plan", "ab", "--baseline", "0.6", "--lift", "10%", "--users", "6"]) == 0
    assert "No claim works for 6 people of 3 sessions a day" in capsys.readouterr().out
    for lift, reason in (("a lot", "write 0.02"), ("0.5", "ends below a rate of 1"), ("-1%", "above 0")):
        assert main(["plan", "ab", "--baseline", "0.6", f"--lift={lift}"]) == 2
        assert reason in capsys.readouterr().err
