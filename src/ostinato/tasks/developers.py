"""Simulated developers: they answer questions from their intent card and react as people do.

They judge by what a person can see: the diff, the repository's own tests when they run them, the last
message, how long it took, and what they meant. How well they look depends on the person, so a wrong edit
may be kept and a right one changed. Hidden tests are not among what they are given.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from ostinato.tasks.grade import named
from ostinato.types import Ending, SignalKind, Task

Reaction = tuple[SignalKind, float | str]

SHRUG = "up to you"
RUNAWAY = frozenset({Ending.BROKEN, Ending.TURN_LIMIT, Ending.TOKEN_LIMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a person means, and says only when asked.

    >>> Intent(kind="ambiguous", function="alpha", wants="-", reply="use -", decidable=False).wants_edit
    True
    """

    kind: str
    function: str
    wants: str
    reply: str
    decidable: bool
    """True when the repository or the instruction says it all: asking is needless."""
    options: tuple[str, ...] = ()
    """What could stand in the place of `wants`."""
    reports: tuple[str, ...] = ()
    """Tests that will fail when the request is done, which the person wants to be told."""

    @property
    def wants_edit(self) -> bool:
        return self.kind != "question"

    @property
    def names_it(self) -> bool:
        """Whether the person has a certain change of a certain function in mind, beyond that tests pass."""
        return self.kind in {"ambiguous", "impossible"}

    @classmethod
    def of(cls, task: Task) -> "Intent":
        """From the card in the task's metadata; without a card the person has no more to say."""
        card = task.metadata.get("intent", {})
        return cls(
            kind=task.kind,
            function=card.get("function", ""),
            wants=card.get("wants", ""),
            reply=card.get("reply", SHRUG),
            decidable=card.get("decidable", True),
            options=tuple(card.get("options", ())),
            reports=tuple(card.get("reports", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a session leaves before its developer's eyes.

    >>> Seen(turns=3, ending=Ending.FINISHED, message="done", changed=(), sources={}, tests_pass=None).changed
    ()
    """

    turns: int
    ending: Ending
    message: str
    """The agent's last."""
    changed: tuple[str, ...]
    """Paths in the diff."""
    sources: Mapping[str, str]
    """The Python files of the repository as they are now, by path."""
    tests_pass: bool | None
    """What the repository's own tests say, as they are now; None when they could not be run."""


@dataclass(slots=True, kw_only=True)
class Developer:
    """One simulated person; the traits lie in [0, 1].

    `on(task)` gives the same person at work on a task; without one every answer is a shrug.
    """

    user: str
    patience: float
    """0 walks away after a few turns, 1 waits for twenty."""
    strictness: float
    """How surely they look at what was done, rather than take the agent's word."""
    temper: float
    """How likely they are to complain rather than to fix it in silence."""
    rng: Random
    intent: Intent | None = None
    asked: int = 0

    def on(self, task: Task) -> "Developer":
        """This person with the task's intent in mind and no question asked yet; both share their `rng`."""
        return replace(self, intent=Intent.of(task), asked=0)

    async def answer(self, question: str) -> str:
        """Their words to a question: what the intent card says, whatever was asked."""
        if not question.strip() or self.intent is None:
            return SHRUG
        self.asked += 1
        return self.intent.reply

    def react(self, seen: Seen) -> list[Reaction]:
        """What is observed of them after a session; nothing when the failure was ours."""
        if seen.ending is Ending.INFRASTRUCTURE:
            return []
        reactions = self._about_questions()
        if self._walks_away(seen.turns):
            return [*reactions, (SignalKind.ABANDONED, 1.0)]
        if self.intent is not None and not self.intent.wants_edit:
            return reactions + self._to_answer(seen)
        if not seen.changed:  # nothing was done: they turn to something else, and that is an outcome too
            return [
                *reactions,
                (SignalKind.ABANDONED, 1.0),
                *self._complaint(0.9 if seen.ending in RUNAWAY else 0.6),
            ]
        return reactions + self._to_edit(seen)

    def _about_questions(self) -> list[Reaction]:
        needed = self.intent is not None and not self.intent.decidable
        return [(SignalKind.QUESTION_ANSWERED, float(needed))] if self.asked else []

    def _walks_away(self, turns: int) -> bool:
        """Hardly ever before the limit of their patience (4 to 20 turns), then ever more likely."""
        over = turns - (4 + 16 * self.patience)
        return self._happens(0.01 if over <= 0 else min(0.9, 0.2 * over))

    def _looks(self) -> bool:
        return self._happens(0.5 + 0.5 * self.strictness)

    def _to_answer(self, seen: Seen) -> list[Reaction]:
        changed = bool(seen.changed)
        right = not changed and bool(seen.message.strip()) and (self._answers(seen) or not self._looks())
        complaint = [] if right else self._complaint(0.8 if changed else 0.5)
        return [(SignalKind.NO_EDIT_WANTED, float(right)), *complaint]

    def _to_edit(self, seen: Seen) -> list[Reaction]:
        fine = self._works(seen) or not self._looks()
        if fine and self._happens(0.5 if self._is_surprised(seen) else 0.93):
            return [(SignalKind.EDIT_KEPT, 1.0)]
        if fine or self._happens(0.15):
            return [(SignalKind.EDIT_EDITED, 1.0)]
        return [(SignalKind.EDIT_REVERTED, 1.0), *self._complaint(0.7)]

    def _works(self, seen: Seen) -> bool:
        """Whether a careful look finds what they meant: in the function they named, else by the tests."""
        if self.intent is None or not self.intent.names_it:
            return seen.tests_pass is not False
        return _stands_in(seen, self.intent) == {self.intent.wants}

    def _answers(self, seen: Seen) -> bool:
        """Whether the message says what the function that they asked about really does."""
        if self.intent is None:
            return True
        found = _stands_in(seen, self.intent)
        return not found or named(seen.message, self.intent.options) == found

    def _is_surprised(self, seen: Seen) -> bool:
        """Whether tests fail of which the agent should have said so."""
        reports = () if self.intent is None else self.intent.reports
        return seen.tests_pass is False and not all(test in seen.message for test in reports)

    def _complaint(self, share: float) -> list[Reaction]:
        return [(SignalKind.COMPLAINT, 1.0)] if self._happens(share * self.temper) else []

    def _happens(self, chance: float) -> bool:
        return self.rng.random() < chance


_EDGE = r"[\w*+/%\-]"
"""Characters beside an option that make it part of another word or operator."""


def _stands_in(seen: Seen, intent: Intent) -> set[str]:
    """Which of the intent's options stand in the body of the function, wherever it is defined."""
    pattern = re.compile(rf"^def {re.escape(intent.function)}\(.*\n((?:[ \t]+.*\n?)+)", re.MULTILINE)
    bodies = [body for source in seen.sources.values() for body in pattern.findall(source)]
    return {
        option
        for option in intent.options
        if any(re.search(rf"(?<!{_EDGE}){re.escape(option)}(?!{_EDGE})", body) for body in bodies)
    }


def population(n: int, seed: int) -> list[Developer]:
    """`n` different people, the same ones from the same seed."""
    return [_developer(f"dev-{index:03d}", Random(f"developer/{seed}/{index}")) for index in range(n)]


def _developer(user: str, rng: Random) -> Developer:
    return Developer(
        user=user,
        patience=rng.betavariate(4, 2),
        strictness=rng.betavariate(4, 2),
        temper=rng.betavariate(2, 3),
        rng=rng,
    )
