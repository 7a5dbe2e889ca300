"""The reward part for what a session cost. The price is concave: each further turn costs less than the one
before.

Failures pay the price too, so its largest value must stay well below what solving pays.
"""

import math
from collections.abc import Sequence

from ostinato.types import RewardPart, Turn


def concave_effort(x: float, *, k: float, q: float) -> float:
    """Return C(x) = ((1 + kx)^(1-q) - 1) / (k (1-q)), which is ln(1 + kx) / k at q = 1.

    C(0) = 0, C'(0) = 1, increasing; concave for q > 0, linear at q = 0, below 1 / (k (q-1)) for q > 1.
    `expm1` keeps it exact near q = 1, where the plain form cancels.
    Raises ValueError unless x, q >= 0 and k > 0.
    """
    if x < 0 or q < 0 or k <= 0:
        raise ValueError(f"effort needs x >= 0, q >= 0 and k > 0, got x={x}, q={q}, k={k}")
    growth = math.log1p(k * x)
    if q == 1:
        return growth / k
    return math.expm1((1 - q) * growth) / (k * (1 - q))


def effort(turns: Sequence[Turn], *, weight: float, k: float, q: float, tokens_per_turn: float) -> RewardPart:
    """Return minus the weighted price of the turns and of the tokens sampled in them.

    `tokens_per_turn` sampled tokens cost as much as one more turn, so one long turn does not avoid the price
    of several.
    """
    sampled = sum(len(turn.completion.ids) for turn in turns)
    cost = concave_effort(len(turns) + sampled / tokens_per_turn, k=k, q=q)
    return RewardPart(name="effort", value=-weight * cost)
