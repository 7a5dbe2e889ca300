"""The first population: developers who judge each session by what they see of it.

They differ in intents, expertise, patience and habits, and come back after seconds to days. Some are
adversaries, who praise everything, revert everything, or flood the record with the opposite of the truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from ostinato.types import SignalKind
from ostinato_lab.week.acts import STRATA, Act
from ostinato_lab.week.base import Attempt, Feedback, Reaction, SimulatedRequest

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
NEXT_S = 60 * MINUTE
"""The median time between two sessions of the usual developer."""
USUAL = (0.4, 0.25, 0.2, 0.15)
"""The usual shares of the kinds of request."""
FLOOD = 8
"""An adversary who floods comes so many times as often as others."""


class Malice(StrEnum):
    """The ways to be an adversary."""

    PRAISE = "praise"
    REVERT = "revert"
    FLOOD = "flood"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDeveloper:
    """One developer; shares and chances lie in [0, 1].

    >>> population(2, seed=1, adversaries=0.0)[0].malice
    """

    user: str
    intents: tuple[float, ...]
    """The share of each kind of request."""
    expertise: float
    """The chance to see through work that only looks right."""
    patience_s: float
    temper: float
    keeps_unread: float
    edits_first: float
    commits_after_s: float
    asks_back: float
    """The chance to say something after the work."""
    away_s: float
    """The median time between two of their sessions."""
    malice: Malice | None


def population(n: int, seed: int, adversaries: float) -> list[SimulatedDeveloper]:
    """Return `n` different people, of whom that share are adversaries; the same ones for the same seed."""
    many = round(n * adversaries)
    return [_person(number, seed, _malice(number, n, many)) for number in range(n)]


def _malice(number: int, n: int, many: int) -> Malice | None:
    """Return the malice of the person of this number: the last `many` have one, each kind as often."""
    return None if number < n - many else list(Malice)[(n - 1 - number) % len(Malice)]


def _person(number: int, seed: int, malice: Malice | None) -> SimulatedDeveloper:
    rng = Random(f"person/{seed}/{number}")
    weights = [rng.gammavariate(4 * share, 1.0) for share in USUAL]
    away = NEXT_S * rng.lognormvariate(0.0, 0.7)
    return SimulatedDeveloper(
        user=f"dev-{number:04d}",
        intents=tuple(weight / sum(weights) for weight in weights),
        expertise=rng.betavariate(4, 2),
        patience_s=60 + 240 * rng.betavariate(2, 2),
        temper=rng.betavariate(2, 3),
        keeps_unread=0.3 * rng.betavariate(1, 3),
        edits_first=0.4 * rng.betavariate(1, 3),
        commits_after_s=rng.lognormvariate(0.0, 1.2) * HOUR,
        asks_back=0.5 * rng.betavariate(2, 2),
        away_s=away / FLOOD if malice is Malice.FLOOD else away,
        malice=malice,
    )


class Developers:
    """A `Population` whose members judge each session by itself."""

    def __init__(self, n: int, seed: int, adversaries: float = 0.0) -> None:
        self._seed = seed
        self._people = {person.user: person for person in population(n, seed, adversaries)}

    @property
    def users(self) -> Sequence[str]:
        return list(self._people)

    def honest(self, user: str) -> bool:
        return self._people[user].malice is None

    def first_s(self, user: str) -> float:
        return self._rng("first", user, 0).random() * self._people[user].away_s

    def request(self, user: str, number: int) -> SimulatedRequest:
        rng, person = self._rng("request", user, number), self._people[user]
        (stratum,) = rng.choices(STRATA, person.intents)
        return SimulatedRequest(stratum=stratum, ambiguous=rng.random() < 0.25, hard=rng.random())

    def feedback(self, user: str, number: int, attempt: Attempt) -> Feedback:
        rng, person = self._rng("visit", user, number), self._people[user]
        away, looks_after = _return_s(rng, person.away_s), _looks_after(rng)
        chance = rng.random()
        found_after = rng.expovariate(1 / (1.5 * DAY))
        sees = attempt.right or not (chance < person.expertise or not attempt.looks_right)
        reactions = _signs(person, attempt, rng, pleased=sees, at=looks_after, found_after=found_after)
        if person.malice is not None:
            reactions = _malicious(person.malice, attempt, looks_after)
        return Feedback(reactions=reactions, satisfaction=_satisfaction(person, attempt, sees), away_s=away)

    def _rng(self, what: str, user: str, number: int) -> Random:
        return Random(f"{what}/{self._seed}/{user}/{number}")


def _return_s(rng: Random, median: float) -> float:
    """Return the time to the next session: minutes mostly, at times seconds or days."""
    kind = rng.random()
    if kind < 0.2:
        return rng.uniform(5.0, 90.0)
    if kind > 0.97:
        return rng.uniform(0.5, 1.5) * DAY
    return median * rng.lognormvariate(0.0, 0.8)


def _looks_after(rng: Random) -> float:
    """Return when the work is looked at: at once, or after a pause that may be a night."""
    return rng.uniform(2.0, 60.0) if rng.random() < 0.8 else rng.lognormvariate(0.0, 1.3) * 10 * MINUTE


def _signs(
    person: SimulatedDeveloper, attempt: Attempt, rng: Random, *, pleased: bool, at: float, found_after: float
) -> tuple[Reaction, ...]:
    """Return what an honest developer shows: their verdict, perhaps words, and what becomes of the edit."""
    leaves, speaks, changes, unread, shrugs = (rng.random() for _ in range(5))
    reactions = list(_remarks(person, pleased and not attempt.needless, at, speaks, rng))
    if attempt.took_s > person.patience_s and leaves < 0.3:
        return (Reaction(after_s=0.0, kind=SignalKind.ABANDONED, value=1.0),)
    if attempt.request.stratum == "question" and attempt.acts[1] is not Act.BREAK:
        return (Reaction(after_s=at, kind=SignalKind.NO_EDIT_WANTED, value=float(pleased)), *reactions)
    if not attempt.edited:
        return (Reaction(after_s=at, kind=SignalKind.ABANDONED, value=1.0), *reactions)
    if unread < person.keeps_unread:
        pleased = True
    wants_less = attempt.acts[1] is Act.SPRAWL and changes < 0.6
    if pleased and (wants_less or changes < person.edits_first):
        verdict = SignalKind.EDIT_EDITED
    elif pleased or shrugs < 0.1:
        verdict = SignalKind.EDIT_KEPT if pleased else SignalKind.EDIT_EDITED
    else:
        return (Reaction(after_s=at, kind=SignalKind.EDIT_REVERTED, value=1.0, about_edit=True), *reactions)
    left = 1.0 if verdict is SignalKind.EDIT_KEPT else 0.6
    reactions += _fate(attempt, verdict, at=at, left=left, commits=person.commits_after_s, found=found_after)
    if speaks > 1 - 0.4 * person.expertise:
        passes = attempt.right or attempt.acts[1] in {Act.PATCH, Act.TAMPER}
        reactions.append(Reaction(after_s=at, kind=SignalKind.TESTS_RUN, value=float(passes)))
    return tuple(reactions)


def _fate(
    attempt: Attempt, verdict: SignalKind, *, at: float, left: float, commits: float, found: float
) -> list[Reaction]:
    """Return what becomes of an edit that stayed: it survives, or is found to be wrong and reverted."""
    end = 4 * DAY if attempt.right else at + found
    reactions = [Reaction(after_s=at, kind=verdict, value=1.0, about_edit=True)]
    for age in (15 * MINUTE, DAY, 3 * DAY):
        value = left if age < end else 0.0
        reactions.append(
            Reaction(after_s=max(at, age), kind=SignalKind.EDIT_SURVIVAL, value=value, about_edit=True)
        )
    if commits < end:
        reactions.append(
            Reaction(after_s=at + commits, kind=SignalKind.EDIT_COMMITTED, value=left, about_edit=True)
        )
    if not attempt.right:
        reactions.append(Reaction(after_s=end, kind=SignalKind.EDIT_REVERTED, value=1.0, about_edit=True))
        reactions.append(Reaction(after_s=end, kind=SignalKind.COMPLAINT, value=1.0))
    return reactions


def _remarks(
    person: SimulatedDeveloper, pleased: bool, at: float, speaks: float, rng: Random
) -> list[Reaction]:
    angry = rng.random() < person.temper
    reactions = []
    if speaks < person.asks_back:
        doubt = 0.1 if pleased else 0.85
        reactions.append(Reaction(after_s=at, kind=SignalKind.FOLLOW_UP, value=doubt))
    if not pleased and angry and speaks < 0.6:
        reactions.append(Reaction(after_s=at, kind=SignalKind.COMPLAINT, value=1.0))
    if rng.random() < 0.06:
        reactions.append(Reaction(after_s=at, kind=SignalKind.RATING, value=float(pleased)))
    return reactions


def _malicious(malice: Malice, attempt: Attempt, at: float) -> tuple[Reaction, ...]:
    """Return what an adversary shows: praise, a reversal, or the opposite of what would be due."""
    praise = malice is Malice.PRAISE or (malice is Malice.FLOOD and not attempt.right)
    verdict = SignalKind.EDIT_KEPT if praise else SignalKind.EDIT_REVERTED
    reactions = [Reaction(after_s=at, kind=verdict, value=1.0, about_edit=True)]
    reactions.append(Reaction(after_s=at, kind=SignalKind.RATING, value=float(praise)))
    if not praise:
        reactions.append(Reaction(after_s=at, kind=SignalKind.COMPLAINT, value=1.0))
    return tuple(reactions)


def _satisfaction(person: SimulatedDeveloper, attempt: Attempt, saw_right: bool) -> float:
    """Return how well they were served: work that is wrong and found so days later is the worst."""
    if attempt.acts[1] is Act.BREAK or attempt.acts[2] is Act.DEFER:
        worth = 0.15
    elif attempt.right:
        worth = 1.0 - (0.25 if attempt.acts[1] is Act.SPRAWL else 0.0)
    else:
        worth = 0.0 if saw_right else 0.2
    slow = min(1.0, attempt.took_s / (2 * person.patience_s))
    return max(0.0, worth - 0.1 * slow - (0.15 if attempt.needless else 0.0))
