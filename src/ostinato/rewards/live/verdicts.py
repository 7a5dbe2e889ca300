"""The developer's verdicts on the edits of a session: one for each edit, the latest that is known.

Every edit has a verdict of its own, so the last edit does not decide for the others. A verdict can be
corrected later (kept on Monday, reverted on Friday): the latest signal on an edit counts, and the session is
scored anew.
"""

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum

from ostinato.rewards.signals import number
from ostinato.types import Ending, Signal, SignalKind


class LiveVerdict(StrEnum):
    """The possible verdicts on one edit, one answer or one whole session."""

    KEPT = "kept"
    EDITED = "edited"
    REVERTED = "reverted"
    ANSWERED = "answered"
    ANSWERED_WRONGLY = "answered_wrongly"
    ABANDONED = "abandoned"


EDITS = {
    SignalKind.EDIT_KEPT: LiveVerdict.KEPT,
    SignalKind.EDIT_EDITED: LiveVerdict.EDITED,
    SignalKind.EDIT_REVERTED: LiveVerdict.REVERTED,
}


def verdicts(signals: Sequence[Signal]) -> list[tuple[LiveVerdict, Signal]]:
    """Return the latest verdict on each subject, in the order of each subject's first signal.

    `signals` are in order of time. A subject is an edit, a turn without any edit of its own among the
    signals, or the session as a whole. A signal about a turn counts for each known edit of that turn.
    """
    spoken = [(outcome, signal) for signal in signals if (outcome := _outcome(signal)) is not None]
    edits_of: dict[int | None, dict[str, None]] = {}
    for _, signal in spoken:
        if signal.edit is not None:
            edits_of.setdefault(signal.turn, {})[signal.edit] = None
    last: dict[Hashable, tuple[LiveVerdict, Signal]] = {}
    for outcome, signal in spoken:
        for subject in _subjects(signal, edits_of):
            last[subject] = (outcome, signal)
    return list(last.values())


def _outcome(signal: Signal) -> LiveVerdict | None:
    """Return the verdict of a signal, None when it is none; a value of 0 records that nothing happened."""
    kind = signal.kind
    if kind in EDITS:
        return EDITS[kind] if number(signal) > 0 else None
    if kind is SignalKind.NO_EDIT_WANTED:
        return LiveVerdict.ANSWERED if number(signal) > 0 else LiveVerdict.ANSWERED_WRONGLY
    if kind is SignalKind.ENDING:
        return LiveVerdict.ABANDONED if signal.value == Ending.ABANDONED else None
    return LiveVerdict.ABANDONED if kind is SignalKind.ABANDONED and number(signal) > 0 else None


def _subjects(signal: Signal, edits_of: Mapping[int | None, Mapping[str, None]]) -> Sequence[Hashable]:
    if signal.edit is not None:
        return [("edit", signal.edit)]
    if signal.turn is None or signal.kind not in EDITS:
        return ["session"]
    return [("edit", edit) for edit in edits_of.get(signal.turn, ())] or [("turn", signal.turn)]
