"""The error that the next trial may spend, so that all trials of a store together stay below one level.

Trial k gets `TOTAL` · k^-1.6 / ζ(1.6). If the trial before it ended in a promotion, it inherits that trial's
level too, as a refuted hypothesis passes its level on. The chance that any of the trials, however many,
promotes wrongly is at most `TOTAL`, under any dependence between them. Source: Tian, Ramdas, "Online
control of the familywise error rate" (2021), the online fallback procedure.
"""

from collections.abc import Sequence

from scipy.special import zeta

from ostinato.types import Verdict

TOTAL = 0.05
POWER = 1.6


def next_alpha(verdicts: Sequence[Verdict], total: float = TOTAL) -> float:
    """Return the chance of a false promotion that the next trial may have, after `verdicts`, oldest first.

    The verdicts are all those of one store, so the count survives restarts. Verdicts of one experiment are
    one trial; a verdict without an experiment spent nothing.

    >>> round(next_alpha([]), 4)
    0.0219
    """
    spent: dict[str, tuple[float, bool]] = {}
    for verdict in verdicts:
        if "experiment" in verdict.evidence:
            experiment, alpha = verdict.evidence["experiment"], verdict.evidence["alpha"]
            promoted = verdict.decision.promotes or spent.get(experiment, (0.0, False))[1]
            spent[experiment] = (alpha, promoted)
    inherited = next((alpha for alpha, promoted in list(spent.values())[-1:] if promoted), 0.0)
    return float(total * (len(spent) + 1) ** -POWER / zeta(POWER) + inherited)
