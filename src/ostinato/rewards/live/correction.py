"""The correction by which training learns what the window could not show: an edit undone after 30 hours.

A share of the sessions, drawn by a hash of their id, waits until it is mature and is trained on then, once;
the others are trained on when the window is over. A young session is worth its reward r at the end of the
window, and a mature one r + (L - r) / share, where L is its reward at maturity: the changes that came late
are weighted by the inverse probability of being seen. The mean over the draw is L for every session, because
the share is known and r does not depend on the draw. So it is unbiased for the policy that did the sessions,
however people and policies change meanwhile, as far as L is final at `after_s`.

`benchmarks.maturity` compares it with ways that predict the change from other mature sessions: those are less
noisy where little is seen within the window, and biased while what they are fitted on changes.
"""

from dataclasses import dataclass
from hashlib import sha256

from ostinato.rewards.definition import DefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The share of sessions that wait, and for how long.

    >>> Correction(share=0.25).worth(1.0, -0.5)
    -5.0
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

    def worth(self, early: float, late: float | None) -> float:
        """Return what a session is worth to the trainer: `late` is None for one that did not wait."""
        return early if late is None else early + (late - early) / self.share
