"""The definition of practice's reward: turns and signals ─► a Reward with named parts and evidence.

A definition is data with a hash. Every stored Reward carries the hash, so a changed weight is a different
reward and never mixes silently with the old one.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol

from ostinato.rewards.broken import broken
from ostinato.rewards.effort import effort
from ostinato.rewards.reported import unreported
from ostinato.rewards.signals import refuse_void, without_side_calls
from ostinato.rewards.solved import solved
from ostinato.rewards.tamper import tampered
from ostinato.types import Grade, Reward, Signal, Turn


class Definition(Protocol):
    """A definition of reward, as the rollout sees it."""

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Return the reward of one session; raises VoidSessionError, SignalValueError.

        `as_of` is a moment in seconds since the epoch: signals observed after it do not count, and a fact
        whose window is over by then is no longer waited for. With None every signal counts and no window is
        ever over.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeReward:
    """The reward of a task with hidden tests.

    r = solved·1[hidden tests ∧ ¬tampered ∧ grade ≥ lowest_grade] - broken·calls - tampered·1[tampered]
        - unreported·1[something to report, not reported] - effort·C(turns + tokens / effort_tokens)

    `as_of` changes nothing here: the verdict of the hidden tests is known when the session ends.

    >>> PracticeReward().score("s1", (), ()).total
    0.0
    """

    KIND: ClassVar[str] = "Practice"
    """The kind's name in the hash. Stored rewards carry the hash, so the name never changes."""

    broken: float = 0.5
    """The cost of a call that could not be read."""
    effort: float = 0.02
    """The weight of C(x), whose shape `effort_k` and `effort_q` give."""
    effort_k: float = 0.3
    effort_q: float = 1.5
    effort_tokens: float = 500.0
    """Sampled tokens that cost as much as one more turn."""
    solved: float = 1.0
    tampered: float = 0.2
    unreported: float = 0.3
    lowest_grade: Grade = Grade.GUARDED
    """The lowest grade of a verdict whose pass is paid for (`docs/verdict.md`).

    A policy that is trained on forgeable passes may learn to forge them.
    """

    def hash(self) -> str:
        """Return 12 hexadecimal digits that depend on the kind and on every weight."""
        text = json.dumps([self.KIND, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Return the reward of one session; raises VoidSessionError, SignalValueError."""
        refuse_void(session_id, signals)
        turns = without_side_calls(turns)
        parts = (
            solved(signals, weight=self.solved, lowest=self.lowest_grade),
            broken(turns, weight=self.broken),
            tampered(signals, weight=self.tampered),
            unreported(signals, weight=self.unreported),
            effort(
                turns,
                weight=self.effort,
                k=self.effort_k,
                q=self.effort_q,
                tokens_per_turn=self.effort_tokens,
            ),
        )
        return Reward(session_id=session_id, definition=self.hash(), parts=parts, as_of=as_of)


PRACTICE = PracticeReward()
