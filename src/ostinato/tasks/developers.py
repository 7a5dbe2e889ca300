"""Simulated developers: they answer questions from their intent card and react as people do.

They judge by what a person can see: the diff, the results of the repository's own tests, the last message,
the number of turns, and their own intent. Their care differs, so a wrong edit may be kept and a right one
changed. They never see the hidden tests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ostinato.tasks.grade import named
from ostinato.types import Ending, SignalKind, Task

Reaction = tuple[SignalKind, float | str]

SHRUG = "up to you"
RUNAWAY = frozenset({Ending.BROKEN, Ending.TURN_LIMIT, Ending.TOKEN_LIMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The intent of a person, which they state only when asked.

    >>> Intent(kind="ambiguous", function="alpha", wants="-", reply="use -", decidable=False).wants_edit
    True
    """

    kind: str
    function: str
    wants: str
    reply: str
    decidable: bool
    """True when the repository or the instruction decides it, so that a question is needless."""
    options: tuple[str, ...] = ()
    """The alternatives to `wants`, itself included."""
    reports: tuple[str, ...] = ()
    """Tests that will fail when the request is done; the person wants the message to name them."""

    @property
    def wants_edit(self) -> bool:
        return self.kind != "question"

    @property
    def wants_certain_edit(self) -> bool:
        """True when the person has a certain change of a certain function in mind, beyond passing tests."""
        return self.kind in {"ambiguous", "impossible"}

    @classmethod
    def of(cls, task: Task) -> "Intent":
        """Read the card in the task's metadata; without a card the person has nothing to add."""
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
class SessionResult:
    """The result of a session as far as its developer can see it.

    >>> SessionResult(turns=3, ending=Ending.FINISHED, message="done", changed=(), sources={},
    ...               tests_pass=None).changed
    ()
    """

    turns: int
    ending: Ending
    message: str
    """The agent's last message."""
    changed: tuple[str, ...]
    """Paths in the diff."""
    sources: Mapping[str, str]
    """The Python files of the repository as they are now, by path."""
    tests_pass: bool | None
    """True when the repository's own tests pass, as they are now; None when they could not be run."""


@dataclass(slots=True, kw_only=True)
class Developer:
    """One simulated person; the traits lie in [0, 1].

    `on(task)` returns the same person at work on a task; without a task every answer is a shrug.
    """

    user: str
    patience: float
    """The patience: at 0 they walk away after a few turns, at 1 they wait for twenty."""
    strictness: float
    """The care with which they check the work rather than trust the agent."""
    temper: float
    """The likelihood that they complain rather than fix the work in silence."""
    rng: Random
    intent: Intent | None = None
    questions: int = 0

    def on(self, task: Task) -> "Developer":
        """Return this person with the task's intent and no question asked yet; both share one `rng`."""
        return replace(self, intent=Intent.of(task), questions=0)

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        """Return the reply of the intent card, whatever the question is."""
        if not question.strip() or self.intent is None:
            return SHRUG
        self.questions += 1
        return self.intent.reply

    def react(self, result: SessionResult) -> list[Reaction]:
        """Return what is observed of them after a session; nothing when the infrastructure failed."""
        if result.ending is Ending.INFRASTRUCTURE:
            return []
        reactions = self._about_questions()
        if self._walks_away(result.turns):
            return [*reactions, (SignalKind.ABANDONED, 1.0)]
        if self.intent is not None and not self.intent.wants_edit:
            return reactions + self._to_answer(result)
        if not result.changed:  # they turn to something else, which is an outcome too
            return [
                *reactions,
                (SignalKind.ABANDONED, 1.0),
                *self._complaint(0.9 if result.ending in RUNAWAY else 0.6),
            ]
        return reactions + self._to_edit(result)

    def _about_questions(self) -> list[Reaction]:
        needed = self.intent is not None and not self.intent.decidable
        return [(SignalKind.QUESTION_ANSWERED, float(needed))] if self.questions else []

    def _walks_away(self, turns: int) -> bool:
        """Draw whether they leave: rarely within their patience (4 to 20 turns), then ever more likely."""
        over = turns - (4 + 16 * self.patience)
        return self._happens(0.01 if over <= 0 else min(0.9, 0.2 * over))

    def _looks(self) -> bool:
        return self._happens(0.5 + 0.5 * self.strictness)

    def _to_answer(self, result: SessionResult) -> list[Reaction]:
        changed = bool(result.changed)
        right = not changed and bool(result.message.strip()) and (self._answers(result) or not self._looks())
        complaint = [] if right else self._complaint(0.8 if changed else 0.5)
        return [(SignalKind.NO_EDIT_WANTED, float(right)), *complaint]

    def _to_edit(self, result: SessionResult) -> list[Reaction]:
        fine = self._works(result) or not self._looks()
        if fine and self._happens(0.5 if self._is_surprised(result) else 0.93):
            return [(SignalKind.EDIT_KEPT, 1.0)]
        if fine or self._happens(0.15):
            return [(SignalKind.EDIT_EDITED, 1.0)]
        return [(SignalKind.EDIT_REVERTED, 1.0), *self._complaint(0.7)]

    def _works(self, result: SessionResult) -> bool:
        """Return whether the function they named, or else the tests, show what they meant."""
        if self.intent is None or not self.intent.wants_certain_edit:
            return result.tests_pass is not False
        return _options_in_use(result, self.intent) == {self.intent.wants}

    def _answers(self, result: SessionResult) -> bool:
        """Return whether the message names what the function in question really does."""
        if self.intent is None:
            return True
        present = _options_in_use(result, self.intent)
        return not present or named(result.message, self.intent.options) == present

    def _is_surprised(self, result: SessionResult) -> bool:
        """Return whether tests fail that the agent should have reported."""
        reports = () if self.intent is None else self.intent.reports
        return result.tests_pass is False and not all(test in result.message for test in reports)

    def _complaint(self, share: float) -> list[Reaction]:
        return [(SignalKind.COMPLAINT, 1.0)] if self._happens(share * self.temper) else []

    def _happens(self, chance: float) -> bool:
        return self.rng.random() < chance


_EDGE = r"[\w*+/%\-]"
"""Characters beside an option that make it part of another word or operator."""


def _options_in_use(result: SessionResult, intent: Intent) -> set[str]:
    """Return the intent's options that occur in the body of the function, wherever it is defined."""
    pattern = re.compile(rf"^def {re.escape(intent.function)}\(.*\n((?:[ \t]+.*\n?)+)", re.MULTILINE)
    bodies = [body for source in result.sources.values() for body in pattern.findall(source)]
    return {
        option
        for option in intent.options
        if any(re.search(rf"(?<!{_EDGE}){re.escape(option)}(?!{_EDGE})", body) for body in bodies)
    }


def population(n: int, seed: int) -> list[Developer]:
    """Return `n` different people, the same ones for the same seed."""
    return [_developer(f"dev-{index:03d}", Random(f"developer/{seed}/{index}")) for index in range(n)]


def _developer(user: str, rng: Random) -> Developer:
    return Developer(
        user=user,
        patience=rng.betavariate(4, 2),
        strictness=rng.betavariate(4, 2),
        temper=rng.betavariate(2, 3),
        rng=rng,
    )
