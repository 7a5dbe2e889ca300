"""A correction of the policy gradient: tokens count whole while pi / mu is below 1.3, and not at all above.

[refine.policy]
correction = "one_sided"
"""

import torch
from torch import Tensor

import ostinato as o


@o.correction("one_sided")
def one_sided(deltas: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of each token by log pi - log mu [N], and which of them were cut [N]."""
    cut = deltas.exp() > 1.3
    return torch.where(cut, 0.0, 1.0), cut
