"""An estimator of advantages: each reward against the median of its group, which one outlier does not move.

[refine.policy]
baseline = "median"
"""

from collections.abc import Sequence
from statistics import median as middle

import ostinato as o


@o.baseline("median")
def median(rewards: Sequence[float]) -> list[float]:
    """Return how far each reward of a group lies above its median."""
    return [reward - middle(rewards) for reward in rewards]
