"""A trial between two arms of users.

Covers deploy/abtest.py and deploy/terms.py.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from ostinato.deploy.abtest import judge, still_needed
from ostinato.deploy.statistics import Estimate, half_width
from ostinato.deploy.terms import Attendance, Trial, TrialSession
from ostinato.types import Decision, Verdict

TRIAL = Trial(experiment="e1", share=0.5, horizon=2000, alpha=0.02)
CHEAPER = replace(TRIAL, claim="cheaper", margin=0.1)


def traffic(arm: str, mean: float, *, users: int = 50, each: int = 20, **more: Any) -> list[TrialSession]:
    rng = random.Random(f"{arm}{more.get('seed', 0)}")
    return [
        TrialSession(
            arm=arm,
            user=f"{arm}{user}",
            at=rng.random(),
            value=rng.gauss(mean + habit, 0.3),
            tokens=rng.gauss(more.get("tokens", 100.0), 10.0),
            harms={"complaints": float(rng.random() < more.get("complaints", 0.05))},
        )
        for user in range(users)
        for habit in [rng.gauss(0, 0.05)]
        for _ in range(each)
    ]


def verdict(old: float, new: float, trial: Trial = TRIAL, **challenger: Any) -> Verdict:
    return judge(5, trial, traffic("champion", old) + traffic("challenger", new, **challenger))


@pytest.mark.parametrize(
    ("new", "decision"),
    [(0.8, Decision.PROMOTE), (0.5, Decision.INCONCLUSIVE), (0.2, Decision.ROLL_BACK)],
)
def test_decision_follows_the_effect(new: float, decision: Decision) -> None:
    result = verdict(0.5, new)
    assert (result.version, result.decision) == (5, decision)


def test_an_equal_challenger_is_not_better_however_many_sessions_there_are() -> None:
    for seed in range(20):
        result = verdict(0.5, 0.5, seed=seed)
        assert result.decision is not Decision.PROMOTE
        assert not result.decision.promotes or result.evidence["promoting"]["low"] > 0


def test_cheaper_is_a_verdict_of_its_own_and_must_be_claimed() -> None:
    assert verdict(0.5, 0.5, CHEAPER, tokens=60.0).decision is Decision.PROMOTE_CHEAPER
    assert "no worse by 0.1 and cheaper" in verdict(0.5, 0.5, CHEAPER, tokens=60.0).reason
    assert verdict(0.5, 0.5, TRIAL, tokens=60.0).decision is Decision.INCONCLUSIVE
    assert verdict(0.5, 0.5, CHEAPER, tokens=100.0).decision is Decision.INCONCLUSIVE
    assert verdict(0.5, 0.4, CHEAPER, tokens=60.0).decision is not Decision.PROMOTE_CHEAPER
    assert verdict(0.5, 0.8, CHEAPER).decision is Decision.PROMOTE  # better needs no claim


def test_better_on_the_suite_needs_no_gain_with_people_and_no_loss_beyond_the_margin() -> None:
    claimed = replace(CHEAPER, claim="suite")
    shown = verdict(0.5, 0.5, claimed)
    assert shown.decision is Decision.PROMOTE and "better on the suite and no worse by 0.1" in shown.reason
    assert verdict(0.5, 0.5, TRIAL).decision is Decision.INCONCLUSIVE
    assert not verdict(0.5, 0.4, claimed).decision.promotes


def test_two_ways_to_a_promotion_share_the_chance_of_a_false_one() -> None:
    """An equal challenger that claims to be cheaper, in large trials in which no worse is beyond doubt.

    Reward and tokens do not depend on each other; the level is 0.2 so that few trials show it.
    """
    terms, rng = replace(CHEAPER, alpha=0.2, margin=5.0), np.random.default_rng(3)
    promoted = 0
    for _ in range(300):
        users = [("champion", f"a{n}") for n in range(60)] + [("challenger", f"b{n}") for n in range(60)]
        made = [
            TrialSession(arm=arm, user=user, at=n, value=rng.normal(), tokens=rng.normal(100.0, 9.0))
            for n, (arm, user) in enumerate(users)
        ]
        promoted += judge(5, replace(terms, horizon=len(made)), made).decision.promotes
    assert promoted <= binom.ppf(0.999, 300, 0.2)


def test_a_trial_that_is_closed_early_is_inconclusive_and_says_what_it_needs() -> None:
    short = traffic("champion", 0.5) + traffic("challenger", 0.51)
    found = judge(5, replace(TRIAL, horizon=len(short) + 10), short, closed=True)
    assert found.decision is Decision.INCONCLUSIVE and found.evidence["needed"] > 2000


def test_a_margin_without_its_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="every claim but 'better' has a margin"):
        replace(TRIAL, margin=0.1)


def test_the_evidence_holds_the_grounds_of_the_decision() -> None:
    evidence = verdict(0.5, 0.5).evidence
    assert evidence["users"] == {"champion": 50, "challenger": 50}
    assert (evidence["sessions"], evidence["alpha"], evidence["experiment"]) == (2000, 0.02, "e1")
    bounds = evidence["promoting"]
    assert bounds["low"] < bounds["estimate"] < bounds["high"]


def test_sessions_after_the_horizon_change_nothing() -> None:
    sessions = traffic("champion", 0.5) + traffic("challenger", 0.5)
    later = [replace(o, at=o.at + 10, value=5.0) for o in traffic("challenger", 0.5)]
    assert judge(5, TRIAL, sessions + later).evidence == judge(5, TRIAL, sessions).evidence


def test_early_looks_need_more_evidence() -> None:
    early = replace(TRIAL, horizon=20_000)
    assert verdict(0.5, 0.6).decision is Decision.PROMOTE
    assert verdict(0.5, 0.6, early).decision is Decision.HOLD


def test_few_users_hold() -> None:
    result = judge(5, TRIAL, traffic("champion", 0.5) + traffic("challenger", 0.9, users=7, each=50))
    assert result.decision is Decision.HOLD


def test_an_arm_without_users_holds() -> None:
    result = judge(5, replace(TRIAL, share=0.1), traffic("champion", 0.5, users=9))
    assert result.decision is Decision.HOLD and "challenger has 0" in result.reason


def test_arms_whose_sizes_contradict_the_share_void_the_trial() -> None:
    sessions = traffic("champion", 0.5, users=60) + traffic("challenger", 0.9, users=20)
    result = judge(5, TRIAL, sessions)
    assert result.decision is Decision.HOLD and "20 of 80 users" in result.evidence["void"]
    assert judge(5, replace(TRIAL, share=0.25), sessions).decision is Decision.PROMOTE


def test_a_user_on_both_arms_voids_the_trial() -> None:
    sessions = traffic("champion", 0.5) + traffic("challenger", 0.9)
    stray = replace(sessions[0], arm="challenger")
    assert "met both arms" in judge(5, TRIAL, [*sessions, stray]).evidence["void"]


def test_the_effect_of_users_habits_before_the_trial_is_taken_out() -> None:
    rng = random.Random(1)
    habits = {f"{arm}{user}": rng.gauss(0, 0.5) for arm in ("champion", "challenger") for user in range(50)}
    plain = [
        replace(o, value=o.value + habits[o.user])
        for o in traffic("champion", 0.5) + traffic("challenger", 0.5)
    ]
    wide, narrow = (judge(5, TRIAL, plain, before).evidence["promoting"] for before in ({}, habits))
    assert narrow["high"] - narrow["low"] < 0.3 * (wide["high"] - wide["low"])
    assert abs(narrow["estimate"]) < 0.05


def test_newcomers_are_compared_beside_known_users() -> None:
    sessions = traffic("champion", 0.5) + traffic("challenger", 0.8)
    before = {f"champion{user}": user / 50 for user in range(20)}
    assert judge(5, TRIAL, sessions, before).decision is Decision.PROMOTE


RAIL = replace(TRIAL, guardrails={"complaints": 0.1})


@pytest.mark.parametrize(
    ("complaints", "decision"),
    [(0.5, Decision.ROLL_BACK), (0.15, Decision.HOLD), (0.05, Decision.PROMOTE)],
)
def test_a_guardrail_decides_by_its_interval(complaints: float, decision: Decision) -> None:
    result = verdict(0.5, 0.9, RAIL, complaints=complaints)
    assert result.decision is decision
    assert decision is Decision.PROMOTE or "complaints" in result.reason


def test_the_limit_of_a_guardrail_goes_with_its_baseline() -> None:
    """Eight points more are far beyond a quarter more of 5 %, and within a quarter more of 50 %."""
    rail = replace(TRIAL, guardrails={"complaints": 0.005}, scales={"complaints": 1.25})

    def told(before: float, after: float) -> Verdict:
        old, new = traffic("champion", 0.5, complaints=before), traffic("challenger", 0.9, complaints=after)
        return judge(5, rail, old + new)

    assert told(0.05, 0.13).decision is Decision.ROLL_BACK
    assert "above 1.25 times the champion's" in told(0.05, 0.13).reason
    assert told(0.5, 0.58).decision is Decision.PROMOTE


def attending(arm: str, users: int, sessions: float, gone: float, seed: int = 0) -> list[Attendance]:
    """Users whose sessions are Pareto(1.5)-distributed."""
    rng = np.random.default_rng([seed, len(arm)])
    times = np.ceil(sessions * (rng.pareto(1.5, users) + 1)).astype(int)
    away = rng.random(users) < gone
    return [
        Attendance(arm=arm, user=f"{arm}{n}", sessions=int(times[n]), gone=float(away[n]))
        for n in range(users)
    ]


PEOPLES = replace(
    TRIAL, guardrails={"sessions": 0.223, "returning": 0.005}, scales={"returning": 1.25}, harm=0.05
)


@pytest.mark.parametrize(
    ("sessions", "gone", "rail"), [(2.0, 0.3, "sessions"), (5.0, 0.6, "returning"), (5.0, 0.3, "")]
)
def test_people_who_stay_away_are_counted_though_they_have_no_reward(
    sessions: float, gone: float, rail: str
) -> None:
    came = attending("champion", 300, 5.0, 0.3) + attending("challenger", 300, sessions, gone)
    result = judge(5, PEOPLES, traffic("champion", 0.5) + traffic("challenger", 0.9), attendance=came)
    assert result.decision is (Decision.ROLL_BACK if rail else Decision.PROMOTE)
    assert f"guardrail: {rail}" in result.reason if rail else "guardrail" not in result.reason
    young = [replace(each, gone=None) for each in came]
    looked = judge(5, PEOPLES, traffic("champion", 0.5) + traffic("challenger", 0.9), attendance=young)
    assert set(looked.evidence["rails"]) == {"sessions"}


def test_equal_arms_of_pareto_activity_are_rolled_back_at_most_as_often_as_said() -> None:
    """Users come at rates without a variance and leave for good, and there are five looks.

    The chance is 0.4 for the reward and both guardrails together, of which 0.2 is theirs.
    """
    rng, rolled_back, trials = np.random.default_rng(8), 0, 40
    terms = replace(PEOPLES, horizon=40, harm=0.4, scales={}, guardrails={"sessions": 0.0, "returning": 0.0})
    sessions = [
        TrialSession(arm=arm, user=f"{arm}{n}", at=n / 2, value=0.0, tokens=1.0)
        for arm in ("champion", "challenger")
        for n in range(20)
    ]
    for _ in range(trials):
        rates, stays = np.minimum(0.5 * (rng.pareto(1.5, 60) + 1), 40), rng.exponential(12.0, 60)
        begun = [np.cumsum(rng.exponential(1 / rate, 400)) for rate in rates]
        begun = [times[times < min(stay, 10)] for times, stay in zip(begun, stays, strict=True)]
        challenger = rng.random(60) < 0.5
        for now in (2.0, 4.0, 6.0, 8.0, 10.0):
            came = []
            for user, times in enumerate(begun):
                seen = times[times < now]
                away = (np.diff(seen, append=99.0) > 1)[seen < now - 1]
                told = {"gone": float(away.mean()) if len(away) else None, "sessions": len(seen)}
                arm = "challenger" if challenger[user] else "champion"
                came += [Attendance(arm=arm, user=str(user), **told)] * bool(len(seen))  # type: ignore[arg-type]
            looked = judge(5, terms, [each for each in sessions if each.at < now], attendance=came)
            if looked.decision is Decision.ROLL_BACK:
                rolled_back += 1
                break
    assert 0 < rolled_back <= binom.ppf(0.999, trials, 0.2)


def test_the_last_line_has_the_relative_changes() -> None:
    def told(arm: str, mean: float, latency: float) -> list[TrialSession]:
        rng = random.Random(arm)
        made = traffic(arm, mean)
        return [
            replace(each, gains={"kept": float(rng.random() < mean), "latency": latency}) for each in made
        ]

    result = judge(5, TRIAL, told("champion", 0.5, 20.0) + told("challenger", 0.9, 18.0))
    said, last = result.reason.split("\n")
    assert said.startswith("better: ") and last.endswith("latency -10.00 % [-10.00, -10.00]")
    kept = result.evidence["gains"]["kept"]
    assert last.startswith(f"kept {100 * kept['estimate']:+.2f} % [") and kept["low"] < 0.8 < kept["high"]


def shifted(arm: str, users: int, means: Callable[[int], float], each: Callable[[int], int]) -> Any:
    rng = random.Random(arm)
    return [
        TrialSession(arm=arm, user=f"{arm}{u}", at=rng.random(), value=rng.gauss(means(u), 0.1), tokens=1.0)
        for u in range(users)
        for _ in range(each(u))
    ]


@pytest.mark.parametrize(
    ("loss", "each", "doubt"),
    [
        (0.06, 13, "mean over sessions"),  # the busiest tenth has 59 % of the sessions
        (0.06, 6, "heaviest tenth"),  # it has 40 %, so the mean over sessions is about level
        (0.0, 6, "heaviest tenth"),  # it neither gains nor loses
    ],
)
def test_a_heavy_tenth_that_loses_withholds_the_promotion(loss: float, each: int, doubt: str) -> None:
    def busy(user: int) -> int:
        return each if user < 40 else 1

    old = shifted("champion", 400, lambda user: 0.5, busy)
    new = shifted("challenger", 400, lambda user: 0.5 - loss if user < 40 else 0.54, busy)
    trial = replace(TRIAL, horizon=len(old) + len(new))
    result = judge(5, trial, old + new)
    assert result.decision is Decision.HOLD and "withheld" in result.reason and doubt in result.reason
    assert result.evidence["promoting"]["low"] > 0 > result.evidence["heaviest"]["low"]
    gained = shifted("challenger", 400, lambda user: 0.54, busy)
    assert judge(5, trial, old + gained).decision is Decision.PROMOTE


def test_an_inconclusive_trial_says_how_many_sessions_are_needed() -> None:
    ahead = judge(5, TRIAL, traffic("champion", 0.5) + traffic("challenger", 0.51))
    assert ahead.decision is Decision.INCONCLUSIVE
    assert ahead.evidence["needed"] > 2000 and f"{ahead.evidence['needed']:,} sessions" in ahead.reason
    behind = judge(5, TRIAL, traffic("champion", 0.5) + traffic("challenger", 0.49))
    assert behind.evidence["needed"] is None and "not ahead" in behind.reason
    young = judge(5, replace(TRIAL, horizon=9000), traffic("champion", 0.5) + traffic("challenger", 0.5))
    assert young.decision is Decision.HOLD and "needed" not in young.evidence


def test_a_trial_of_the_needed_size_promotes_four_times_in_five() -> None:
    rng = np.random.default_rng(1)
    estimate = Estimate(value=np.array(0.1), error=np.array(0.09), freedom=np.array(98.0))
    times = still_needed(estimate, 0.02)
    assert times is not None and times > 1
    error = 0.09 / times**0.5
    drawn = Estimate(
        value=rng.normal(0.1, error, 4000), error=np.full(4000, error), freedom=np.full(4000, 98.0)
    )
    shown = drawn.value - half_width(drawn, 0.02, 1.0) > 0
    assert 0.77 < shown.mean() < 0.83
