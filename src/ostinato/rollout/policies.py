"""The policies that say how many groups may start now; the reconciler starts as many as the strictest allows.

Each is a rule with one reason, read from the counts of the ledger and of the slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ostinato.rollout.config import SYNCHRONOUS, PracticeConfig

NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much is under way, in groups where nothing else is said.

    >>> Counts(open=3, waiting=2, claimed=4, busy=20, newest=7).under_way
    9
    """

    open: int
    """Planned and not offered yet."""
    waiting: int
    """Offered, and not claimed by the trainer."""
    claimed: int
    """In the trainer's present step."""
    busy: int
    """Sessions that are planned, in flight or being verified."""
    newest: int
    """The newest committed version."""

    @property
    def under_way(self) -> int:
        return self.open + self.waiting + self.claimed


class Policy(Protocol):
    """A limit on what starts."""

    def more(self, now: Counts) -> int:
        """Return the number of groups that may start now; zero or less for none."""


@dataclass(frozen=True, slots=True)
class KeepFull:
    """Start groups while there are fewer sessions to run than places, so that no engine idles behind the last
    session of a group.
    """

    sessions: int
    group_size: int

    def more(self, now: Counts) -> int:
        return -((now.busy - self.sessions) // self.group_size)


@dataclass(frozen=True, slots=True)
class ReadyAhead:
    """Start nothing while so many groups wait for the trainer, except in place of groups that were dropped
    and without which its batch would never be full.
    """

    groups: int
    batch: int

    def more(self, now: Counts) -> int:
        return NO_LIMIT if now.waiting < self.groups else self.batch - now.open - now.waiting


@dataclass(frozen=True, slots=True)
class NotStale:
    """Start nothing that would be too old when its turn comes.

    The k-th group under way is trained in step ⌈k / batch⌉ from now, by which time ⌈k / batch⌉ - 1 further
    versions are published; its oldest token is of the present version, so k may be (staleness + 1) · batch.
    One that takes longer than those behind it is not overtaken: the trainer waits (`store/ledger/pacing.py`).
    """

    staleness: int
    batch: int

    def more(self, now: Counts) -> int:
        return (self.staleness + 1) * self.batch - now.under_way


@dataclass(frozen=True, slots=True)
class NotBeyondTheEnd:
    """Start nothing that no version will take, because training ends with version `until`."""

    until: int
    batch: int

    def more(self, now: Counts) -> int:
        return (self.until - now.newest) * self.batch - now.under_way


@dataclass(frozen=True, slots=True)
class WholeBatches:
    """Start one batch at a time, when everything before it has been trained on."""

    batch: int

    def more(self, now: Counts) -> int:
        return 0 if now.claimed else self.batch - now.open - now.waiting


def policies(config: PracticeConfig, *, batch: int, staleness: int, until: int) -> Sequence[Policy]:
    """Return the policies of a run that trains on `batch` groups at a time up to version `until`."""
    end = NotBeyondTheEnd(until, batch)
    if config.mode == SYNCHRONOUS:
        return WholeBatches(batch), end
    return (
        KeepFull(config.groups_at_once * config.group_size, config.group_size),
        ReadyAhead(config.ready_ahead, batch),
        NotStale(staleness, batch),
        end,
    )


def allowed(policies: Sequence[Policy], now: Counts) -> int:
    """Return the number of groups that every policy lets start now."""
    return max(0, min(policy.more(now) for policy in policies))
