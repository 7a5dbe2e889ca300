"""The outcomes of a session: facts of later days, which decide whether a promotion stays, and pay nobody.

Each is 1 where all went well and 0 where nothing did, so a fall is a loss. It is read at one age of the
session, from what was observed by then, and a session of which nothing is known has the value of silence: who
makes the facts fail to come gains nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ostinato.rewards.live.facts import SessionFacts
from ostinato.rewards.live.verdicts import LiveVerdict
from ostinato.rewards.signals import known_at, number
from ostinato.types import Signal, SignalKind, Turn, TurnOutline

STAND = {LiveVerdict.KEPT, LiveVerdict.EDITED, LiveVerdict.ANSWERED}
"""The verdicts with which the work stands; what is left of an edit that was changed is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """One declared outcome.

    >>> LiveOutcome(reads="survived", after_s=172800.0).margin is None
    True
    """

    reads: str = ""
    """The fact's name, one of `OUTCOMES`; without it the outcome's own."""
    after_s: float = 691_200.0
    """The age at which it is read, in seconds after the session's last turn."""
    silence: float = 0.0
    """The value of a session of which nothing is known by then."""
    margin: float | None = None
    """The loss a session that would be too much: a promotion is confirmed when it is refuted. None for an
    outcome that confirms nothing, and only takes back what is shown to be worse."""


def read_outcomes(
    outcomes: Mapping[str, LiveOutcome],
    turns: Sequence[Turn | TurnOutline],
    signals: Sequence[Signal],
    *,
    as_of: float,
    next_at: float | None = None,
) -> dict[str, float | None]:
    """Return the outcomes that are mature at `as_of`, in seconds since the epoch; raises SignalValueError.

    One of which nothing is known is None. `next_at` is the beginning of the person's next session, None when
    they did not come back.
    """
    ended = SessionFacts(turns, ()).ended_at
    values: dict[str, float | None] = {}
    for name, outcome in outcomes.items():
        if ended is None or (at := ended + outcome.after_s) > as_of:
            continue
        facts = SessionFacts(turns, known_at(signals, at))
        values[name] = OUTCOMES[outcome.reads or name](facts, next_at if next_at and next_at <= at else None)
    return values


def _survived(facts: SessionFacts, _next_at: float | None) -> float | None:
    """Return the share of the session's work that stands, the mean over edits and answers.

    Of an edit that counts the lower one of its latest verdict and of the share that was measured last: where
    an editor's word and the repository contradict each other, the worse one is believed.
    """
    left = {signal.edit: min(1.0, max(0.0, number(signal))) for signal in facts.of(SignalKind.EDIT_SURVIVAL)}
    said: dict[object, float] = {}
    for number_, (verdict, signal) in enumerate(facts.verdicts):
        subject = signal.edit if signal.edit is not None else number_
        said[subject] = min(float(verdict in STAND), left.get(signal.edit, 1.0))
    values = [*said.values(), *(share for edit, share in left.items() if edit not in said)]
    return fmean(values) if values else None


def _merged(facts: SessionFacts, _next_at: float | None) -> float | None:
    """Return the share of the committed edits that nobody took back."""
    committed = {signal.edit for signal in facts.of(SignalKind.EDIT_COMMITTED) if number(signal) > 0}
    undone = {signal.edit for verdict, signal in facts.verdicts if verdict is LiveVerdict.REVERTED}
    return 1.0 - len(committed & undone) / len(committed) if committed else None


def _returned(_facts: SessionFacts, next_at: float | None) -> float | None:
    """Return 1 when the person came back. Whether they did is always known."""
    return float(next_at is not None)


def _hidden_tests(facts: SessionFacts, _next_at: float | None) -> float | None:
    """Return 1 when a hidden suite passed on the work, as it was run last."""
    run = facts.of(SignalKind.HIDDEN_TESTS)
    return float(number(run[-1]) > 0) if run else None


OUTCOMES: Mapping[str, Callable[[SessionFacts, float | None], float | None]] = {
    "survived": _survived,
    "merged": _merged,
    "returned": _returned,
    "hidden_tests": _hidden_tests,
}
"""The facts that an outcome may read."""
