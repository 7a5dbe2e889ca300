"""Definitions of reward: a session's turns and signals ─► a Reward with named parts and their evidence.

A definition is data with a hash. Every stored Reward carries the hash, so a changed weight is a different
reward and never mixes silently with the old one.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from ostinato.rewards.broken import broken
from ostinato.rewards.effort import effort
from ostinato.rewards.facts import known_at, of_the_agent, refuse_void
from ostinato.rewards.feedback import complaint, outcome
from ostinato.rewards.reported import unreported
from ostinato.rewards.solved import solved
from ostinato.rewards.tamper import tampered
from ostinato.types import Reward, RewardPart, Signal, SignalKind, Turn


class Definition(Protocol):
    """What rollout needs of a definition."""

    def hash(self) -> str: ...

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """The reward of one session; raises VoidSessionError, SignalValueError.

        Training and the A/B test call this with the same arguments, so the signature and what `as_of` means
        stay as they are. `as_of` is a moment in seconds since the epoch: signals observed after it do not
        count, and a fact whose window is over by then is no longer waited for. For None every signal counts
        and nothing is ever given up.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Reward of a task with hidden tests.

    r = solved·1[hidden tests ∧ ¬tampered ∧ ¬forgeable] - broken·calls - tampered·1[tampered]
        - unreported·1[something to report, not reported] - effort·C(turns + tokens / effort_tokens)

    >>> Practice().score("s1", (), ()).total
    0.0
    """

    solved: float = 1.0
    broken: float = 0.5
    tampered: float = 0.2
    unreported: float = 0.3
    effort: float = 0.02
    effort_k: float = 0.3
    effort_q: float = 1.5
    effort_tokens: float = 500.0
    """Sampled tokens that cost as much as one more turn."""
    accept_forgeable: bool = False
    """Whether a pass counts that the tested code could have written itself (`docs/verdict.md`). A policy that
    is trained on such passes may learn to write them."""

    def hash(self) -> str:
        return _hash(self)

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Raises VoidSessionError, SignalValueError. `as_of` changes nothing: verdicts do not ripen."""
        refuse_void(session_id, signals)
        turns = of_the_agent(turns)
        parts = (
            solved(signals, weight=self.solved, accept_forgeable=self.accept_forgeable),
            broken(turns, weight=self.broken),
            tampered(signals, weight=self.tampered),
            unreported(signals, weight=self.unreported),
            _effort(self, turns),
        )
        return _reward(self, session_id, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Reward of a session with a developer, from what they did with the result.

    Work that is thrown away costs less than work that had to be undone, and not finishing is no way out: an
    abandoned session is worth less than one whose edit was kept after changes.

    >>> Live().score("s1", (), ()).parts[0].censored
    True
    """

    kept: float = 1.0
    edited: float = 0.5
    reverted: float = -0.5
    answered: float = 1.0
    answered_wrongly: float = -0.5
    abandoned: float = -0.5
    complaint: float = 0.3
    broken: float = 0.5
    silence: float = 0.0
    """Outcome of a session of which nobody said anything within the window."""
    effort: float = 0.02
    effort_k: float = 0.3
    effort_q: float = 1.5
    effort_tokens: float = 500.0
    """Sampled tokens that cost as much as one more turn."""
    window_s: float = 86_400.0
    """Seconds after the session's last turn in which a word on its outcome is waited for. A word that comes
    later still counts: the session is then scored anew."""

    def hash(self) -> str:
        return _hash(self)

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Raises VoidSessionError, SignalValueError.

        The outcome is `observed` when somebody said something by `as_of`, `censored` while the window is
        open, and `expired` with the worth of `silence` from `as_of` = end of the last turn + `window_s` on.
        Sessions are compared at equal age by scoring each as of its own end plus that age.
        """
        refuse_void(session_id, signals)
        turns, signals = of_the_agent(turns), known_at(signals, as_of)
        parts = (
            outcome(
                signals,
                worth=self._worth(),
                wrong_answer=self.answered_wrongly,
                silence=self.silence,
                mature=self._mature(turns, as_of),
            ),
            complaint(signals, weight=self.complaint),
            broken(turns, weight=self.broken),
            _effort(self, turns),
        )
        return _reward(self, session_id, parts)

    def _worth(self) -> dict[SignalKind, float]:
        return {
            SignalKind.EDIT_KEPT: self.kept,
            SignalKind.EDIT_EDITED: self.edited,
            SignalKind.EDIT_REVERTED: self.reverted,
            SignalKind.NO_EDIT_WANTED: self.answered,
            SignalKind.ABANDONED: self.abandoned,
        }

    def settles_at(self, turns: Sequence[Turn]) -> float:
        """When the window of a session with these turns is over, in seconds since the epoch."""
        return max(turn.started_at + turn.latency_s for turn in turns) + self.window_s

    def settled(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float
    ) -> Reward | None:
        """The reward as of the end of the session's own window; None while that is open, or without turns.

        Whether a session counts depends on its age alone, never on who has spoken already, and all that count
        are of one age.
        """
        ours = of_the_agent(turns)
        if not ours or (end := self.settles_at(ours)) > as_of:
            return None
        return self.score(session_id, turns, signals, as_of=end)

    def _mature(self, turns: Sequence[Turn], as_of: float | None) -> bool:
        return as_of is not None and bool(turns) and as_of >= self.settles_at(turns)


PRACTICE = Practice()
LIVE = Live()


def _hash(definition: Practice | Live) -> str:
    """12 hexadecimal digits of the kind and every weight."""
    text = json.dumps([type(definition).__name__, asdict(definition)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _reward(definition: Practice | Live, session_id: str, parts: tuple[RewardPart, ...]) -> Reward:
    return Reward(session_id=session_id, definition=definition.hash(), parts=parts)


def _effort(definition: Practice | Live, turns: Sequence[Turn]) -> RewardPart:
    return effort(
        turns,
        weight=definition.effort,
        k=definition.effort_k,
        q=definition.effort_q,
        tokens_per_turn=definition.effort_tokens,
    )
