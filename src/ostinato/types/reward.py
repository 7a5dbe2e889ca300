"""The reward: one number for a session, with named parts and the evidence of each."""

from dataclasses import dataclass
from enum import StrEnum


class PartState(StrEnum):
    """The state of knowledge about a reward part."""

    OBSERVED = "observed"
    CENSORED = "censored"  # the fact can still arrive, so the part's value does not count
    EXPIRED = "expired"  # no fact arrived within the window, so the part has the value of silence


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One named part of a reward; `value` is already weighted.

    >>> RewardPart(name="outcome", value=0.0, state=PartState.CENSORED).censored
    True
    """

    name: str
    value: float
    evidence: tuple[str, ...] = ()
    """Ids of the signals and turns it was read from."""
    state: PartState = PartState.OBSERVED

    @property
    def censored(self) -> bool:
        """True while the fact that it needs can still arrive."""
        return self.state is PartState.CENSORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A total with its named parts.

    >>> Reward(session_id="s1", definition="3f", parts=(RewardPart(name="solved", value=1.0),
    ...        RewardPart(name="effort", value=-0.25))).total
    0.75
    """

    session_id: str
    definition: str
    """Hash of the definition that computed it."""
    parts: tuple[RewardPart, ...]
    as_of: float | None = None
    """The moment up to which facts counted, in seconds since the epoch; None when all of them did. The same
    facts, definition and moment always give this same reward."""

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)
