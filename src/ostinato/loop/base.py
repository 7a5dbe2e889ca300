"""Protocols that a user of the loop fills in: a display for a person, and a source of live sessions."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from ostinato.rewards.definition import LIVE
from ostinato.store import Store
from ostinato.types import Source

Period = Literal["live", "ab"]
"""The part of a cycle that sessions come in: before the collection, or during the A/B test."""
POLL_S = 5.0


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

    @property
    def horizon(self) -> int:
        """The number of sessions after which an A/B test is over."""

    async def arrive(self, period: Period, since: float) -> None:
        """Wait until enough sessions that began at `since` or later (seconds since the epoch) have ended."""

    def clock(self) -> float:
        """Return the time by which attribution windows are judged, in seconds since the epoch."""

    def strata(self) -> Mapping[str, str]:
        """Return the stratum of each task id; all sessions whose task has none share one stratum."""


class PeopleTraffic:
    """The sessions of people: they come by themselves through the gateway, so the loop only waits for them.

    When there are enough, it waits for one more attribution window, so that all of them can be judged.
    """

    def __init__(
        self,
        store: Store,
        *,
        sessions: int,
        horizon: int,
        window_s: float = LIVE.window_s,
        poll_s: float = POLL_S,
    ) -> None:
        self._store = store
        self._wanted: dict[Period, int] = {"live": sessions, "ab": horizon}
        self._window_s = window_s
        self._poll_s = poll_s

    @property
    def horizon(self) -> int:
        return self._wanted["ab"]

    async def arrive(self, period: Period, since: float) -> None:
        wanted = self._wanted[period]
        while True:
            ended = self._store.sessions(source=Source.LIVE, ended=True, since=since, limit=wanted)
            if len(ended) >= wanted:
                break
            await asyncio.sleep(self._poll_s)
        await asyncio.sleep(self._window_s)

    def clock(self) -> float:
        return time.time()

    def strata(self) -> Mapping[str, str]:
        return {}
