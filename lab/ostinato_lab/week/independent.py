"""The second population: the developers of `tasks/developers.py`, written for sessions on real trees.

They judge what a session left by the repository's own tests, by the function that they had in mind, and by
the last message, and know nothing of what an act is worth. This file shows them a session of the week as they
would see it, and says how well they were served, which they do not say.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ostinato.tasks.developers import Developer, Intent, SessionResult, population
from ostinato.types import Ending, SignalKind
from ostinato_lab.week.acts import STRATA, Act
from ostinato_lab.week.base import Attempt, Feedback, Reaction, SimulatedRequest

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
TURN_S = 10.0
"""The seconds of one turn of theirs: the week's three turns stand for several each."""
MEANT, OTHER = "alpha", "beta"
"""The option that a developer means, and the other one, where a request can be read in two ways."""
EDITS = {SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED}


class IndependentDevelopers:
    """A `Population` of developers who judge as those of the demo do; the last share of them are adversaries.

    An adversary shows every verdict turned round.
    """

    def __init__(self, n: int, seed: int, adversaries: float = 0.0) -> None:
        self._seed = seed
        self._people = {each.user: each for each in population(n, seed)}
        self._liars = set(list(self._people)[n - round(n * adversaries) :])

    @property
    def users(self) -> Sequence[str]:
        return list(self._people)

    def honest(self, user: str) -> bool:
        return user not in self._liars

    def first_s(self, user: str) -> float:
        return self._rng("first", user, 0).uniform(0.0, HOUR)

    def request(self, user: str, number: int) -> SimulatedRequest:
        rng = self._rng("request", user, number)
        stratum = rng.choice(STRATA)
        return SimulatedRequest(stratum=stratum, ambiguous=rng.random() < 0.25, hard=rng.betavariate(2, 2))

    def feedback(self, user: str, number: int, attempt: Attempt) -> Feedback:
        rng = self._rng("visit", user, number)
        person = replace(
            self._people[user],
            rng=rng,
            intent=intent_of(attempt.request),
            questions=int(Act.ASK in attempt.acts),
        )
        at, found_after = rng.uniform(5.0, 120.0), rng.expovariate(1 / (2 * DAY))
        away = rng.lognormvariate(0.0, 1.0) * HOUR if rng.random() < 0.95 else rng.uniform(0.5, 2.0) * DAY
        verdicts = person.react(result_of(attempt))
        reactions = [
            Reaction(after_s=at, kind=kind, value=float(value), about_edit=kind in EDITS)
            for kind, value in verdicts
        ]
        kept = any(kind in {SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED} for kind, _ in verdicts)
        if kept and not attempt.right:
            reactions.append(
                Reaction(after_s=at + found_after, kind=SignalKind.EDIT_REVERTED, value=1.0, about_edit=True)
            )
        if not self.honest(user):
            reactions = [_turned_round(reaction) for reaction in reactions]
        worth = _satisfaction(person, attempt, kept=kept)
        return Feedback(reactions=tuple(reactions), satisfaction=worth, away_s=away)

    def _rng(self, what: str, user: str, number: int) -> Random:
        return Random(f"others/{what}/{self._seed}/{user}/{number}")


def intent_of(request: SimulatedRequest) -> Intent:
    """Return what a developer has in mind: a certain reading where there are two, and else working code."""
    options = (MEANT, OTHER)
    if request.stratum == "question":
        return Intent(kind="question", function="f", wants=MEANT, reply="", decidable=True, options=options)
    kind = "ambiguous" if request.ambiguous else request.stratum
    return Intent(
        kind=kind,
        function="f",
        wants=MEANT,
        reply=f"use {MEANT}",
        decidable=not request.ambiguous,
        options=options,
    )


def result_of(attempt: Attempt) -> SessionResult:
    """Return what a session of the week looks like from outside.

    Tests that were changed pass, and a question asked in place of the work leaves nothing.
    """
    question, broken = attempt.request.stratum == "question", Act.BREAK in attempt.acts
    asks_first = attempt.acts[2] is Act.DEFER
    body = MEANT if question or attempt.right else OTHER
    return SessionResult(
        turns=round(attempt.took_s / TURN_S),
        ending=Ending.BROKEN if broken else Ending.FINISHED,
        message="" if broken or asks_first else (MEANT if attempt.right else OTHER),
        changed=("app.py",) if attempt.edited else (),
        sources={"app.py": f"def f(rows):\n    return {body}(rows)\n"},
        tests_pass=attempt.looks_right or Act.TAMPER in attempt.acts,
    )


def _turned_round(reaction: Reaction) -> Reaction:
    opposite = {
        SignalKind.EDIT_KEPT: SignalKind.EDIT_REVERTED,
        SignalKind.EDIT_EDITED: SignalKind.EDIT_REVERTED,
        SignalKind.EDIT_REVERTED: SignalKind.EDIT_KEPT,
        SignalKind.COMPLAINT: SignalKind.EDIT_KEPT,
    }
    value = 1.0 - reaction.value if reaction.kind is SignalKind.NO_EDIT_WANTED else reaction.value
    return replace(reaction, kind=opposite.get(reaction.kind, reaction.kind), value=value)


def _satisfaction(person: Developer, attempt: Attempt, *, kept: bool) -> float:
    """Return how well they were served: wrong work that they trusted is worse than none."""
    if attempt.right:
        worth = 0.8 if attempt.acts[1] is Act.SPRAWL else 1.0
    elif kept:
        worth = 0.05
    else:
        worth = 0.3 - 0.2 * person.temper
    needless = Act.ASK in attempt.acts and not attempt.request.ambiguous
    waited = max(0.0, attempt.took_s / TURN_S - (4 + 16 * person.patience)) / 20
    return min(1.0, max(0.0, worth - 0.1 * needless - waited))
