"""Simulated developers at work: they use whatever version their arm deploys, through the harness and the
gateway.

What a developer does with the result goes to the gateway's `/feedback` under their own key, as from a real
client.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import Episode, EpisodeRunner
from ostinato.store import Ledger, Stage, Store
from ostinato.tasks.developers import Developer
from ostinato.tasks.pebble import Pebble, provide
from ostinato.types import Signal, Source, State, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A developer and the connection under their own key."""

    developer: Developer
    client: GatewayClient


class Traffic:
    """Lets developers work; each has one session at a time, as people do."""

    def __init__(self, runner: EpisodeRunner, store: Store, directory: Path) -> None:
        self._runner = runner
        self._ledger = Ledger(store)
        self._directory = directory

    async def work(
        self,
        seats: Sequence[Seat],
        draw: Callable[[], Pebble],
        sessions_each: int,
        on_done: Callable[[Episode], None] = lambda _: None,
    ) -> list[Episode]:
        """Every developer brings `sessions_each` requests; gives the episodes that were not void."""
        days = await asyncio.gather(*(self._day(seat, draw, sessions_each, on_done) for seat in seats))
        return [episode for day in days for episode in day]

    async def _day(
        self, seat: Seat, draw: Callable[[], Pebble], sessions: int, on_done: Callable[[Episode], None]
    ) -> list[Episode]:
        episodes = []
        for _ in range(sessions):
            episode = await self._request(seat, draw)
            on_done(episode)
            if episode.void is None:
                episodes.append(episode)
            else:
                self._ledger.account_sessions([episode.session_id], State.VOID)
        return episodes

    def _reserve(self, draw: Callable[[], Pebble], session_id: str) -> Pebble:
        """The next task whose prompt no stage has shown before; the session will be collected under it."""
        while not self._ledger.reserve((pebble := draw()).key, Stage.LIVE, [session_id]):
            pass
        return pebble

    async def _request(self, seat: Seat, draw: Callable[[], Pebble]) -> Episode:
        session_id = new_id()
        pebble = self._reserve(draw, session_id)
        task = provide(pebble, self._directory / pebble.id)
        user = seat.developer.on(task)
        episode = await self._runner.run(
            task, user, source=Source.LIVE, client=seat.client, session_id=session_id
        )
        if episode.void is None:
            outcome = episode.outcome
            reactions = user.react(
                turns=outcome.turns, ending=outcome.ending, changed=episode.changed, works=episode.solved
            )
            for kind, value in reactions:
                await seat.client.signal(
                    Signal(session_id=episode.session_id, kind=kind, value=value, observed_at=time.time())
                )
        return episode
