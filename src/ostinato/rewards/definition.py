"""The protocol of a reward's definition, and its refusal."""

from collections.abc import Sequence
from typing import Protocol

from ostinato.types import Reward, Signal, Turn


class DefinitionError(ValueError):
    """A definition that cannot be used; the message names the part and what to change."""


class Definition(Protocol):
    """A definition of reward, as the rollout sees it."""

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Return the reward of one session; raises VoidSessionError, SignalValueError.

        `as_of` is a moment in seconds since the epoch: signals observed after it do not count, and a fact
        whose window is over by then is no longer waited for. With None every signal counts and no window is
        ever over.
        """
