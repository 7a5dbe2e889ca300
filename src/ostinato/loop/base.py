"""Protocols that a user of the loop fills in: a display for a person, and a source of live sessions."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol

Period = Literal["live", "ab"]
"""The part of a cycle that sessions come in: before the collection, or while a candidate is released."""


class ProgressBar(Protocol):
    """The progress of one stage."""

    def at(self, done: float, line: str = "") -> None:
        """Set how much of the total is done, and the text beside the bar."""

    def more(self, line: str = "") -> None:
        """Count one more as done."""


class Display(Protocol):
    """The place where a run tells a person what it does."""

    def say(self, text: str) -> None:
        """Print one line."""

    def stage(self, name: str, total: float) -> AbstractContextManager[ProgressBar]:
        """Show the progress of one stage while the block runs."""


class LiveTraffic(Protocol):
    """The source of live sessions; the arms in the store say which version serves each user."""

    async def arrive(self, period: Period, since: float, sessions: int) -> None:
        """Wait until so many sessions that began at `since` or later (seconds since the epoch) have ended."""

    def clock(self) -> float:
        """Return the time by which attribution windows are judged, in seconds since the epoch."""

    def strata(self) -> Mapping[str, str]:
        """Return the stratum of each task, by its id, or of each session without a task, by the session's.

        All sessions that have none share one stratum.
        """
