import random
from dataclasses import replace
from typing import Any

import pytest

from ostinato.deploy.abtest import Guardrail, Observation, judge
from ostinato.types import Decision, Verdict

ARMS: dict[str, Any] = {"champion": "old", "challenger": "new"}


def traffic(arm: str, mean: float, *, users: int = 50, each: int = 20, seed: int = 0) -> list[Observation]:
    rng = random.Random(f"{arm}{seed}")
    return [
        Observation(arm=arm, user=f"{arm}{user}", value=rng.gauss(mean + habit, 0.3))
        for user in range(users)
        for habit in [rng.gauss(0, 0.05)]
        for _ in range(each)
    ]


def verdict(old: float, new: float, **settings: Any) -> Verdict:
    return judge(5, traffic("old", old) + traffic("new", new), margin=0.1, **ARMS, **settings)


@pytest.mark.parametrize(
    ("new", "decision"),
    [(0.8, Decision.PROMOTE), (0.5, Decision.PROMOTE), (0.2, Decision.ROLL_BACK)],
)
def test_decision_follows_the_effect(new: float, decision: Decision) -> None:
    found = verdict(0.5, new)
    assert (found.version, found.decision) == (5, decision)


def test_evidence_holds_what_the_decision_rests_on() -> None:
    evidence = verdict(0.5, 0.5).evidence
    assert evidence["users"] == 100 and evidence["observations"] == 2000
    assert evidence["difference"]["low"] < evidence["difference"]["estimate"] < evidence["difference"]["high"]


def test_too_little_traffic_holds() -> None:
    few = [o for arm, mean in (("old", 0.5), ("new", 0.5)) for o in traffic(arm, mean, users=10, each=2)]
    found = judge(5, few, margin=0.1, **ARMS)
    assert found.decision is Decision.HOLD and "not yet shown" in found.reason


def test_what_was_to_be_expected_is_taken_out() -> None:
    rng = random.Random(1)
    plain, adjusted = [], []
    for observation in traffic("old", 0.5) + traffic("new", 0.5):
        hard = rng.choice([0.0, 1.0])
        plain.append(replace(observation, value=observation.value - hard))
        adjusted.append(replace(plain[-1], expected=-hard))
    wide, narrow = (judge(5, each, margin=0.1, **ARMS).evidence["difference"] for each in (plain, adjusted))
    assert narrow["high"] - narrow["low"] < 0.7 * (wide["high"] - wide["low"])
    assert abs(narrow["estimate"]) < 0.05


def test_few_users_hold() -> None:
    found = judge(5, traffic("old", 0.5) + traffic("new", 0.9, users=4, each=500), margin=0.1, **ARMS)
    assert found.decision is Decision.HOLD and "4 users" in found.reason


def test_an_arm_nobody_used_holds() -> None:
    assert judge(5, traffic("old", 0.5), margin=0.1, **ARMS).decision is Decision.HOLD


def complaints(old: float, new: float) -> Guardrail:
    return Guardrail(name="complaints", observations=traffic("old", old) + traffic("new", new), limit=0.1)


def test_a_violated_guardrail_rolls_back_whatever_the_gain() -> None:
    found = verdict(0.5, 0.9, guardrails=[complaints(0.1, 0.5)])
    assert found.decision is Decision.ROLL_BACK and "complaints" in found.reason


def test_a_guardrail_in_doubt_holds() -> None:
    assert verdict(0.5, 0.9, guardrails=[complaints(0.1, 0.215)]).decision is Decision.HOLD


def test_a_guardrail_within_its_limit_lets_pass() -> None:
    assert verdict(0.5, 0.9, guardrails=[complaints(0.1, 0.1)]).decision is Decision.PROMOTE
