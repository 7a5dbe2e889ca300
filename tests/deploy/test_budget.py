from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from ostinato.deploy import budget
from ostinato.deploy.budget import FALSE_SHARE, TOTAL, BudgetRule, chain_of, next_alpha
from ostinato.store import Store
from ostinato.types import Decision, Verdict

RULES = pytest.mark.parametrize("rule", list(BudgetRule))
FAMILYWISE, DISCOVERIES = BudgetRule.FAMILYWISE, BudgetRule.DISCOVERIES


def trial(
    number: int, alpha: float, decision: Decision = Decision.HOLD, chain: str = "discoveries-1"
) -> Verdict:
    evidence = {"experiment": f"e{number}", "alpha": alpha, "chain": chain}
    return Verdict(version=number, decision=decision, reason="", evidence=evidence)


def judged(rule: BudgetRule, decisions: Sequence[Decision]) -> list[Verdict]:
    """The verdicts of trials that end so one after another, each at its level."""
    verdicts: list[Verdict] = []
    for number, decision in enumerate(decisions):
        verdicts.append(trial(number, next_alpha(verdicts, rule), decision, chain_of(verdicts, rule)))
    return verdicts


@RULES
def test_trials_that_promote_nobody_spend_no_more_than_the_total_together(rule: BudgetRule) -> None:
    spent = [verdict.evidence["alpha"] for verdict in judged(rule, [Decision.HOLD] * 120)]
    assert 0.9 * TOTAL < sum(spent) < TOTAL and spent == sorted(spent, reverse=True)


@given(st.lists(st.sampled_from([Decision.HOLD, Decision.ROLL_BACK, Decision.PROMOTE]), max_size=40))
def test_the_levels_never_exceed_what_each_rule_may_spend(decisions: list[Decision]) -> None:
    """For `discoveries` the sum is at most the share of false ones times the promotions, which bounds them;
    for `familywise` a level that a promotion passes on counts once."""
    levels = [verdict.evidence["alpha"] for verdict in judged(DISCOVERIES, decisions)]
    for seen in range(1, len(decisions) + 1):
        promotions = sum(decision.promotes for decision in decisions[: seen - 1])
        assert sum(levels[:seen]) <= max(TOTAL, FALSE_SHARE * promotions)
    others = judged(FAMILYWISE, decisions)
    assert sum(v.evidence["alpha"] for v in others if not v.decision.promotes) < TOTAL


def test_levels_are_those_of_another_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """LORD++ at 0.05 with a wealth of 0.025, on the example of the package onlineFDR 2.x: fifteen
    p-values, of which the 1st, 2nd, 6th, 10th and 13th are found; its sequence is the paper's for LORD."""
    monkeypatch.setattr(budget, "TOTAL", 0.025)
    monkeypatch.setattr(budget, "FALSE_SHARE", 0.05)
    monkeypatch.setattr(
        budget,
        "_part",
        lambda k: 0.07720838 * np.log(max(k, 2)) / (k * np.exp(np.sqrt(np.log(k)))),
    )
    found = {1, 2, 6, 10, 13}
    decisions = [Decision.PROMOTE if number in found else Decision.HOLD for number in range(1, 16)]
    levels = [round(verdict.evidence["alpha"], 6) for verdict in judged(DISCOVERIES, decisions)]
    assert levels == [
        *(0.001338, 0.001629, 0.003215, 0.001036, 0.000876, 0.000738, 0.003309, 0.001136),
        *(0.000987, 0.000854, 0.003426, 0.001251, 0.0011, 0.003639, 0.001438),
    ]


def test_power_lasts_where_a_familywise_level_fades() -> None:
    """Half of 100 candidates are better by 3.8 standard errors: what is found late, and the false share."""
    rng, late, false = np.random.default_rng(5), {rule: [0, 0] for rule in BudgetRule}, []
    for _ in range(12):
        better = rng.random(100) < 0.5
        p_values = ndtr(-rng.normal(3.8 * better, 1.0))
        for rule in BudgetRule:
            verdicts: list[Verdict] = []
            for number, p in enumerate(p_values):
                alpha = next_alpha(verdicts, rule)
                decision = Decision.PROMOTE if p <= alpha else Decision.HOLD
                verdicts.append(trial(number, alpha, decision, chain_of(verdicts, rule)))
            promoted = np.array([verdict.decision.promotes for verdict in verdicts])
            late[rule][0] += int((promoted & better)[50:].sum())
            late[rule][1] += int(better[50:].sum())
            if rule is DISCOVERIES:
                false.append((promoted & ~better).sum() / max(1, promoted.sum()))
    assert late[DISCOVERIES][0] > 0.85 * late[DISCOVERIES][1]
    assert late[FAMILYWISE][0] < 0.6 * late[FAMILYWISE][1]
    assert np.mean(false) < FALSE_SHARE


def test_another_rule_begins_a_new_chain_and_the_same_one_goes_on() -> None:
    first = judged(DISCOVERIES, [Decision.HOLD, Decision.PROMOTE])
    assert chain_of(first, DISCOVERIES) == "discoveries-1"
    assert chain_of(first, FAMILYWISE) == "familywise-2"
    assert next_alpha(first, FAMILYWISE) == next_alpha([], FAMILYWISE)
    second = [*first, trial(2, next_alpha(first, FAMILYWISE), chain="familywise-2")]
    assert chain_of(second, FAMILYWISE) == "familywise-2"
    assert next_alpha(second, FAMILYWISE) < next_alpha([], FAMILYWISE)
    assert chain_of(second, DISCOVERIES) == "discoveries-3"
    assert next_alpha(second, DISCOVERIES) == next_alpha([], DISCOVERIES)
    older = [Verdict(version=1, decision=Decision.HOLD, reason="", evidence={"experiment": "e", "alpha": 1})]
    assert chain_of(older, FAMILYWISE) == "familywise-1" and chain_of(older, DISCOVERIES) == "discoveries-2"


@RULES
def test_the_last_verdict_on_a_trial_counts_and_other_verdicts_never(rule: BudgetRule) -> None:
    gate = Verdict(version=1, decision=Decision.ADMIT, reason="", evidence={"alpha": 0.05})
    chain = f"{rule}-1"
    kept, won = trial(1, 0.02, chain=chain), trial(1, 0.02, Decision.PROMOTE, chain)
    one = next_alpha([kept], rule)
    assert next_alpha([gate, kept, gate, kept], rule) == one < next_alpha([won], rule)
    by_monitors = Verdict(
        version=1, decision=Decision.HOLD, reason="", evidence={"trial": dict(won.evidence), "alarms": []}
    )
    late = {"release": "e1", "outcomes": {}}
    demoted = Verdict(version=1, decision=Decision.DEMOTE, reason="", evidence=late)
    assert next_alpha([won, by_monitors], rule) == next_alpha([won, demoted], rule) == one


def test_the_count_survives_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.add_verdict(trial(1, next_alpha(store.verdicts())))
    expected = next_alpha(store.verdicts())
    store.close()
    assert next_alpha(Store.open(tmp_path / "store.db").verdicts()) == expected < next_alpha([])
