"""Simulated trials whose wrong edits are undone late, judged by the shipped reward and the shipped outcomes.

A session has one edit, which its developer keeps at once. A wrong one is undone later, and what is left of it
is measured by the hooks' own windows. Rewards and outcomes are read by the definition itself, once for each
delay, since sessions with equal facts have equal ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from ostinato.deploy.abtest import judge
from ostinato.deploy.late import judge_outcomes
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.outcomes import read_outcomes
from ostinato.types import Decision, FinishReason, Signal, SignalKind, TurnKind, TurnOutline, Verdict

HOUR = 3600.0
MEASURED_H = (0.25, 1.0, 24.0, 72.0, 168.0)
"""The ages at which the hooks measure what is left, in hours."""
TURN = TurnOutline(
    session_id="s",
    index=0,
    started_at=0.0,
    latency_s=0.0,
    broken=None,
    kind=TurnKind.MAIN,
    finish=FinishReason.STOP,
    sampled=100,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version: how often its edit is right, and after how many hours a wrong one is undone.

    >>> Version(right=0.6, undone_h=1.0).undone_h
    1.0
    """

    right: float
    undone_h: float


def signals(undone_h: float | None) -> list[Signal]:
    """Return all that is ever heard of one edit, which is undone after so many hours, None for never."""

    def said(kind: SignalKind, value: float, hours: float) -> Signal:
        id_ = f"{kind.value}/{hours:g}"
        at = hours * HOUR
        return Signal(id=id_, session_id="s", kind=kind, value=value, observed_at=at, turn=0, edit="e")

    heard = [said(SignalKind.EDIT_KEPT, 1.0, 0.25)]
    if undone_h is not None:
        heard.append(said(SignalKind.EDIT_REVERTED, 1.0, undone_h))
    gone = float("inf") if undone_h is None else undone_h
    return heard + [said(SignalKind.EDIT_SURVIVAL, float(hours < gone), hours) for hours in MEASURED_H]


@cache
def reward(undone_h: float | None, after_s: float = LIVE.train_after_s) -> float:
    """Return the shipped reward of a session at that age."""
    return LIVE.score("s", [TURN], signals(undone_h), as_of=after_s).total


@cache
def _outcomes(undone_h: float | None) -> Mapping[str, float | None]:
    return read_outcomes(LIVE.outcomes, [TURN], signals(undone_h), as_of=1e9, next_at=HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict of one trial, and what late facts made of its promotion; None where there was none."""

    trial: Verdict
    late: Verdict | None
    settled_h: float = 0.0
    """The hours from the trial's end until it was settled."""

    @property
    def stays(self) -> bool:
        """True when the challenger is served after its outcome window."""
        return self.trial.decision.promotes and (
            self.late is None or self.late.decision is not Decision.DEMOTE
        )


def simulate(
    rng: np.random.Generator,
    champion: Version,
    challenger: Version,
    *,
    users: int = 80,
    each: int = 10,
    alike: float = 0.5,
    alpha: float = 0.0219,
    late: bool = True,
) -> Judged:
    """Return one trial of `each` sessions of each user within a day, and its outcomes every twelve hours.

    `alike` is the standard deviation of a user's habit in log-odds.
    """
    on = rng.permutation(np.arange(users) % 2).astype(bool)
    habit = rng.normal(0.0, alike, users)
    sessions: list[tuple[TrialSession, float | None]] = []
    for user in range(users):
        mine = challenger if on[user] else champion
        p = 1 / (1 + (1 - mine.right) / mine.right * np.exp(-habit[user]))
        for right, at in zip(rng.random(each) < p, rng.uniform(0, 24, each), strict=True):
            undone = None if right else mine.undone_h
            arm = "challenger" if on[user] else "champion"
            about = TrialSession(arm=arm, user=str(user), at=at * HOUR, value=reward(undone), tokens=100.0)
            sessions.append((about, undone))
    trial = Trial(experiment="e", share=0.5, horizon=len(sessions), alpha=alpha)
    verdict = judge(7, trial, [session for session, _ in sessions], closed=True)
    if not verdict.decision.promotes or not late:
        return Judged(trial=verdict, late=None)
    margins = {name: outcome.margin for name, outcome in LIVE.outcomes.items()}
    for hours in range(36, 20 * 12 + 1, 12):
        told = {
            name: [
                (session, outcome.silence if value is None else value, value is not None)
                for session, undone in sessions
                if session.at + outcome.after_s <= hours * HOUR
                for value in [_outcomes(undone)[name]]
            ]
            for name, outcome in LIVE.outcomes.items()
        }
        settled = judge_outcomes(7, trial, margins, told, len(sessions))
        if settled.decision is not Decision.HOLD:
            return Judged(trial=verdict, late=settled, settled_h=hours - 24.0)
    raise AssertionError("the outcome window is over and the promotion is still provisional")
