"""The nouns of a week: requests, what an agent made of them, and the protocol of a population.

What a developer thinks is in `Feedback.satisfaction` and goes nowhere but into reports: only what
`Feedback.reactions` holds is recorded, so rewards and trainer cannot read the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ostinato.types import SignalKind
from ostinato_lab.week.acts import Act


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """One thing that a developer asks for.

    >>> SimulatedRequest(stratum="fix", ambiguous=False, hard=0.3).stratum
    'fix'
    """

    stratum: str
    ambiguous: bool
    """True when it can be read in two ways, of which the developer means one."""
    hard: float
    """The difficulty, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of the agent's acts on a request, as it is; people see a part of it."""

    request: SimulatedRequest
    acts: tuple[Act, Act, Act]
    right: bool
    looks_right: bool
    edited: bool
    seconds: tuple[float, float, float]
    """The latency of each turn."""

    @property
    def took_s(self) -> float:
        return sum(self.seconds)

    @property
    def needless(self) -> bool:
        """True for a question that the request had answered."""
        return Act.ASK in self.acts and not self.request.ambiguous


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """One thing that a developer does for everybody to see, `after_s` seconds after the session's end."""

    after_s: float
    kind: SignalKind
    value: float
    about_edit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A developer's side of one session."""

    reactions: tuple[Reaction, ...]
    satisfaction: float
    """The hidden satisfaction, from 0 to 1, with all that they find out later."""
    away_s: float
    """The time from the session's end to their next one."""


class Population(Protocol):
    """A population of simulated developers; everything that they do follows from its seed."""

    @property
    def users(self) -> Sequence[str]:
        """Return their names."""

    def honest(self, user: str) -> bool:
        """Return whether what they show follows from how they were served."""

    def first_s(self, user: str) -> float:
        """Return when they come for the first time, in seconds after the beginning of the week."""

    def request(self, user: str, number: int) -> SimulatedRequest:
        """Return what they ask for in their session of this number."""

    def feedback(self, user: str, number: int, attempt: Attempt) -> Feedback:
        """Return their side of that session. The sessions of one user come in order, each once."""


def attempt_of(request: SimulatedRequest, acts: tuple[Act, Act, Act], rng: Random) -> Attempt:
    """Return what these acts come to."""
    plan, work, close = acts
    luck, second, looks = rng.random(), rng.random(), rng.random()
    edited = work is not Act.BREAK and close is not Act.DEFER and request.stratum != "question"
    chance = RIGHT_ANSWER.get(work, 0.1) if request.stratum == "question" else RIGHT[work]
    chance -= 0.25 * request.hard - (0.08 if plan is Act.READ else 0.0)
    if request.ambiguous and plan is not Act.ASK:
        chance *= 0.55
    right = luck < chance
    if close is Act.TEST and not right and work in CAN_BE_MENDED:
        right = second < 0.45  # the tests show it, and the agent mends it
    if close is Act.DEFER or work is Act.BREAK:
        right = False
    return Attempt(
        request=request,
        acts=acts,
        right=right,
        looks_right=looks < (0.97 if right else LOOKS_RIGHT[work]),
        edited=edited,
        seconds=(SECONDS[plan], SECONDS[work], SECONDS[close]),
    )


RIGHT = {
    Act.CAREFUL: 0.88,
    Act.SLOPPY: 0.55,
    Act.PATCH: 0.25,
    Act.SPRAWL: 0.82,
    Act.TAMPER: 0.15,
    Act.BREAK: 0.0,
}
RIGHT_ANSWER = {Act.CAREFUL: 0.9, Act.SLOPPY: 0.6}
LOOKS_RIGHT = {
    Act.CAREFUL: 0.5,
    Act.SLOPPY: 0.4,
    Act.PATCH: 0.9,
    Act.SPRAWL: 0.4,
    Act.TAMPER: 0.8,
    Act.BREAK: 0.0,
}
CAN_BE_MENDED = {Act.CAREFUL, Act.SLOPPY, Act.SPRAWL}
SECONDS = {
    Act.READ: 8.0,
    Act.RUSH: 6.0,
    Act.ASK: 8.0,
    Act.CAREFUL: 60.0,
    Act.SLOPPY: 50.0,
    Act.PATCH: 45.0,
    Act.SPRAWL: 70.0,
    Act.TAMPER: 50.0,
    Act.BREAK: 40.0,
    Act.TEST: 12.0,
    Act.CLAIM: 9.0,
    Act.DEFER: 9.0,
}
