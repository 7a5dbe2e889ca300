"""Real people: the sessions that they bring, and the traces of them in a store that must not be deleted."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from ostinato.loop.base import Period
from ostinato.loop.stages.strata import strata_of_people
from ostinato.loop.trial import ARMS
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE, LiveDefinition
from ostinato.store import Store, StoreError
from ostinato.types import Ending, Source

POLL_S = 5.0

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


class PeopleTraffic:
    """The sessions of people: they come by themselves through the gateway, so the loop only waits for them.

    Those that `ostinato serve` recorded in the same store before count too. When there are enough, it waits
    until the attribution windows of all of them are over, so that each can be judged. `now` returns the time
    in seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        tokenizer: Tokenizer,
        *,
        definition: LiveDefinition = LIVE,
        now: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
    ) -> None:
        self._store = store
        self._tokenizer = tokenizer
        self._definition = definition
        self._now = now
        self._poll_s = poll_s

    async def arrive(self, period: Period, since: float, sessions: int) -> None:
        """Look at whole multiples of the pause alone, so that a resumed process does as others do."""
        while True:
            await asyncio.sleep(self._poll_s - self._now() % self._poll_s)
            if self._settled(since, sessions):
                return

    def _settled(self, since: float, wanted: int) -> bool:
        """Return whether so many sessions that count have ended, and the windows of the first of them too.

        Those of the hold-out, those without turns, and those that our own failure ended count nowhere.
        """
        ended = [
            session
            for session in self._store.sessions(source=Source.LIVE, ended=True, since=since)
            if session.arm in ARMS and session.ending is not Ending.INFRASTRUCTURE
        ]
        if len(ended) < wanted:
            return False
        turns = self._store.turns_of([session.id for session in ended])
        counted = [turns[session.id] for session in ended if turns.get(session.id)][:wanted]
        settled_at = max(map(self._definition.settles_at, counted), default=0.0)
        return len(counted) == wanted and settled_at <= self._now()

    def clock(self) -> float:
        return self._now()

    def strata(self) -> Mapping[str, str]:
        return strata_of_people(self._store, self._tokenizer)
