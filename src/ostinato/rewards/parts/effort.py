"""The price of effort. It is concave: each further turn costs less than the one before.

The exploit: whatever is not counted is where the effort goes, as reasoning moves into the comments of a call
when thinking alone costs, and everything into one long turn when turns alone do. The guard: six counts, of
which a definition may make no text cheaper than thinking. Failures pay the price too, so giving up early
saves little; its largest value stays well below what solving pays.
"""

import math
from dataclasses import dataclass, fields

from ostinato.rewards.parts.work import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortPrice:
    """The shape of C and the weight of each count in x.

    >>> EffortPrice().x(Effort(turns=2, calls=1, thinking=0, calls_text=100, outputs=0, final=0))
    2.1
    """

    k: float = 0.3
    q: float = 1.5
    turns: float = 0.9
    calls: float = 0.1
    """A further call in the same turn: far cheaper than a turn of its own."""
    thinking: float = 0.002
    calls_text: float = 0.002
    final: float = 0.002
    outputs: float = 0.0002
    """A tenth of what sampled text costs: it is read, and mostly the repository's."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"effort.{each.name} is {value}: make it a finite number of at least 0")
        for name in ("calls_text", "final"):
            if getattr(self, name) < self.thinking:
                raise ValueError(
                    f"effort.{name} is {getattr(self, name)} and effort.thinking {self.thinking}: reasoning "
                    "would move to where it is cheaper; make no text cheaper than thinking"
                )

    def x(self, effort: Effort) -> float:
        """Return the weighted sum of the six counts."""
        weights = {each.name: getattr(self, each.name) for each in fields(Effort)}
        return math.fsum(weight * getattr(effort, name) for name, weight in weights.items())

    def cost(self, effort: Effort) -> float:
        """Return C(x)."""
        return concave_effort(self.x(effort), k=self.k, q=self.q)


def concave_effort(x: float, *, k: float, q: float) -> float:
    """Return C(x) = ((1 + kx)^(1-q) - 1) / (k (1-q)), which is ln(1 + kx) / k at q = 1 and x at k = 0.

    The formula is that of the Composer 2 report (arXiv 2603.24477, 4.2). C(0) = 0, C'(0) = 1, increasing;
    concave for q > 0, linear at q = 0, below 1 / (k (q-1)) for q > 1. `expm1` keeps it exact near q = 1,
    where the plain form cancels.
    Raises ValueError unless x, q, k >= 0.
    """
    if x < 0 or q < 0 or k < 0:
        raise ValueError(f"effort needs x >= 0, q >= 0 and k >= 0, got x={x}, q={q}, k={k}")
    if k * x == 0:
        return x
    growth = math.log1p(k * x)
    if q == 1:
        return growth / k
    return math.expm1((1 - q) * growth) / (k * (1 - q))
