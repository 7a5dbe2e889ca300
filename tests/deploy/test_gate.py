from dataclasses import replace

import pytest

from ostinato.deploy.gate import GateError, gate
from ostinato.deploy.statistics import wilson
from ostinato.types import Decision, Report


def report(version: int, **solved: tuple[int, int]) -> Report:
    return Report(version=version, scores={split: wilson(*count) for split, count in solved.items()})


def with_rates(version: int, **rates: float) -> Report:
    return Report(version=version, scores={"seeds": wilson(500, 1000)}, rates=rates)


def test_scores_under_two_harnesses_are_not_compared() -> None:
    before, after = report(1, seeds=(9, 10)), report(2, seeds=(10, 10))
    with pytest.raises(GateError, match="version 2 under 9f: measure both under the same"):
        gate(before, replace(after, harness="9f"), margin=0.5)


def test_better_on_many_tasks_is_promoted() -> None:
    verdict = gate(report(1, seeds=(100, 288)), report(2, seeds=(150, 288)), margin=0.05)
    assert (verdict.version, verdict.decision) == (2, Decision.PROMOTE)
    assert verdict.evidence["differences"]["seeds"]["low"] > -0.05


def test_few_tasks_prove_nothing() -> None:
    verdict = gate(report(1, seeds=(10, 20)), report(2, seeds=(11, 20)), margin=0.05)
    assert verdict.decision is Decision.HOLD and "seeds" in verdict.reason


def test_worse_is_rolled_back_though_another_split_gained() -> None:
    verdict = gate(
        report(1, seeds=(200, 288), names=(100, 288)),
        report(2, seeds=(150, 288), names=(200, 288)),
        margin=0.05,
    )
    assert (
        verdict.decision is Decision.ROLL_BACK and "seeds" in verdict.reason and "names" not in verdict.reason
    )


def test_pairs_prove_with_the_same_tasks_what_counts_cannot() -> None:
    outcomes = [i % 2 == 0 for i in range(288)]
    changed = [not o if i in {3, 4, 9, 10} else o for i, o in enumerate(outcomes)]
    before, after = report(1, seeds=(sum(outcomes), 288)), report(2, seeds=(sum(changed), 288))
    assert gate(before, after, margin=0.05).decision is Decision.HOLD
    verdict = gate(before, after, margin=0.05, paired={"seeds": (outcomes, changed)})
    assert verdict.decision is Decision.PROMOTE


@pytest.mark.parametrize("rate", ["tampered", "broken"])
def test_a_guarded_rate_that_rose_rolls_back(rate: str) -> None:
    verdict = gate(with_rates(1, **{rate: 0.01}), with_rates(2, **{rate: 0.30}), margin=0.2)
    assert verdict.decision is Decision.ROLL_BACK and rate in verdict.reason


def test_other_rates_are_free_to_move() -> None:
    verdict = gate(with_rates(1, ran_tests=0.1, tampered=0.02), with_rates(2, ran_tests=0.9), margin=0.2)
    assert verdict.decision is Decision.PROMOTE


def test_splits_measured_on_one_side_only_are_named() -> None:
    verdict = gate(report(1, seeds=(9, 10), names=(1, 2)), report(2, seeds=(9, 10)), margin=0.5)
    assert verdict.evidence["not_compared"] == ["names"]


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(GateError, match="no split in common"):
        gate(report(1, seeds=(1, 2)), report(2, names=(1, 2)), margin=0.1)
