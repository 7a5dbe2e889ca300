import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.deploy.abtest import ALIKE, Claim, Guardrail, Observation, Trial, effect, judge
from ostinato.types import Decision, Verdict

TRIAL = Trial(experiment="e1", share=0.5, horizon=2000, alpha=0.02)
CHEAPER = replace(TRIAL, claim=Claim.CHEAPER, margin=0.1)


def traffic(arm: str, mean: float, *, users: int = 50, each: int = 20, **more: Any) -> list[Observation]:
    rng = random.Random(f"{arm}{more.get('seed', 0)}")
    return [
        Observation(
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
    [(0.8, Decision.PROMOTE), (0.5, Decision.HOLD), (0.2, Decision.ROLL_BACK)],
)
def test_decision_follows_the_effect(new: float, decision: Decision) -> None:
    found = verdict(0.5, new)
    assert (found.version, found.decision) == (5, decision)


def test_equal_is_not_better_however_much_was_seen() -> None:
    for seed in range(20):
        found = verdict(0.5, 0.5, seed=seed)
        assert found.decision is not Decision.PROMOTE
        assert not found.decision.promotes or found.evidence["promoting"]["low"] > 0


def test_cheaper_is_a_verdict_of_its_own_and_has_to_be_claimed() -> None:
    assert verdict(0.5, 0.5, CHEAPER, tokens=60.0).decision is Decision.PROMOTE_CHEAPER
    assert "no worse by 0.1 and cheaper" in verdict(0.5, 0.5, CHEAPER, tokens=60.0).reason
    assert verdict(0.5, 0.5, TRIAL, tokens=60.0).decision is Decision.HOLD
    assert verdict(0.5, 0.5, CHEAPER, tokens=100.0).decision is Decision.HOLD  # no worse, but no cheaper
    assert verdict(0.5, 0.4, CHEAPER, tokens=60.0).decision is not Decision.PROMOTE_CHEAPER
    assert verdict(0.5, 0.8, CHEAPER).decision is Decision.PROMOTE  # better is better


def test_a_margin_without_its_claim_is_refused() -> None:
    with pytest.raises(ValueError, match="goes with the claim 'cheaper' alone"):
        replace(TRIAL, margin=0.1)


def test_evidence_holds_what_the_decision_rests_on() -> None:
    evidence = verdict(0.5, 0.5).evidence
    assert evidence["users"] == {"champion": 50, "challenger": 50}
    assert (evidence["sessions"], evidence["alpha"], evidence["experiment"]) == (2000, 0.02, "e1")
    bounds = evidence["promoting"]
    assert bounds["low"] < bounds["estimate"] < bounds["high"]


def test_after_its_horizon_a_trial_no_longer_changes() -> None:
    seen = traffic("champion", 0.5) + traffic("challenger", 0.5)
    later = [replace(o, at=o.at + 10, value=5.0) for o in traffic("challenger", 0.5)]
    assert judge(5, TRIAL, seen + later).evidence == judge(5, TRIAL, seen).evidence


def test_early_looks_ask_for_more() -> None:
    early = replace(TRIAL, horizon=20_000)
    assert verdict(0.5, 0.6).decision is Decision.PROMOTE
    assert verdict(0.5, 0.6, early).decision is Decision.HOLD


def test_few_users_hold() -> None:
    found = judge(5, TRIAL, traffic("champion", 0.5) + traffic("challenger", 0.9, users=7, each=50))
    assert found.decision is Decision.HOLD


def test_an_arm_nobody_used_holds() -> None:
    found = judge(5, replace(TRIAL, share=0.1), traffic("champion", 0.5, users=9))
    assert found.decision is Decision.HOLD and "challenger has 0" in found.reason


def test_arms_of_another_size_than_was_set_void_the_trial() -> None:
    seen = traffic("champion", 0.5, users=60) + traffic("challenger", 0.9, users=20)
    found = judge(5, TRIAL, seen)
    assert found.decision is Decision.HOLD and "20 of 80 users" in found.evidence["void"]
    assert judge(5, replace(TRIAL, share=0.25), seen).decision is Decision.PROMOTE


def test_a_user_on_both_arms_voids_the_trial() -> None:
    seen = traffic("champion", 0.5) + traffic("challenger", 0.9)
    stray = replace(seen[0], arm="challenger")
    assert "met both arms" in judge(5, TRIAL, [*seen, stray]).evidence["void"]


def test_what_was_known_of_users_before_is_taken_out() -> None:
    rng = random.Random(1)
    habits = {f"{arm}{user}": rng.gauss(0, 0.5) for arm in ("champion", "challenger") for user in range(50)}
    plain = [
        replace(o, value=o.value + habits[o.user])
        for o in traffic("champion", 0.5) + traffic("challenger", 0.5)
    ]
    wide, narrow = (judge(5, TRIAL, plain, before).evidence["promoting"] for before in ({}, habits))
    assert narrow["high"] - narrow["low"] < 0.3 * (wide["high"] - wide["low"])
    assert abs(narrow["estimate"]) < 0.05


def test_newcomers_are_compared_beside_those_who_are_known() -> None:
    seen = traffic("champion", 0.5) + traffic("challenger", 0.8)
    before = {f"champion{user}": user / 50 for user in range(20)}
    assert judge(5, TRIAL, seen, before).decision is Decision.PROMOTE


RAIL = replace(TRIAL, guardrails=(Guardrail(name="complaints", limit=0.1),))


@pytest.mark.parametrize(
    ("complaints", "decision"),
    [(0.5, Decision.ROLL_BACK), (0.14, Decision.HOLD), (0.05, Decision.PROMOTE)],
)
def test_a_guardrail_rolls_back_holds_or_lets_pass_by_its_interval(
    complaints: float, decision: Decision
) -> None:
    found = verdict(0.5, 0.9, RAIL, complaints=complaints)
    assert found.decision is decision
    assert decision is Decision.PROMOTE or "complaints" in found.reason


def numbers(draw: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    users = draw(st.integers(4, 12))
    counts = np.array(draw(st.lists(st.integers(0, 9), min_size=users, max_size=users)), dtype=float)
    values = np.array(draw(st.lists(st.floats(-5, 5), min_size=users, max_size=users)))
    challenger = np.arange(users) % 2 == 0
    return counts, values * counts, challenger


@given(st.data())
def test_many_looks_at_once_are_the_looks_one_by_one(data: st.DataObject) -> None:
    rows = [numbers(data.draw)]
    counts, sums, challenger = rows[0]
    halves = np.stack([counts // 2, counts])
    totals = np.stack([sums / 2, sums])
    none = np.full(len(counts), np.nan)
    both = effect(halves, totals, challenger, none)
    for index in (0, 1):
        one = effect(halves[index], totals[index], challenger, none)
        assert one.value == pytest.approx(both.value[index], nan_ok=True)
        assert one.error == pytest.approx(both.error[index], nan_ok=True)


def test_a_busy_user_is_not_worth_more_than_so_many_quiet_ones() -> None:
    counts = np.array([1.0] * 19 + [10_000.0] + [1.0] * 20)
    sums = np.array([0.0] * 19 + [10_000.0] + [0.0] * 20)
    found = effect(counts, sums, np.arange(40) < 20, np.full(40, np.nan))
    weight = 1 / ALIKE
    assert found.value == pytest.approx(weight / (weight + 19), rel=1e-2)
    assert found.value < 2 * found.error  # one person decides nothing


def test_a_small_arm_in_which_nothing_happened_shows_nothing() -> None:
    counts, challenger = np.full(50, 4.0), np.arange(50) < 10
    sums = np.where(np.isin(np.arange(50), [12, 20, 30, 44]), 1.0, 0.0)
    found = effect(counts, sums, challenger, np.full(50, np.nan))
    assert found.value < 0 and found.value + 1.96 * found.error > 0
