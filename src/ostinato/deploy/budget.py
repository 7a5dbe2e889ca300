"""The error that the next trial may spend, after all those of its store before it.

A run's file names the rule, `[live] budget`. γ_k is k^-1.6 / ζ(1.6), which adds up to 1.

- `discoveries`: of all promotions, however many, at most `FALSE_SHARE` are wrong in the long run. It is
  LORD++: trial t gets `TOTAL` · γ_t; the first promotion, at trial τ, adds (`FALSE_SHARE` - `TOTAL`) ·
  γ_(t - τ), and each later one `FALSE_SHARE` · γ_(t - τ). So what was found pays for looking on, and the
  power lasts. The expected number of wrong promotions is at most that share of the expected number of
  promotions if each trial keeps its level given all that was before it, as one does whose users are assigned
  anew; the expected share itself is at most `FALSE_SHARE` if trials are independent. Where no candidate is
  ever better, the chance of any promotion is `TOTAL` at most. Source: Ramdas, Yang, Wainwright, Jordan,
  "Online control of the false discovery rate with decaying memory" (2017).
- `familywise`: the chance that any trial, however many, promotes wrongly is at most `TOTAL`, under any
  dependence; the price is power that fades from trial to trial. Trial k gets `TOTAL` · γ_k, and the level of
  the trial before it too, if that promoted. Source: Tian, Ramdas, "Online control of the familywise error
  rate" (2021), the online fallback procedure.

Trials that were judged under one rule without a break are a chain, and a guarantee is that of a chain:
another rule begins a new one, which counts from its first trial and inherits nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from scipy.special import zeta

from ostinato.store import Store
from ostinato.types import Decision, Verdict

TOTAL = 0.05
"""The chance of any false promotion: of all trials for `familywise`, of those before the first promotion for
`discoveries`."""
FALSE_SHARE = 0.1
"""The share of promotions that may be wrong, for `discoveries`."""
POWER = 1.6


class BudgetRule(StrEnum):
    """The rule by which a trial gets its level."""

    DISCOVERIES = "discoveries"
    FAMILYWISE = "familywise"


FIRST_CHAIN = f"{BudgetRule.DISCOVERIES}-1"
UNNAMED = f"{BudgetRule.FAMILYWISE}-1"
"""The chain of verdicts that name none: they are older than the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    chain: str
    alpha: float
    promoted: bool


def next_alpha(verdicts: Sequence[Verdict], rule: BudgetRule = BudgetRule.DISCOVERIES) -> float:
    """Return the chance of a false promotion that the next trial may have, after `verdicts`, oldest first.

    The verdicts are all those of one store, so the count survives restarts. Verdicts of one experiment are
    one trial, and the last of them says whether it promoted; a promotion by hand shows nothing, and one that
    its outcomes demoted pays for nothing from then on. A verdict without an experiment spent nothing.

    >>> round(next_alpha([]), 4)
    0.0219
    """
    chain = chain_of(verdicts, rule)
    mine = [trial for trial in _spent(verdicts) if trial.chain == chain]
    alpha = TOTAL * _part(len(mine) + 1)
    if rule is BudgetRule.FAMILYWISE:
        return alpha + (mine[-1].alpha if mine and mine[-1].promoted else 0.0)
    ages = [len(mine) - place for place, trial in enumerate(mine) if trial.promoted]
    return alpha + FALSE_SHARE * sum(map(_part, ages)) - (TOTAL * _part(ages[0]) if ages else 0.0)


def chain_of(verdicts: Sequence[Verdict], rule: BudgetRule) -> str:
    """Return the name of the chain that the next trial belongs to: its rule, and its number in the store.

    >>> chain_of([], BudgetRule.DISCOVERIES)
    'discoveries-1'
    """
    chains = list(dict.fromkeys(trial.chain for trial in _spent(verdicts)))
    goes_on = chains and chains[-1].rpartition("-")[0] == rule
    return chains[-1] if goes_on else f"{rule}-{len(chains) + 1}"


def level_of(store: Store, candidate: int, rule: BudgetRule) -> tuple[float, str]:
    """Return the level of a candidate's trial, and the chain of the budget that it comes from.

    One whose gate was a part of its trial has what that gate took, however often it is asked. It is asked
    when a trial begins, and trials follow one another: none is under way whose result could still add to it.
    """
    verdicts = store.verdicts()
    for verdict in verdicts:
        if verdict.version == candidate and "experiment" in verdict.evidence:
            return verdict.evidence["alpha"], verdict.evidence.get("chain", UNNAMED)
    return next_alpha(verdicts, rule), chain_of(verdicts, rule)


def _spent(verdicts: Sequence[Verdict]) -> list[_Spent]:
    """Return the trials in the order in which they began."""
    trials: dict[str, _Spent] = {}
    for verdict in verdicts:
        evidence = verdict.evidence.get("trial", verdict.evidence)  # a monitor or a person put theirs around
        if "experiment" in evidence:
            trials[evidence["experiment"]] = _Spent(
                chain=evidence.get("chain", UNNAMED),
                alpha=evidence["alpha"],
                promoted=verdict.decision.promotes and "by" not in verdict.evidence,
            )
        elif verdict.decision is Decision.DEMOTE and (of := evidence.get("release")) in trials:
            trials[of] = replace(trials[of], promoted=False)
    return list(trials.values())


def _part(k: int) -> float:
    """Return γ_k, for k from 1 on."""
    return float(k**-POWER / zeta(POWER))
