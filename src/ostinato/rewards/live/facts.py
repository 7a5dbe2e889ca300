"""The facts that a definition may name, each read from a session's turns and signals.

A reader returns None while nothing is known of its fact. It never guesses: what silence is worth is a matter
of the definition.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from ostinato.extend import Registry, guarded
from ostinato.rewards.live.verdicts import LiveVerdict, verdicts
from ostinato.rewards.parts.effort import concave_effort
from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.parts.faults import broken
from ostinato.rewards.signals import number, without_side_calls
from ostinato.types import Signal, SignalKind, Turn, TurnOutline

CLEAREST = 0.5
"""The probability of dissatisfaction from which a follow-up names itself as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The shape of the price of effort, C(x) over turns and sampled tokens."""

    k: float = 0.3
    q: float = 1.5
    tokens_per_turn: float = 500.0
    """Sampled tokens that cost as much as one more turn."""


class SessionFacts:
    """A session's turns, its signals in order of time, and the verdicts in them, read once."""

    def __init__(self, turns: Sequence[Turn | TurnOutline], signals: Iterable[Signal]) -> None:
        self.turns = without_side_calls(turns)
        self.signals = sorted(signals, key=lambda one: (one.observed_at, one.received_at or 0.0, one.id))
        self.ended_at = max((turn.started_at + turn.latency_s for turn in self.turns), default=None)
        self.verdicts = verdicts(self.signals)
        self.by_kind: dict[SignalKind, list[Signal]] = {}
        for signal in self.signals:
            self.by_kind.setdefault(signal.kind, []).append(signal)

    def of(self, kind: SignalKind) -> Sequence[Signal]:
        return self.by_kind.get(kind, ())

    def age(self, signal: Signal) -> float:
        """Return the seconds from the turn that a signal is about, or the last one, to the signal."""
        about = (t.started_at + t.latency_s for t in self.turns if t.index == signal.turn)
        return signal.observed_at - next(about, self.ended_at or signal.observed_at)


Read = Callable[[SessionFacts, float, Price], Fact | None]
"""A reader: the session, the age in seconds that the definition asks about, and the price of effort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The reader of one named fact, and the values that the fact can have."""

    read: Read
    low: float = 0.0
    high: float = 1.0
    at_an_age: bool = False
    """True when the definition must say at which age of the edit (`at_s`)."""


def _share(outcome: LiveVerdict, facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return the share of the session's subjects on which this is the verdict."""
    if not facts.verdicts:
        return None
    ids = tuple(signal.id for verdict, signal in facts.verdicts if verdict is outcome)
    return Fact(value=len(ids) / len(facts.verdicts), evidence=ids)


def _all(outcome: LiveVerdict, facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return 1 when this is the verdict on every subject: no other edit makes up for one that was undone."""
    share = _share(outcome, facts, _at, _price)
    return share and replace(share, value=float(share.value == 1.0))


def _at_least_one(outcome: LiveVerdict, facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return 1 when this is the verdict on any subject, however many others there are."""
    share = _share(outcome, facts, _at, _price)
    return share and replace(share, value=float(share.value > 0.0))


def _share_kept(facts: SessionFacts, at: float, _price: Price) -> Fact | None:
    """Return the mean over edits of the share that was left when the edit was first seen at that age."""
    first: dict[str | None, Signal] = {}
    for signal in facts.of(SignalKind.EDIT_SURVIVAL):
        if facts.age(signal) >= at:
            first.setdefault(signal.edit, signal)
    return _mean(first.values())


def _committed(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return the mean over committed edits of the share that the latest commit of each holds."""
    return _mean({signal.edit: signal for signal in facts.of(SignalKind.EDIT_COMMITTED)}.values())


def _any(kind: SignalKind, facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return 1 when it happened, however often: the second time is about the same work."""
    ids = tuple(signal.id for signal in facts.of(kind) if number(signal) > 0)
    return Fact(value=float(bool(ids)), evidence=ids) if facts.of(kind) else None


def _follow_up(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return the probability of dissatisfaction of the clearest follow-up."""
    said = facts.of(SignalKind.FOLLOW_UP)
    if not said:
        return None
    worst = max(said, key=number)
    return Fact(value=_bounded(worst), evidence=(worst.id,) if number(worst) >= CLEAREST else ())


def _rating(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return the mean thumb, from -1 to 1: the latest on each turn counts."""
    last = {signal.turn: signal for signal in facts.of(SignalKind.RATING)}
    return _signed(last.values())


def _tests(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return 1 when the tests that the developer ran last passed, -1 when they failed."""
    return _signed(facts.of(SignalKind.TESTS_RUN)[-1:])


def _denied(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return the share of the agent's requests for permission that the developer denied."""
    asked = facts.of(SignalKind.TOOL_DECISION)
    ids = tuple(signal.id for signal in asked if number(signal) <= 0)
    return Fact(value=len(ids) / len(asked), evidence=ids) if asked else None


def _broken(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    return broken(facts.turns)


def _effort(facts: SessionFacts, _at: float, price: Price) -> Fact | None:
    """Return C(x) over what every client's record tells: turns, and the tokens sampled in them."""
    sampled = sum(turn.sampled for turn in facts.turns)
    return Fact(
        value=concave_effort(len(facts.turns) + sampled / price.tokens_per_turn, k=price.k, q=price.q)
    )


def _latency(facts: SessionFacts, _at: float, _price: Price) -> Fact | None:
    """Return ln(1 + the mean seconds that a turn took)."""
    if not facts.turns:
        return None
    return Fact(value=math.log1p(fmean(max(turn.latency_s, 0.0) for turn in facts.turns)))


def _mean(signals: Iterable[Signal]) -> Fact | None:
    found = list(signals)
    if not found:
        return None
    return Fact(value=fmean(map(_bounded, found)), evidence=tuple(signal.id for signal in found))


def _signed(signals: Iterable[Signal]) -> Fact | None:
    fact = _mean(signals)
    return fact and Fact(value=2 * fact.value - 1, evidence=fact.evidence)


def _bounded(signal: Signal) -> float:
    return min(1.0, max(0.0, number(signal)))


_OURS: Mapping[str, Reader] = {
    **{outcome.value: Reader(read=partial(_share, outcome)) for outcome in LiveVerdict},
    "all_kept": Reader(read=partial(_all, LiveVerdict.KEPT)),
    "any_reverted": Reader(read=partial(_at_least_one, LiveVerdict.REVERTED)),
    "share_kept": Reader(read=_share_kept, at_an_age=True),
    "committed": Reader(read=_committed),
    "complaint": Reader(read=partial(_any, SignalKind.COMPLAINT)),
    "follow_up": Reader(read=_follow_up),
    "rating": Reader(read=_rating, low=-1.0),
    "denied": Reader(read=_denied),
    "cancelled": Reader(read=partial(_any, SignalKind.CANCELLED)),
    "tests": Reader(read=_tests, low=-1.0),
    "broken": Reader(read=_broken, high=math.inf),
    "effort": Reader(read=_effort, high=math.inf),
    "latency": Reader(read=_latency, high=math.inf),
}
READERS = Registry("live fact", _OURS)
"""The facts that a definition may name: ours, and those of plug-ins."""

Read1 = Callable[[SessionFacts], Fact | None]


def live_fact(name: str, *, low: float = 0.0, high: float = 1.0) -> Callable[[Read1], Read1]:
    """Return a decorator that adds a fact which `[parts.NAME]` of a live definition may then name.

    The function reads one session; None while nothing is known. Values lie between `low` and `high`. A
    session on which it fails is not learnt from until the plug-in is mended: its part stays censored.
    """

    def add(function: Read1) -> Read1:
        def read(facts: SessionFacts) -> Fact | None:
            fact = function(facts)
            if fact is not None and not (math.isfinite(fact.value) and low <= fact.value <= high):
                raise ValueError(f"it returned {fact.value}, which does not lie between {low:g} and {high:g}")
            return fact

        checked = guarded(f"live fact {name}", read)
        READERS.add(name, Reader(read=lambda facts, _at, _price: checked(facts), low=low, high=high))
        return function

    return add
