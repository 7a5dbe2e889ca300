"""A shadow refuses what no person should meet, and rarely anything else."""

from math import isnan
from random import Random
from typing import Any

import pytest

from ostinato.deploy.shadow import ShadowAnswer, ShadowPair, compare_shadow
from ostinato.types import Decision, Verdict


def answer(rng: Random, **about: Any) -> ShadowAnswer:
    tokens = max(1, int(rng.lognormvariate(4.0, 0.7) * about.get("length", 1.0)))
    return ShadowAnswer(
        failed=rng.random() < about.get("failed", 0.0),
        unreadable=rng.random() < about.get("unreadable", 0.03),
        cut=rng.random() < about.get("cut", 0.02),
        seconds=0.02 * tokens * rng.lognormvariate(0.0, 0.3) * about.get("slower", 1.0),
        tokens=tokens,
    )


def shadow(seed: int = 1, requests: int = 60, **candidate: Any) -> Verdict:
    rng = Random(seed)
    pairs = [
        ShadowPair(user=f"p{number // 3}", champion=answer(rng), candidate=answer(rng, **candidate))
        for number in range(requests)
    ]
    return compare_shadow(7, pairs)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ({"failed": 0.5}, "failed"),
        ({"unreadable": 0.6}, "unreadable"),
        ({"cut": 0.7}, "cut"),
        ({"slower": 3.0}, "latency"),
        ({"length": 6.0}, "length"),
    ],
)
def test_a_candidate_that_breaks_is_refused(harm: dict[str, float], word: str) -> None:
    verdict = shadow(**harm)
    assert verdict.decision is Decision.ROLL_BACK and word in verdict.reason


def test_a_candidate_like_the_champion_goes_on() -> None:
    decisions = [shadow(seed).decision for seed in range(100)]
    assert decisions.count(Decision.ROLL_BACK) <= 4  # 1 % is stated


def test_a_failed_answer_has_no_length_and_no_latency() -> None:
    failed = ShadowAnswer(failed=True)
    assert failed.rate("failed") == 1.0
    assert all(map(isnan, map(failed.rate, ("latency", "length", "cut", "unreadable"))))


def test_a_shadow_without_requests_says_so() -> None:
    verdict = compare_shadow(7, [])
    assert verdict.decision is Decision.ADMIT and "0 answers" in verdict.reason
