"""The shadow of a candidate: it answers recorded requests beside the champion, and nobody sees the answers.

It catches what no held-out task shows and no person should meet: an engine that fails, answers that cannot be
read, and answers that are slow or run on. It says nothing of quality, so it only ever refuses.

A refusal refutes "this rate rose by no more than its limit"; the chance of refusing an equal candidate is
`HARM` for all rates together, by Holm's rule.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log

import numpy as np

from ostinato.deploy.statistics import Estimate, clustered, holm, interval, tail
from ostinato.types import Decision, Verdict

HARM = 0.01
"""The chance of refusing a candidate that is like the champion."""
LIMITS = {"failed": 0.02, "unreadable": 0.05, "cut": 0.10, "latency": log(1.5), "length": log(2.0)}
"""The rise that is too much: the first three are shares of requests, the others mean logarithms of seconds a
token and of tokens, so half as slow again and twice as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowAnswer:
    """One answer of one version to a recorded request.

    >>> ShadowAnswer(failed=False, unreadable=False, cut=False, seconds=0.5, tokens=20).rate("cut")
    0.0
    """

    failed: bool
    """True when the engine gave no answer; the rest is then unknown."""
    unreadable: bool = False
    """True when a call in it cannot be read."""
    cut: bool = False
    """True when it came to the limit of tokens."""
    seconds: float = 0.0
    tokens: int = 0

    def rate(self, name: str) -> float:
        """Return the value of one of `LIMITS`, NaN for one that a failed answer does not have."""
        if name == "failed":
            return float(self.failed)
        if self.failed:
            return float("nan")
        if name == "latency":
            return log(max(self.seconds, 1e-4) / max(self.tokens, 1))
        return log(max(self.tokens, 1)) if name == "length" else float(getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowPair:
    """The answers of both versions to one request of a person.

    >>> answer = ShadowAnswer(failed=False, seconds=0.5, tokens=20)
    >>> ShadowPair(user="ada", champion=answer, candidate=answer).user
    'ada'
    """

    user: str
    champion: ShadowAnswer
    candidate: ShadowAnswer


def compare_shadow(version: int, pairs: Sequence[ShadowPair]) -> Verdict:
    """Return ROLL_BACK when a rate is shown to have risen by more than its limit, ADMIT otherwise.

    Requests of one person are one piece of evidence.
    """
    changes = {name: _change(name, pairs) for name in LIMITS}
    evidence = {
        "requests": len(pairs),
        "users": len({pair.user for pair in pairs}),
        "shadow": {name: asdict(interval(each, HARM)) for name, each in changes.items()},
    }
    p_values = [float(tail(each, LIMITS[name])) for name, each in changes.items()]
    refuted = holm(p_values, HARM)
    shown = [
        f"{name} rose by {interval(each, HARM)}"
        for (name, each), yes in zip(changes.items(), refuted, strict=True)
        if yes
    ]
    decision = Decision.ROLL_BACK if shown else Decision.ADMIT
    reason = "; ".join(shown) or f"nothing wrong in {len(pairs)} answers that nobody saw"
    return Verdict(version=version, decision=decision, reason=f"shadow: {reason}", evidence=evidence)


def _change(name: str, pairs: Sequence[ShadowPair]) -> Estimate:
    """Return candidate minus champion in one rate, clustered by person.

    Half a request with the rise of 1 and half a one with the fall are added, as at the gate, so that versions
    that agree on few requests are not taken to agree on all.
    """
    users = sorted({pair.user for pair in pairs})
    place = {user: number for number, user in enumerate(users)}
    sums, weights = np.zeros(len(users) + 2), np.zeros(len(users) + 2)
    for pair in pairs:
        difference = pair.candidate.rate(name) - pair.champion.rate(name)
        if np.isfinite(difference):
            sums[place[pair.user]] += difference
            weights[place[pair.user]] += 1.0
    sums[-2:], weights[-2:] = (0.5, -0.5), 0.5
    return clustered(sums, weights)
