"""The windows in which an edit is measured: the schedule of editors' telemetry, then days; and the commit."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from ostinato.edits.follow.edit import FollowedEdit

SECONDS = (0, 5, 30, 120, 300, 600, 900, 3_600, 86_400, 259_200, 604_800)
LIVE_S = 900
"""Age in seconds up to which the reporter waits for windows; later ones wait for the next event."""
SETTLED_S = 900
"""Age in seconds from which an unchanged text counts as kept; before, the developer may not have read it."""
LATEST_S = 2_592_000
"""Age in seconds after which even the last window is missed."""
COMMIT = "commit"


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the system."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(slots=True)
class ManualClock:
    """A clock for tests, whose time passes only when they say so."""

    at: float = 1_000_000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The window to measure now, and those that passed without a measurement.

    >>> Due(window="30", missed=("0", "5")).missed
    ('0', '5')
    """

    window: str | None
    missed: tuple[str, ...]


def due(edit: FollowedEdit, now: float) -> Due:
    """Return the windows that are due. A window is open from its time until the next one's."""
    age = now - edit.proposed_at
    reached = [str(s) for s in SECONDS if s <= age and str(s) not in edit.done]
    current = str(max((s for s in SECONDS if s <= age), default=None))
    open_window = current if current in reached and age < LATEST_S else None
    return Due(window=open_window, missed=tuple(w for w in reached if w != open_window))


def next_due(edit: FollowedEdit) -> float | None:
    """Return when the next window opens for which the reporter waits; None when there is none."""
    waiting = [s for s in SECONDS if s <= LIVE_S and str(s) not in edit.done]
    return edit.proposed_at + waiting[0] if waiting else None


def finished(edit: FollowedEdit) -> bool:
    return all(str(s) in edit.done for s in SECONDS)
