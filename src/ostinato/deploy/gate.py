"""The gate before traffic: a candidate must be shown not to be worse on held-out tasks.

Not worse is a claim to be proven, so too few tasks give HOLD, never PROMOTE. Splits are judged one by one:
a gain on one does not buy a loss on another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ostinato.deploy.statistics import Interval, difference, paired_difference
from ostinato.types import Decision, Report, Verdict

CONFIDENCE = 0.90
"""Two-sided, hence 95 % for the one side that each question asks about."""
WORSE_IF_HIGHER = ("tampered", "broken")
"""Rates that a candidate may not raise."""
RATE_SLACK = 0.05

Pairs = Mapping[str, tuple[Sequence[bool], Sequence[bool]]]


class GateError(ValueError):
    """The two reports cannot be compared."""


def gate(current: Report, candidate: Report, *, margin: float, paired: Pairs | None = None) -> Verdict:
    """PROMOTE when every common split is shown to lose less than `margin` (in solve rate).

    ROLL_BACK when one is shown to have lost, or a guarded rate rose by more than `RATE_SLACK`; else HOLD.
    `paired[split]` = (current, candidate) outcomes task by task, for the narrower paired interval.
    Raises GateError when the reports have no split in common, or were measured under two harnesses.
    """
    if current.harness != candidate.harness:
        raise GateError(
            f"version {current.version} was measured under harness {current.harness or 'unknown'}, version "
            f"{candidate.version} under {candidate.harness or 'unknown'}: measure both under the same"
        )
    changes = _changes(current, candidate, paired or {})
    risen = _risen(current, candidate)
    decision, reason = _decide(changes, risen, margin)
    evidence = {
        "current": current.id,
        "candidate": candidate.id,
        "margin": margin,
        "confidence": CONFIDENCE,
        "paired": sorted(paired or {}),
        "differences": {split: asdict(change) for split, change in changes.items()},
        "rates_risen": risen,
        "not_compared": sorted(current.scores.keys() ^ candidate.scores.keys()),
    }
    return Verdict(version=candidate.version, decision=decision, reason=reason, evidence=evidence)


def _changes(current: Report, candidate: Report, paired: Pairs) -> dict[str, Interval]:
    common = sorted(current.scores.keys() & candidate.scores.keys())
    if not common:
        raise GateError(
            f"versions {current.version} and {candidate.version} have no split in common: "
            "measure both on the same tasks"
        )
    return {
        split: paired_difference(*paired[split], CONFIDENCE)
        if split in paired
        else difference(current.scores[split], candidate.scores[split], CONFIDENCE)
        for split in common
    }


def _risen(current: Report, candidate: Report) -> dict[str, float]:
    """Guarded rates that rose by more than the slack, with the rise. A rate that was not measured is not
    judged."""
    rise = {
        name: candidate.rates[name] - current.rates[name]
        for name in WORSE_IF_HIGHER
        if name in candidate.rates and name in current.rates
    }
    return {name: by for name, by in rise.items() if by > RATE_SLACK}


def _decide(
    changes: Mapping[str, Interval], risen: Mapping[str, float], margin: float
) -> tuple[Decision, str]:
    if risen:
        return Decision.ROLL_BACK, "rose too far: " + ", ".join(f"{k} by {v:.2f}" for k, v in risen.items())
    lost = [split for split, change in changes.items() if change.high < 0]
    if lost:
        return Decision.ROLL_BACK, f"worse on {_shown(changes, lost)}"
    unproven = [split for split, change in changes.items() if change.low <= -margin]
    if unproven:
        return Decision.HOLD, f"not shown to be within {margin:.2f} on {_shown(changes, unproven)}"
    return Decision.PROMOTE, f"no worse than {margin:.2f} on {_shown(changes, list(changes))}"


def _shown(changes: Mapping[str, Interval], splits: Sequence[str]) -> str:
    return ", ".join(
        f"{split} ({changes[split].estimate:+.2f} in [{changes[split].low:+.2f}, {changes[split].high:+.2f}])"
        for split in splits
    )
