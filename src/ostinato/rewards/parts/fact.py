"""The fact: what a reward part pays or costs for, as a number with its evidence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact about a session: a number, and the ids of the signals and turns it was read from.

    >>> Fact(value=0.5, evidence=("e1/kept/900",)).value
    0.5
    """

    value: float
    evidence: tuple[str, ...] = ()
