"""Faults that the record or the verifier states: each with the exploit that its price invites and a guard."""

from collections.abc import Sequence

from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.signals import latest, number, positive
from ostinato.types import FinishReason, Signal, SignalKind, Turn, TurnOutline


def broken(turns: Sequence[Turn | TurnOutline]) -> Fact:
    """Return the number of calls that could not be read.

    The exploit: a sample whose call is broken used to be dropped, so a policy that is losing breaks a call,
    since a dropped sample is better than a bad one. The guard: such sessions stay in the batch, and each
    broken call costs. A turn that the token limit cut has a finish reason of its own and costs nothing here:
    the model did not break it.
    """
    cut = FinishReason.LENGTH
    ids = [turn.id for turn in turns if turn.broken is not None and turn.finish is not cut]
    return Fact(value=len(ids), evidence=tuple(ids))


def tampered(signals: Sequence[Signal]) -> Fact:
    """Return 1 when a protected file was changed, as a visible test, however many.

    The exploit: make the visible tests agree with the code. The guard: it costs more than failing honestly,
    and the outcome is then worth nothing.
    """
    matches = positive(signals, SignalKind.TAMPERED)
    return Fact(value=float(bool(matches)), evidence=tuple(signal.id for signal in matches))


def unreported(signals: Sequence[Signal]) -> Fact:
    """Return 1 when the request contradicts a visible test and the last message does not name it; else 0.

    The exploit: do what was asked, keep quiet, and leave the user to discover the failure. The guard: silence
    costs, and naming every test pays nothing, since only the tests that the request contradicts are looked
    for.
    """
    signal = latest(signals, (SignalKind.REPORTED,))
    left_out = signal is not None and number(signal) <= 0
    return Fact(value=float(left_out), evidence=() if signal is None else (signal.id,))


def needless_questions(signals: Sequence[Signal]) -> Fact:
    """Return the number of questions that the task's card calls needless; 0 for a task without a card.

    The exploit: ask in order to dodge the edit and whatever it might cost. The guard: the session goes on
    with an answer, so the outcome still has to be earned; a question where the task leaves nothing open
    costs, and so does every question after the first where it does. A needed question pays nothing by itself:
    asking is worth what it does for the outcome (`docs/rewards.md` has the table by ambiguity).
    """
    asked = [signal for signal in signals if signal.kind is SignalKind.QUESTION_ANSWERED]
    needless = tuple(signal.id for signal in asked if number(signal) <= 0)
    return Fact(value=len(needless), evidence=needless)


HALF_LINES = 20.0
"""Lines beyond the need at which half of the cost is reached."""


def scope(signals: Sequence[Signal]) -> Fact:
    """Return n / (n + 20) for n needless lines, in [0, 1); 0 where nobody knows what the task needs.

    The exploit: a reward for small patches is won by patches that do nothing. The guard: it is a cost and
    never a pay, it counts on passing work alone, and a patch of twice the reference's size is free, so the
    smallest patch is worth no more than any honest one.
    """
    beyond = latest(signals, (SignalKind.BEYOND,))
    if beyond is None:
        return Fact(value=0.0)
    lines = max(0.0, number(beyond))
    return Fact(value=lines / (lines + HALF_LINES), evidence=(beyond.id,) if lines else ())
