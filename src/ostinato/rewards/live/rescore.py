"""Scoring again: facts that arrived since change the rewards of sessions that were scored before."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ostinato.rewards.live.definition import LiveDefinition, Scorer
from ostinato.rewards.signals import SignalValueError
from ostinato.store import Store
from ostinato.store.definitions import add_changed, keep_definition
from ostinato.store.outlines import outlines_of
from ostinato.types import Ending, Reward, Session, Source

AT_ONCE = 2_000
"""Sessions that are read and written by one query each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """The figures of one pass over the record.

    >>> Rescored(sessions=3, changed=1, without_reward=0).changed
    1
    """

    sessions: int
    changed: int
    """Sessions whose reward differs from the last one on record; the new one is appended."""
    without_reward: int
    """Sessions that our own failure ended, or that hold a signal which cannot be read."""


def canonical(reward: Reward) -> bytes:
    """Return the bytes of a reward: equal facts, definition and moment give equal bytes, in any order."""
    return json.dumps(asdict(reward), sort_keys=True, separators=(",", ":")).encode()


def rescore(
    store: Store, definition: LiveDefinition, sessions: Sequence[Session], *, as_of: float
) -> Rescored:
    """Score live sessions by all that is known at `as_of`; append each reward that changed."""
    keep_definition(store, definition.hash(), definition.text())
    scorer = Scorer(definition)
    live = [session for session in sessions if session.source is Source.LIVE]
    mine = [session.id for session in live if session.ending is not Ending.INFRASTRUCTURE]
    changed, without = 0, len(live) - len(mine)
    for start in range(0, len(mine), AT_ONCE):
        ids = mine[start : start + AT_ONCE]
        scored = list(_scored(store, scorer, ids, as_of))
        changed += add_changed(store, scored)
        without += len(ids) - len(scored)
    return Rescored(sessions=len(live), changed=changed, without_reward=without)


def _scored(store: Store, scorer: Scorer, ids: Sequence[str], as_of: float) -> Iterator[Reward]:
    turns, signals = outlines_of(store, ids), store.signals_of(ids)
    for id_ in ids:
        try:
            yield scorer.score(id_, turns.get(id_, []), signals.get(id_, []), as_of)
        except SignalValueError:
            continue
