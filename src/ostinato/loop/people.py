"""Real people: the sessions that they bring, and the traces of them in a store that must not be deleted."""

import asyncio
import math
import shlex
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ostinato.loop.base import Display, Period
from ostinato.loop.live_config import ARMS
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE, LiveDefinition
from ostinato.rewards.requests.strata import Request, request_of, strata
from ostinato.rollout.collect import AT_ONCE, uncollected
from ostinato.store import Store, StoreError
from ostinato.store.config import shown
from ostinato.store.outlines import outlines_of
from ostinato.types import Ending, Session, Source

POLL_S = 5.0
FLOOR = 0.1
"""The part of the sessions that a collection waits for even when its time is over: less is no batch."""
LOCAL = "local"
"""The user whose keys `ostinato serve` and `ostinato cycle` print."""
WAITS: Mapping[Period, str] = {"live": "people at work", "ab": "people in the release"}
"""The names of the two waits, for a person."""
RUN_USERS = ("bench", "practice", "search", "simulator", "teacher")
"""Users in whose name a run calls its own gateway."""
SIMULATED = "SELECT user FROM consents WHERE set_by = 'simulation'"
REAL = f"user NOT IN ({SIMULATED}) AND user NOT IN ({', '.join('?' * len(RUN_USERS))})"
LEFT = {
    "keys": "keys WHERE revoked_at IS NULL",
    "words on consent": "consents WHERE true",
    "live sessions": "sessions WHERE source = 'live' AND id NOT IN (SELECT session_id FROM purges)",
}


def people(store: Path) -> str:
    """Name what people left there, such as `1 keys, 3 live sessions`; empty when there is nothing.

    Any layout of the store is read, since one that this release cannot open may hold people's data too.
    Raises StoreError when it cannot be read, since it may hold people's data then.
    """
    if not store.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            counts = {
                name: connection.execute(f"SELECT count(*) FROM {rows} AND {REAL}", RUN_USERS).fetchone()[0]  # noqa: S608
                for name, rows in LEFT.items()
            }
    except sqlite3.Error as error:
        raise StoreError(f"{store}: {error}: it may hold people's data, so it is kept") from error
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def recording_notice(store: Store, record: str | Path) -> str:
    """Return in one line what is recorded, who may read it, and whether the local user's sessions may be
    trained on.

    `record` is the path or URL of the store. A session carries the consent that held when it began.
    """
    granted = store.accounts.consented([("", LOCAL)])["", LOCAL]
    said = ["ostinato", "consent", "set", "no" if granted else "yes", "--user", LOCAL, "--store", str(record)]
    trained = "may be trained on" if granted else "are not trained on"
    return (
        f"every session is recorded in {shown(str(record))}; whoever can open that reads all of them, a user "
        f"with a key their own; sessions of the user {LOCAL} {trained} until you say: {shlex.join(said)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The sessions of a period so far.

    >>> Arrived(counted=3, withheld=1, young=2).line(40)
    '3 of 40 sessions can be learnt from, 2 are too young, and 1 without consent'
    """

    counted: int
    """Those that the period waits for: of a release those that have ended, of a collection those that can be
    learnt from."""
    withheld: int = 0
    young: int | None = None
    """Those of a collection whose windows are not over; None in a release."""
    settles_at: float | None = None
    """When the windows of all in a release are over, in seconds since the epoch; None while some are still to
    come."""

    def line(self, wanted: int) -> str:
        what = "have ended" if self.young is None else f"can be learnt from, {self.young} are too young"
        said = f"{self.counted} of {wanted} sessions {what}"
        if self.withheld:
            said += f", and {self.withheld} without consent"
        if self.settles_at is not None:
            over = datetime.fromtimestamp(self.settles_at).astimezone()
            said += f"; their windows are over at {over:%Y-%m-%d %H:%M}"
        return said


class PeopleTraffic:
    """The sessions of people: they come by themselves through the gateway, so the loop only waits for them.

    Those that `ostinato serve` recorded in the same store before count too. A collection counts each session
    from the end of its own attribution window on; a release waits until those of all its sessions are over.
    `show` says how many there are meanwhile; `now` returns the time in seconds since the epoch, and no
    session older than `oldest_s` counts.
    """

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        show: Display,
        *,
        definition: LiveDefinition = LIVE,
        now: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
        oldest_s: float = math.inf,
    ) -> None:
        self._store = store
        self._tokenizer = tokenizer
        self._show = show
        self._definition = definition
        self._now = now
        self._poll_s = poll_s
        self._oldest_s = oldest_s

    async def arrive(
        self, period: Period, since: float, sessions: int, *, closes_at: float = math.inf
    ) -> None:
        """Look at whole multiples of the pause alone, so that a resumed process does as others do.

        A collection looks half a pause apart from a release, so neither depends on which comes first.
        """
        shift = self._poll_s / 2 if period == "live" else 0.0
        with self._show.stage(WAITS[period], total=sessions) as bar:
            while True:
                pause = self._poll_s - (self._now() + shift) % self._poll_s
                closes_in = closes_at - self._now()
                await asyncio.sleep(min(pause, closes_in) if closes_in > 0 else pause)
                arrived = self._in_trial(since, sessions) if period == "ab" else self._ripe()
                bar.at(arrived.counted, arrived.line(sessions))
                if arrived.settles_at is not None and arrived.settles_at <= self._now():
                    return
                enough = sessions if self._now() < closes_at else max(1, round(FLOOR * sessions))
                if period == "live" and arrived.counted >= enough:
                    return

    def _in_trial(self, since: float, wanted: int) -> Arrived:
        """Return how many sessions have ended, and when the windows of the first of them are over.

        Those of the hold-out do not count, and none that our own failure ended.
        """
        ended = [
            session
            for session in self._store.sessions(source=Source.LIVE, ended=True, since=since)
            if session.arm in ARMS and session.ending is not Ending.INFRASTRUCTURE
        ]
        if len(ended) < wanted:
            return Arrived(counted=len(ended))
        turns = outlines_of(self._store, [session.id for session in ended])
        counted = [turns[session.id] for session in ended if turns.get(session.id)][:wanted]
        settles_at = max(map(self._definition.settles_at, counted), default=0.0)
        whole = len(counted) == wanted
        return Arrived(counted=len(counted), settles_at=settles_at if whole else None)

    def _ripe(self) -> Arrived:
        return ripe(self._store, self._definition, now=self._now(), oldest_s=self._oldest_s)

    def clock(self) -> float:
        return self._now()

    def strata(self, sessions: Sequence[Session]) -> Mapping[str, str]:
        return strata_of_people(self._store, self._tokenizer, sessions)


def ripe(store: Store, definition: LiveDefinition, *, now: float, oldest_s: float = math.inf) -> Arrived:
    """Return how many sessions can be learnt from now: each as soon as its own window is over.

    Those that wait for late facts are not waited for, and a slow session holds up no other one.
    """
    counted, young, withheld = 0, 0, 0
    for left in uncollected(store, ARMS, since=now - oldest_s):
        given = [each.id for each in store.accounts.may_train_on(left)]
        turns, signals = outlines_of(store, given), store.signals_of(given)
        ages = [definition.trains_at(id_, mine, signals.get(id_, ())) for id_, mine in turns.items()]
        counted += sum(at <= now for at in ages)
        young += sum(at > now for at in ages)
        withheld += len(left) - len(given)
    return Arrived(counted=counted, withheld=withheld, young=young)


def strata_of_people(store: Store, tokenizer: Tokenizer, sessions: Sequence[Session]) -> Mapping[str, str]:
    """Return the stratum of each session among these, by its id.

    A session whose first prompt cannot be read is in none; the collection puts such sessions together.
    """
    read: dict[str, Request] = {}
    for start in range(0, len(sessions), AT_ONCE):
        turns = store.turns_of([session.id for session in sessions[start : start + AT_ONCE]])
        asked = {id_: request_of(mine, tokenizer) for id_, mine in turns.items()}
        read |= {id_: request for id_, request in asked.items() if request is not None}
    return strata(read)
