"""Real people: the sessions that they bring, and the traces of them in a store that must not be deleted."""

import asyncio
import shlex
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ostinato.loop.base import Display, Period
from ostinato.loop.live_config import ARMS
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE, LiveDefinition
from ostinato.rewards.requests.strata import request_of, strata
from ostinato.store import Ledger, Phase, Store, StoreError
from ostinato.store.config import shown
from ostinato.types import Ending, Source

POLL_S = 5.0
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
    trained = "may be trained on, until" if granted else "are not trained on before"
    return (
        f"every session is recorded in {shown(str(record))}; whoever can open it reads all of them, and a "
        f"key its user's own; sessions of {LOCAL} {trained}: {shlex.join(said)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """The sessions of a period so far.

    >>> Arrived(counted=3, withheld=1).line(40)
    '3 of 40 sessions have ended, and 1 without consent'
    """

    counted: int
    """Those that the period waits for, no more than it wants."""
    withheld: int
    settles_at: float | None = None
    """When the windows of all are over, in seconds since the epoch; None while some are still to come."""

    def line(self, wanted: int) -> str:
        said = f"{self.counted} of {wanted} sessions have ended"
        if self.withheld:
            said += f", and {self.withheld} without consent"
        if self.settles_at is not None:
            over = datetime.fromtimestamp(self.settles_at).astimezone()
            said += f"; their windows are over at {over:%Y-%m-%d %H:%M}"
        return said


class PeopleTraffic:
    """The sessions of people: they come by themselves through the gateway, so the loop only waits for them.

    Those that `ostinato serve` recorded in the same store before count too. When there are enough, it waits
    until the attribution windows of all of them are over, so that each can be judged. `show` says how many
    there are meanwhile; `now` returns the time in seconds since the epoch.
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
    ) -> None:
        self._store = store
        self._tokenizer = tokenizer
        self._show = show
        self._definition = definition
        self._now = now
        self._poll_s = poll_s

    async def arrive(self, period: Period, since: float, sessions: int) -> None:
        """Look at whole multiples of the pause alone, so that a resumed process does as others do."""
        with self._show.stage(WAITS[period], total=sessions) as bar:
            while True:
                await asyncio.sleep(self._poll_s - self._now() % self._poll_s)
                arrived = self._arrived(period, since, sessions)
                bar.at(arrived.counted, arrived.line(sessions))
                if arrived.settles_at is not None and arrived.settles_at <= self._now():
                    return

    def _arrived(self, period: Period, since: float, wanted: int) -> Arrived:
        """Return how many sessions that count have ended, and when the windows of the first of them are over.

        Those of the hold-out, those without turns, and those that our own failure ended count nowhere. What
        is to be trained on needs consent; a trial may be decided without.
        """
        ended = [
            session
            for session in self._store.sessions(source=Source.LIVE, ended=True, since=since)
            if session.arm in ARMS and session.ending is not Ending.INFRASTRUCTURE
        ]
        given = [session for session in ended if session.consent or period == "ab"]
        if period == "live" and len(given) >= wanted:
            agreed = self._store.accounts.consented([(s.organisation, s.user) for s in given])
            given = [session for session in given if agreed[session.organisation, session.user]]
        withheld = len(ended) - len(given)
        if len(given) < wanted:
            return Arrived(counted=len(given), withheld=withheld)
        turns = self._store.turns_of([session.id for session in given])
        counted = [turns[session.id] for session in given if turns.get(session.id)][:wanted]
        settles_at = max(map(self._definition.settles_at, counted), default=0.0)
        whole = len(counted) == wanted
        return Arrived(counted=len(counted), withheld=withheld, settles_at=settles_at if whole else None)

    def clock(self) -> float:
        return self._now()

    def strata(self) -> Mapping[str, str]:
        return strata_of_people(self._store, self._tokenizer)


def strata_of_people(store: Store, tokenizer: Tokenizer) -> Mapping[str, str]:
    """Return the stratum of each ended live session whose prompt is not at its end, by the session's id.

    A session whose first prompt cannot be read is in none; the collection puts such sessions together.
    """
    ended = [session.id for session in store.sessions(source=Source.LIVE, ended=True)]
    phases = Ledger(store).live_prompts(ended)
    waiting = [id_ for id_ in ended if phases[id_][1] in {None, Phase.RESERVED, Phase.OFFERED}]
    read = {id_: request_of(turns, tokenizer) for id_, turns in store.turns_of(waiting).items()}
    return strata({id_: request for id_, request in read.items() if request is not None})
