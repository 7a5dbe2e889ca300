"""Live sessions and their signals ─► rewards ─► groups of one for the ledger.

A live prompt is sampled once, so there is no group to compare with: the baseline is the mean reward of the
other sessions of the same stratum (the kind of request).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.rewards.definition import Definition
from ostinato.store import Store
from ostinato.store.ledger import Ledger
from ostinato.train.advantages import leave_one_out
from ostinato.train.samples import UntrainableError, samples_of, trainable
from ostinato.types import Ending, Group, Reward, Session, Source, State, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What one collection gave."""

    sessions: int
    signals: int
    offered: int
    censored: int
    untrainable: int
    withheld: int
    """Sessions that may not be trained on: no consent when they began, or taken back since."""
    mean_reward: float


class Collector:
    """Turns ended live sessions of one arm into groups, each session once."""

    def __init__(self, store: Store, definition: Definition) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._definition = definition

    def harvest(self, arm: str, stratum_of: Mapping[str, str]) -> Harvest:
        """`stratum_of` maps a task id to its stratum. Sessions whose reward is still censored wait."""
        ended = self._store.sessions(source=Source.LIVE, arm=arm, ended=True)
        ours = [session for session in ended if session.ending is not Ending.INFRASTRUCTURE]
        sessions, withheld = self._split(ours)
        self._ledger.account_sessions([session.id for session in withheld], State.WITHHELD)
        rewards = self._rewards(sessions)
        ripe = [(s, r) for s, r in zip(sessions, rewards, strict=True) if not _censored(r)]
        waiting = [s.id for s, r in zip(sessions, rewards, strict=True) if _censored(r)]
        self._ledger.account_sessions(waiting, State.CENSORED)
        fresh = [(s, r) for s, r in ripe if self._ledger.reserve(f"live/{s.id}")]
        advantages = leave_one_out(
            [r.total for _, r in fresh], [stratum_of.get(s.task_id or "", "") for s, _ in fresh]
        )
        offered = [self._offer(s, r, a) for (s, r), a in zip(fresh, advantages, strict=True)]
        return Harvest(
            sessions=len(sessions),
            signals=sum(map(len, self._store.signals_of([s.id for s in sessions]).values())),
            offered=sum(offered),
            censored=len(sessions) - len(ripe),
            untrainable=len(offered) - sum(offered),
            withheld=len(withheld),
            mean_reward=sum(r.total for _, r in ripe) / max(1, len(ripe)),
        )

    def _split(self, sessions: Sequence[Session]) -> tuple[list[Session], list[Session]]:
        """Those whose people agreed when they began and still do, and the others."""
        agreed = self._store.accounts.consented([(s.organisation, s.user) for s in sessions])
        given = [s.consent and agreed[s.organisation, s.user] for s in sessions]
        pairs = list(zip(sessions, given, strict=True))
        return [s for s, yes in pairs if yes], [s for s, yes in pairs if not yes]

    def _rewards(self, sessions: Sequence[Session]) -> list[Reward]:
        ids = [session.id for session in sessions]
        turns, signals = self._store.turns_of(ids), self._store.signals_of(ids)
        rewards = [self._definition.score(id_, turns.get(id_, []), signals.get(id_, [])) for id_ in ids]
        self._store.add_rewards(rewards)
        return rewards

    def _offer(self, session: Session, reward: Reward, advantage: float) -> bool:
        turns, others = trainable(self._store.turns(session.id))
        for reason, some in others.items():
            self._ledger.account([turn.id for turn in some], State.UNTRAINABLE, reason)
        try:
            samples = samples_of(turns, advantage)
        except UntrainableError as error:
            self._ledger.account([turn.id for turn in turns], State.UNTRAINABLE, error.reason)
            return False
        group = Group(
            id=new_id(), prompt=f"live/{session.id}", samples=tuple(samples), rewards=(reward.total,)
        )
        self._ledger.offer(group)
        return True


def _censored(reward: Reward) -> bool:
    return any(part.censored for part in reward.parts)
