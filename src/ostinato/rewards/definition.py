"""Definitions of reward: a session's turns and signals ─► a Reward with named parts and their evidence.

A definition is data with a hash. Every stored Reward carries the hash, so a changed weight is a different
reward and never mixes silently with the old one.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from ostinato.rewards.broken import broken
from ostinato.rewards.effort import effort
from ostinato.rewards.feedback import complaint, outcome
from ostinato.rewards.reported import unreported
from ostinato.rewards.signals import known_at, refuse_void, without_side_calls
from ostinato.rewards.solved import solved
from ostinato.rewards.tamper import tampered
from ostinato.types import Grade, Reward, RewardPart, Signal, SignalKind, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(ABC):
    """A definition of reward: its weights, and the price of broken calls and effort that all share."""

    KIND: ClassVar[str]
    """The kind's name in the hash. Stored rewards carry the hash, so the name never changes."""

    broken: float = 0.5
    """The cost of a call that could not be read."""
    effort: float = 0.02
    """The weight of C(x), whose shape `effort_k` and `effort_q` give."""
    effort_k: float = 0.3
    effort_q: float = 1.5
    effort_tokens: float = 500.0
    """Sampled tokens that cost as much as one more turn."""

    def hash(self) -> str:
        """Return 12 hexadecimal digits that depend on the kind and on every weight."""
        text = json.dumps([self.KIND, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Return the reward of one session; raises VoidSessionError, SignalValueError.

        Training and the A/B trial call this with the same arguments and the same meaning of `as_of`, a moment
        in seconds since the epoch: signals observed after it do not count, and a fact whose window is over by
        then is no longer waited for. With None every signal counts and no window is ever over.
        """
        refuse_void(session_id, signals)
        turns = without_side_calls(turns)
        price = effort(
            turns,
            weight=self.effort,
            k=self.effort_k,
            q=self.effort_q,
            tokens_per_turn=self.effort_tokens,
        )
        parts = (*self._parts(turns, signals, as_of), price)
        return Reward(session_id=session_id, definition=self.hash(), parts=parts)

    @abstractmethod
    def _parts(
        self, turns: Sequence[Turn], signals: Sequence[Signal], as_of: float | None
    ) -> tuple[RewardPart, ...]:
        """Return every part but the effort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeReward(Definition):
    """The reward of a task with hidden tests.

    r = solved·1[hidden tests ∧ ¬tampered ∧ grade ≥ lowest_grade] - broken·calls - tampered·1[tampered]
        - unreported·1[something to report, not reported] - effort·C(turns + tokens / effort_tokens)

    `as_of` changes nothing here: the verdict of the hidden tests is known when the session ends.

    >>> PracticeReward().score("s1", (), ()).total
    0.0
    """

    KIND: ClassVar[str] = "Practice"

    solved: float = 1.0
    tampered: float = 0.2
    unreported: float = 0.3
    lowest_grade: Grade = Grade.GUARDED
    """The lowest grade of a verdict whose pass is paid for (`docs/verdict.md`).

    A policy that is trained on forgeable passes may learn to forge them.
    """

    def _parts(
        self, turns: Sequence[Turn], signals: Sequence[Signal], as_of: float | None
    ) -> tuple[RewardPart, ...]:
        return (
            solved(signals, weight=self.solved, lowest=self.lowest_grade),
            broken(turns, weight=self.broken),
            tampered(signals, weight=self.tampered),
            unreported(signals, weight=self.unreported),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReward(Definition):
    """The reward of a session with a developer, from what they did with the result.

    Not finishing is no way out: by default an abandoned session is worth as little as a reverted edit, and
    less than an edit that was kept after changes.

    The outcome is `observed` when there is feedback by `as_of`, `censored` while the window is open, and
    `expired` with the worth of `silence` from `as_of` = end of the last turn + `window_s` on. Sessions are
    compared at equal age by scoring each as of its own end plus that age.

    >>> LiveReward().score("s1", (), ()).parts[0].censored
    True
    """

    KIND: ClassVar[str] = "Live"

    kept: float = 1.0
    edited: float = 0.5
    reverted: float = -0.5
    answered: float = 1.0
    answered_wrongly: float = -0.5
    abandoned: float = -0.5
    complaint: float = 0.3
    silence: float = 0.0
    """The outcome of a session without any feedback within the window."""
    window_s: float = 86_400.0
    """Seconds after the session's last turn in which feedback on its outcome is waited for. Feedback that
    comes later still counts: the session is then scored anew."""

    def _parts(
        self, turns: Sequence[Turn], signals: Sequence[Signal], as_of: float | None
    ) -> tuple[RewardPart, ...]:
        signals = known_at(signals, as_of)
        worth = {
            SignalKind.EDIT_KEPT: self.kept,
            SignalKind.EDIT_EDITED: self.edited,
            SignalKind.EDIT_REVERTED: self.reverted,
            SignalKind.NO_EDIT_WANTED: self.answered,
            SignalKind.ABANDONED: self.abandoned,
        }
        window_over = as_of is not None and bool(turns) and as_of >= self.settles_at(turns)
        return (
            outcome(
                signals,
                worth=worth,
                wrong_answer=self.answered_wrongly,
                silence=self.silence,
                window_over=window_over,
            ),
            complaint(signals, weight=self.complaint),
            broken(turns, weight=self.broken),
        )

    def settles_at(self, turns: Sequence[Turn]) -> float:
        """Return the end of the window of a session with these turns, in seconds since the epoch."""
        return max(turn.started_at + turn.latency_s for turn in turns) + self.window_s

    def settled(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float
    ) -> Reward | None:
        """Return the reward as of the end of the session's own window, or None while that is open.

        A session without turns has no window and returns None too.

        Whether a session counts depends on its age alone, never on the feedback so far, and all sessions that
        count are scored at the same age.
        """
        turns = without_side_calls(turns)
        if not turns or (end := self.settles_at(turns)) > as_of:
            return None
        return self.score(session_id, turns, signals, as_of=end)


PRACTICE = PracticeReward()
LIVE = LiveReward()
