"""Practice: whole groups of sessions on one prompt each, scored and offered to the ledger.

Invariants: a prompt is reserved before its first session and never again; a group is offered once, whole;
every turn of every session ends in exactly one State. A void session leaves its group, it is never a reward
of zero.

::

    pebble ─► reserve ─► G sessions at once ─► verify ─► reward − group mean = advantage ─► Ledger.offer
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.rewards.definition import Definition
from ostinato.store import Store
from ostinato.store.ledger import Ledger
from ostinato.tasks.pebble import Pebble, provide
from ostinato.train.advantages import group_advantages
from ostinato.train.samples import UntrainableError, samples_of, trainable
from ostinato.types import Group, Reward, Sample, Source, State, Task, new_id

log = logging.getLogger(__name__)
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeConfig:
    """How sessions are sampled."""

    group_size: int = 8
    groups_at_once: int = 12
    ready_ahead: int = 12
    """No new group starts while this many wait for the trainer: what waits grows stale."""


@dataclass(slots=True)
class Progress:
    """Running totals for whoever shows them."""

    groups: int = 0
    sessions: int = 0
    solved: int = 0
    void: int = 0
    untrainable: int = 0
    recent: list[float] = field(default_factory=list)


class Practice:
    """Keeps groups in flight until told to stop, then lets the running ones end."""

    def __init__(
        self,
        runner: EpisodeRunner,
        store: Store,
        definition: Definition,
        directory: Path,
        config: PracticeConfig,
    ) -> None:
        self._runner = runner
        self._store = store
        self._ledger = Ledger(store)
        self._definition = definition
        self._directory = directory
        self._config = config
        self.progress = Progress()

    async def run(self, pebbles: Iterator[Pebble], stop: Callable[[], bool]) -> None:
        """Samples from `pebbles` until `stop()`; returns when no session is in flight."""
        workers = (self._worker(pebbles, stop) for _ in range(self._config.groups_at_once))
        await asyncio.gather(*workers)

    async def _worker(self, pebbles: Iterator[Pebble], stop: Callable[[], bool]) -> None:
        while not stop():
            if self._ledger.ready(0) >= self._config.ready_ahead:
                await asyncio.sleep(POLL_S)
                continue
            pebble = next(pebbles)
            if self._ledger.reserve(pebble.key):
                await self._group(pebble)

    async def _group(self, pebble: Pebble) -> None:
        task = provide(pebble, self._directory / pebble.id)
        episodes = await asyncio.gather(*(self._episode(task) for _ in range(self._config.group_size)))
        scored = [episode for episode in episodes if episode.void is None]
        self._void([episode for episode in episodes if episode.void is not None])
        if scored:
            self._offer(pebble.key, scored)
        self._count(episodes)

    async def _episode(self, task: Task) -> Episode:
        return await self._runner.run(task, CardUser(task), source=Source.PRACTICE)

    def _void(self, episodes: list[Episode]) -> None:
        for episode in episodes:
            log.warning("void session %s on %s: %s", episode.session_id, episode.task.id, episode.void)
        self._ledger.account_sessions([episode.session_id for episode in episodes], State.VOID)

    def _offer(self, prompt: str, episodes: list[Episode]) -> None:
        self._store.record((), [signal for episode in episodes for signal in episode.signals()])
        rewards = self._rewards(episodes)
        advantages = group_advantages([reward.total for reward in rewards])
        samples = [
            sample
            for episode, advantage in zip(episodes, advantages, strict=True)
            for sample in self._samples(episode, advantage)
        ]
        if samples:
            totals = tuple(reward.total for reward in rewards)
            self._ledger.offer(Group(id=new_id(), prompt=prompt, samples=tuple(samples), rewards=totals))

    def _rewards(self, episodes: list[Episode]) -> list[Reward]:
        ids = [episode.session_id for episode in episodes]
        turns, signals = self._store.turns_of(ids), self._store.signals_of(ids)
        rewards = [self._definition.score(id_, turns.get(id_, []), signals.get(id_, [])) for id_ in ids]
        self._store.add_rewards(rewards)
        return rewards

    def _samples(self, episode: Episode, advantage: float) -> list[Sample]:
        turns, others = trainable(self._store.turns(episode.session_id))
        self._ledger.account([turn.id for turn in others], State.UNTRAINABLE)
        try:
            return samples_of(turns, advantage)
        except UntrainableError as error:
            log.warning("untrainable session %s: %s", episode.session_id, error)
            self._ledger.account_sessions([episode.session_id], State.UNTRAINABLE)
            self.progress.untrainable += 1
            return []

    def _count(self, episodes: list[Episode]) -> None:
        self.progress.groups += 1
        self.progress.sessions += len(episodes)
        self.progress.void += sum(episode.void is not None for episode in episodes)
        self.progress.solved += sum(episode.solved for episode in episodes)
        self.progress.recent = [*self.progress.recent[-39:], sum(e.solved for e in episodes) / len(episodes)]
