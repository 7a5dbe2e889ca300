"""A suite beside the held-out tasks: it vetoes, and what it must show it must show."""

import numpy as np
import pytest
from tests.deploy.test_gate import measured

from ostinato.deploy.gate import GateError, gate
from ostinato.deploy.statistics import Estimate
from ostinato.deploy.suite import SHOWN, VETOES, SuiteChanges
from ostinato.types import Decision, Verdict


def estimate(value: float, error: float = 0.01) -> Estimate:
    return Estimate(value=np.array(value), error=np.array(error), freedom=np.array(40.0))


def verdict(solved: float = 0.0, error: float = 0.01, **measures: float) -> Verdict:
    named = {name.replace("__", "/").replace("_by_", " by "): estimate(v) for name, v in measures.items()}
    suite = SuiteChanges(suite="mined 1", splits={"mined": estimate(solved, error)}, measures=named)
    return gate(measured(1), measured(2, 0.1), margin=0.05, suite=suite)


def test_a_suite_that_agrees_admits_and_is_named() -> None:
    result = verdict(correct__broken=0.0, efficiency__tokens_out=900.0)
    assert result.decision is Decision.ADMIT and result.evidence["suite"] == "mined 1"
    assert result.evidence["axes"]["efficiency/tokens_out"]["estimate"] == 900.0


def test_a_loss_on_the_suite_alone_rolls_back() -> None:
    result = verdict(-0.1)
    assert result.decision is Decision.ROLL_BACK and "mined of the suite lost" in result.reason


def test_a_candidate_that_claims_to_surpass_the_suite_must_show_it() -> None:
    before, after = measured(1), measured(2, 0.1)
    for solved, decision in ((0.1, Decision.ADMIT), (0.01, Decision.HOLD)):
        suite = SuiteChanges(suite="mined 1", splits={"mined": estimate(solved, 0.02)}, measures={})
        result = gate(before, after, margin=0.05, suite=suite, surpass=True)
        assert result.decision is decision
    assert "the suite may be solved no more" in result.reason
    with pytest.raises(GateError, match=r"set bench\.suite"):
        gate(before, after, margin=0.05, surpass=True)


def test_a_suite_too_small_to_show_anything_holds() -> None:
    result = verdict(0.0, error=0.2)
    assert result.decision is Decision.HOLD and "the suite may have lost 0.05" in result.reason


@pytest.mark.parametrize("name", [*SHOWN, *VETOES])
def test_every_guarded_measure_vetoes_in_its_own_direction(name: str) -> None:
    worse = 3 * (SHOWN | VETOES)[name]
    key = name.replace("/", "__")
    assert verdict(**{key: worse}).decision is Decision.ROLL_BACK
    assert verdict(**{key: -worse}).decision is Decision.ADMIT


def test_a_behaviour_that_may_have_changed_holds_and_a_quality_that_may_have_does_not() -> None:
    assert verdict(correct__tampered=0.045).decision is Decision.HOLD
    assert verdict(quality__survives=-0.145).decision is Decision.ADMIT


def test_a_judge_that_finds_the_code_worse_vetoes() -> None:
    assert verdict(quality__scope_by_model=-0.3).decision is Decision.ROLL_BACK


def test_equal_candidates_are_rarely_rolled_back_whatever_the_number_of_measures() -> None:
    rng, names = np.random.default_rng(3), [*SHOWN, *VETOES]
    limits = SHOWN | VETOES

    def drawn() -> SuiteChanges:
        """Return measures that are just at their limits, the worst case of the level."""
        return SuiteChanges(
            suite="s",
            splits={"a": estimate(rng.normal(0, 0.01)), "b": estimate(rng.normal(0, 0.01))},
            measures={name: estimate(limits[name] + rng.normal(0, 0.01)) for name in names},
        )

    before, after = measured(1), measured(2, 0.1)
    wrong = sum(
        gate(before, after, margin=0.05, suite=drawn()).decision is Decision.ROLL_BACK for _ in range(200)
    )
    assert wrong <= 20  # 5 % of 200, with four standard deviations to spare
