"""The correction by which training learns what the window could not show: an edit undone after 30 hours.

A share of the sessions, drawn by a hash of their id, waits until it is mature and is trained on then, once;
the others are trained on when the window is over. A young session is worth m, what is expected of its reward
at maturity; a mature one m + (L - m) / share, where L is its reward by then. Their mean is that of L whatever
m is, because the share is known: doubly robust, as Robins, Rotnitzky, Zhao, "Estimation of regression
coefficients when some regressors are not always observed" (1994). It is unbiased for the policy that did the
sessions, as far as L is final at `after_s`. A good m makes it less noisy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from ostinato.rewards.definition import DefinitionError

LEAST = 8.0
"""The weight, in mature sessions, of the assumption that maturity changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The share of sessions that wait, and for how long.

    >>> Correction(share=0.0).waits("s1")
    False
    """

    share: float = 0.0
    """The share of the sessions that are trained on when they are mature; 0 for no correction."""
    after_s: float = 604_800.0
    """The age at which a session is mature, in seconds after its last turn."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise DefinitionError(f"late.share is {self.share}: it lies between 0 and 1")

    def waits(self, session_id: str) -> bool:
        """Return whether a session is one of those that wait; nothing that happens in it changes that."""
        drawn = int.from_bytes(sha256(f"late/{session_id}".encode()).digest()[:8], "big")
        return drawn < self.share * 2**64

    def worths(self, early: Sequence[float], late: Sequence[float | None]) -> list[float]:
        """Return what each session of a collection is worth to the trainer.

        `early` are their rewards at the end of the window, and `late` those at maturity, None for a young
        session. m is the early reward and a line through the changes of the mature sessions; the line of a
        mature one is fitted without it, else m would know what it is to predict.
        """
        r = np.asarray(early, dtype=float)
        mature = np.array([value is not None for value in late], dtype=bool)
        if not mature.any():
            return list(early)
        change = np.array([0.0 if value is None else value for value in late]) - r
        x = np.stack([np.ones_like(r), r - r[mature].mean()], axis=1)
        seen, told = x[mature], change[mature]
        inverse = np.linalg.inv(seen.T @ seen + LEAST * np.diag([1.0, max(float(r[mature].var()), 1e-6)]))
        fitted = x @ (inverse @ (seen.T @ told))
        leverage = np.einsum("ij,jk,ik->i", x, inverse, x)
        without = np.where(mature, (fitted - leverage * change) / (1 - leverage), fitted)
        worth = r + without
        worth[mature] += (change - without)[mature] / self.share
        return [float(value) for value in worth]
