from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.deploy.budget import TOTAL, next_alpha
from ostinato.store import Store
from ostinato.types import Decision, Verdict


def trial(number: int, alpha: float, decision: Decision = Decision.HOLD) -> Verdict:
    return Verdict(
        version=number,
        decision=decision,
        reason="",
        evidence={"experiment": f"e{number}", "alpha": alpha},
    )


def test_all_trials_together_spend_no_more_than_the_total() -> None:
    verdicts: list[Verdict] = []
    for number in range(2000):
        verdicts.append(trial(number, next_alpha(verdicts)))
    assert 0.9 * TOTAL < sum(v.evidence["alpha"] for v in verdicts) < TOTAL


def test_each_trial_gets_less_until_one_promotes() -> None:
    first = next_alpha([])
    held = [trial(1, first)]
    assert next_alpha(held) < first
    won = [trial(1, first, Decision.PROMOTE)]
    assert next_alpha(won) == pytest.approx(first + next_alpha(held))
    assert next_alpha([*won, trial(2, 0.01)]) < first


@given(st.lists(st.sampled_from([Decision.HOLD, Decision.ROLL_BACK, Decision.PROMOTE]), max_size=40))
def test_true_null_hypotheses_spend_less_than_the_total_whatever_was_decided(
    decisions: list[Decision],
) -> None:
    """The level that a promotion passes on counts once: only trials that did not promote add up."""
    verdicts: list[Verdict] = []
    for number, decision in enumerate(decisions):
        verdicts.append(trial(number, next_alpha(verdicts), decision))
    assert sum(v.evidence["alpha"] for v in verdicts if not v.decision.promotes) < TOTAL


def test_several_verdicts_on_one_trial_count_once_and_other_verdicts_never() -> None:
    gate = Verdict(version=1, decision=Decision.ADMIT, reason="", evidence={"alpha": 0.05})
    one = next_alpha([trial(1, 0.02)])
    assert next_alpha([gate, trial(1, 0.02), gate, trial(1, 0.02)]) == one


def test_the_count_survives_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.add_verdict(trial(1, next_alpha(store.verdicts())))
    expected = next_alpha(store.verdicts())
    store.close()
    assert next_alpha(Store.open(tmp_path / "store.db").verdicts()) == expected < next_alpha([])
