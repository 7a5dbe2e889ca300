"""Simulated developers: they answer questions from their intent card and react as people do.

Nothing here knows hidden tests. A developer sees whether something changed and tries it out (`works`), and
may overlook that it does not work; some are patient, some strict, some rude.
"""

from dataclasses import dataclass, replace
from random import Random

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

    @property
    def wants_edit(self) -> bool:
        return self.kind != "question"

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
        )


@dataclass(slots=True, kw_only=True)
class Developer:
    """One simulated person; the traits lie in [0, 1].

    `on(task)` gives the same person at work on a task; without one every answer is a shrug.
    """

    user: str
    patience: float
    """0 walks away after a few turns, 1 waits for twenty."""
    strictness: float
    """How surely they notice that something does not work."""
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

    def react(self, turns: int, ending: Ending, changed: bool, works: bool) -> list[Reaction]:
        """What is observed of them after a session; nothing when the failure was ours.

        `changed`: the repository differs from the start. `works`: what they wanted is there when they try it
        (for a question: the answer was right).
        """
        if ending is Ending.INFRASTRUCTURE:
            return []
        reactions = self._about_questions()
        if self._walks_away(turns):
            return [*reactions, (SignalKind.ABANDONED, 1.0)]
        if self.intent is not None and not self.intent.wants_edit:
            return reactions + self._to_answer(changed, works)
        if not changed:  # nothing was done: they turn to something else, and that is an outcome too
            return [
                *reactions,
                (SignalKind.ABANDONED, 1.0),
                *self._complaint(0.9 if ending in RUNAWAY else 0.6),
            ]
        return reactions + self._to_edit(works)

    def _about_questions(self) -> list[Reaction]:
        needed = self.intent is not None and not self.intent.decidable
        return [(SignalKind.QUESTION_ANSWERED, float(needed))] if self.asked else []

    def _walks_away(self, turns: int) -> bool:
        """Hardly ever before the limit of their patience (4 to 20 turns), then ever more likely."""
        over = turns - (4 + 16 * self.patience)
        return self._happens(0.01 if over <= 0 else min(0.9, 0.2 * over))

    def _to_answer(self, changed: bool, works: bool) -> list[Reaction]:
        right = works and not changed
        complaint = [] if right else self._complaint(0.8 if changed else 0.5)
        return [(SignalKind.NO_EDIT_WANTED, float(right)), *complaint]

    def _to_edit(self, works: bool) -> list[Reaction]:
        seems_right = works or not self._happens(0.5 + 0.5 * self.strictness)
        if seems_right and self._happens(0.93):
            return [(SignalKind.EDIT_KEPT, 1.0)]
        if seems_right or self._happens(0.15):
            return [(SignalKind.EDIT_EDITED, 1.0)]
        return [(SignalKind.EDIT_REVERTED, 1.0), *self._complaint(0.7)]

    def _complaint(self, share: float) -> list[Reaction]:
        return [(SignalKind.COMPLAINT, 1.0)] if self._happens(share * self.temper) else []

    def _happens(self, chance: float) -> bool:
        return self.rng.random() < chance


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
