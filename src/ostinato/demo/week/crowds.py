"""The populations that may live in a week, by name, and the null: a crowd whose signs say nothing.

In the null each session shows what another session earned. What people think stays their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from ostinato.demo.week.base import Attempt, Crowd, Sign, TownRequest, WeekVisit
from ostinato.demo.week.others import Others
from ostinato.demo.week.people import People

POPULATIONS: dict[str, Callable[[int, int, float], Crowd]] = {"people": People, "others": Others}
"""The populations: of so many developers, from a seed, with a share of adversaries."""
HELD = 50
"""The sessions whose signs wait to be shown by others, about."""


class Shuffled:
    """A crowd in which the signs of sessions are exchanged among sessions, whoever had them and when.

    Each session's signs are shown once, by a later one; the first sessions show none.
    """

    def __init__(self, crowd: Crowd, seed: int) -> None:
        self._crowd = crowd
        self._seed = seed
        self._held: list[tuple[Sign, ...]] = []

    @property
    def users(self) -> Sequence[str]:
        return self._crowd.users

    def honest(self, user: str) -> bool:
        return self._crowd.honest(user)

    def first_s(self, user: str) -> float:
        return self._crowd.first_s(user)

    def request(self, user: str, number: int) -> TownRequest:
        return self._crowd.request(user, number)

    def visit(self, user: str, number: int, attempt: Attempt) -> WeekVisit:
        visit = self._crowd.visit(user, number, attempt)
        if len(self._held) < HELD:
            self._held.append(visit.signs)
            return replace(visit, signs=())
        place = Random(f"shuffled/{self._seed}/{user}/{number}").randrange(HELD)
        shown, self._held[place] = self._held[place], visit.signs
        return replace(visit, signs=shown)
