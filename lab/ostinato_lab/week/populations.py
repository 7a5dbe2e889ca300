"""The populations that may live in a week, by name, and the null: a population whose reactions say nothing.

In the null each session shows what another session earned. What people think stays their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from ostinato_lab.week.base import Attempt, Feedback, Population, Reaction, SimulatedRequest
from ostinato_lab.week.developers import Developers
from ostinato_lab.week.independent import IndependentDevelopers

POPULATIONS: dict[str, Callable[[int, int, float], Population]] = {
    "developers": Developers,
    "independent": IndependentDevelopers,
}
"""The populations: of so many developers, from a seed, with a share of adversaries."""
HELD = 50
"""The sessions whose reactions wait to be shown by others, about."""


class Shuffled:
    """A population in which the reactions of sessions are exchanged, whoever had them and when.

    Each session's reactions are shown once, by a later one; the first sessions show none.
    """

    def __init__(self, population: Population, seed: int) -> None:
        self._population = population
        self._seed = seed
        self._held: list[tuple[Reaction, ...]] = []

    @property
    def users(self) -> Sequence[str]:
        return self._population.users

    def honest(self, user: str) -> bool:
        return self._population.honest(user)

    def first_s(self, user: str) -> float:
        return self._population.first_s(user)

    def request(self, user: str, number: int) -> SimulatedRequest:
        return self._population.request(user, number)

    def feedback(self, user: str, number: int, attempt: Attempt) -> Feedback:
        feedback = self._population.feedback(user, number, attempt)
        if len(self._held) < HELD:
            self._held.append(feedback.reactions)
            return replace(feedback, reactions=())
        place = Random(f"shuffled/{self._seed}/{user}/{number}").randrange(HELD)
        shown, self._held[place] = self._held[place], feedback.reactions
        return replace(feedback, reactions=shown)
