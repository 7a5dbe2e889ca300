"""The reward parts for what the developer did with the result: the outcome, and complaints.

Every edit has an outcome of its own, and the session's outcome is their mean, so the last edit does not
decide for the others. An outcome can be corrected later (kept on Monday, reverted on Friday): the latest
signal on an edit counts and the session is scored anew.
"""

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

from ostinato.rewards.signals import cost_if_any, latest, number
from ostinato.types import Ending, PartState, RewardPart, Signal, SignalKind

EDITS = (SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED)
WHOLE = (SignalKind.NO_EDIT_WANTED, SignalKind.ABANDONED, SignalKind.ENDING)


def outcome(
    signals: Sequence[Signal],
    *,
    worth: Mapping[SignalKind, float],
    wrong_answer: float,
    silence: float,
    window_over: bool,
) -> RewardPart:
    """Return the mean `worth` of the latest signal on each subject; all subjects weigh the same.

    `wrong_answer` is the worth of an answer that was judged wrong. Without any feedback the part is censored,
    or expired and worth `silence` once the window is over.
    """
    verdicts = [
        verdict
        for about_one in by_subject(signals)
        if (verdict := latest(about_one, (*EDITS, *WHOLE))) is not None
    ]
    if not verdicts:
        state = PartState.EXPIRED if window_over else PartState.CENSORED
        return RewardPart(name="outcome", value=silence if window_over else 0.0, state=state)
    value = fmean(_worth(verdict, worth, wrong_answer) for verdict in verdicts)
    return RewardPart(name="outcome", value=value, evidence=tuple(verdict.id for verdict in verdicts))


def by_subject(signals: Sequence[Signal]) -> list[list[Signal]]:
    """Return the signals that are outcomes, grouped by subject, in the order of each subject's first signal.

    A subject is an edit, a turn without any edit of its own among the signals, or the session as a whole. A
    signal about a turn counts for each known edit of that turn.
    """
    outcomes = [signal for signal in signals if _is_outcome(signal)]
    edits_of: dict[int | None, list[str]] = {}
    for signal in outcomes:
        if signal.edit is not None and signal.edit not in edits_of.setdefault(signal.turn, []):
            edits_of[signal.turn].append(signal.edit)
    grouped: dict[Hashable, list[Signal]] = {}
    for signal in outcomes:
        for subject in _subjects(signal, edits_of):
            grouped.setdefault(subject, []).append(signal)
    return list(grouped.values())


def complaint(signals: Sequence[Signal], *, weight: float) -> RewardPart:
    """Return one cost for any number of complaints: the second one is about the same work."""
    return cost_if_any("complaint", signals, SignalKind.COMPLAINT, weight=weight)


def _is_outcome(signal: Signal) -> bool:
    """Return whether the signal is an outcome; a value of 0 records that its fact did not happen."""
    if signal.kind is SignalKind.ENDING:
        return signal.value == Ending.ABANDONED
    if signal.kind in EDITS or signal.kind is SignalKind.ABANDONED:
        return number(signal) > 0
    return signal.kind is SignalKind.NO_EDIT_WANTED


def _subjects(signal: Signal, edits_of: Mapping[int | None, Sequence[str]]) -> Sequence[Hashable]:
    if signal.edit is not None:
        return [("edit", signal.edit)]
    if signal.turn is None or signal.kind not in EDITS:
        return ["session"]
    return [("edit", edit) for edit in edits_of.get(signal.turn, ())] or [("turn", signal.turn)]


def _worth(signal: Signal, worth: Mapping[SignalKind, float], wrong_answer: float) -> float:
    if signal.kind is SignalKind.NO_EDIT_WANTED and number(signal) <= 0:
        return wrong_answer
    return worth[SignalKind.ABANDONED if signal.kind is SignalKind.ENDING else signal.kind]
