"""What the developer did with the result: the outcome of a live session, and their displeasure.

Every edit has an outcome of its own, and the session's is their mean: what was said last does not speak for
the other edits. An outcome can be corrected later (kept on Monday, reverted on Friday): the latest word on an
edit counts and the session is scored anew.
"""

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

from ostinato.rewards.facts import held, latest, number
from ostinato.types import Ending, PartState, RewardPart, Signal, SignalKind

EDITS = (SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED)
WHOLE = (SignalKind.NO_EDIT_WANTED, SignalKind.ABANDONED, SignalKind.ENDING)


def outcome(
    signals: Sequence[Signal],
    *,
    worth: Mapping[SignalKind, float],
    wrong_answer: float,
    silence: float,
    mature: bool,
) -> RewardPart:
    """The mean `worth` of the latest word on each subject of `subjects`; every subject weighs the same.

    `wrong_answer` is the worth of an answer that was judged wrong. Without a word the part is censored, and
    once the window is over (`mature`) it is expired and worth `silence`.
    """
    words = [word for told in subjects(signals) if (word := latest(told, (*EDITS, *WHOLE))) is not None]
    if not words:
        state = PartState.EXPIRED if mature else PartState.CENSORED
        return RewardPart(name="outcome", value=silence if mature else 0.0, state=state)
    value = fmean(_worth(word, worth, wrong_answer) for word in words)
    return RewardPart(name="outcome", value=value, evidence=tuple(word.id for word in words))


def subjects(signals: Sequence[Signal]) -> list[list[Signal]]:
    """The words that are outcomes, by what they are about, in the order in which each was first spoken of.

    A subject is an edit, a turn of whose edits nothing else is known, or the session as a whole. A word about
    a turn is a word about each known edit of that turn.
    """
    spoken = [signal for signal in signals if _is_outcome(signal)]
    edits_of: dict[int | None, list[str]] = {}
    for signal in spoken:
        if signal.edit is not None and signal.edit not in edits_of.setdefault(signal.turn, []):
            edits_of[signal.turn].append(signal.edit)
    found: dict[Hashable, list[Signal]] = {}
    for signal in spoken:
        for subject in _about(signal, edits_of):
            found.setdefault(subject, []).append(signal)
    return list(found.values())


def complaint(signals: Sequence[Signal], *, weight: float) -> RewardPart:
    """One cost however often they complained: the second complaint is about the same work."""
    found = held(signals, SignalKind.COMPLAINT)
    return RewardPart(
        name="complaint", value=-weight if found else 0.0, evidence=tuple(signal.id for signal in found)
    )


def _is_outcome(signal: Signal) -> bool:
    """Whether it says how something came out: a number of 0 says that it did not happen."""
    if signal.kind is SignalKind.ENDING:
        return signal.value == Ending.ABANDONED
    if signal.kind in EDITS or signal.kind is SignalKind.ABANDONED:
        return number(signal) > 0
    return signal.kind is SignalKind.NO_EDIT_WANTED


def _about(signal: Signal, edits_of: Mapping[int | None, Sequence[str]]) -> Sequence[Hashable]:
    if signal.edit is not None:
        return [("edit", signal.edit)]
    if signal.turn is None or signal.kind not in EDITS:
        return ["session"]
    return [("edit", edit) for edit in edits_of.get(signal.turn, ())] or [("turn", signal.turn)]


def _worth(word: Signal, worth: Mapping[SignalKind, float], wrong_answer: float) -> float:
    if word.kind is SignalKind.NO_EDIT_WANTED and number(word) <= 0:
        return wrong_answer
    return worth[SignalKind.ABANDONED if word.kind is SignalKind.ENDING else word.kind]
