"""The definition of practice's reward: turns and signals ─► a Reward with named parts and evidence.

It is a file of its own with a hash. Every stored Reward carries the hash, so a changed weight is a different
reward and never mixes silently with the old one.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ostinato.config import dump, load
from ostinato.extend import PluginError, Registry, digests, guarded
from ostinato.model.families import Renderer
from ostinato.rewards.definition import DefinitionError
from ostinato.rewards.parts.effort import EffortPrice
from ostinato.rewards.parts.fact import Fact
from ostinato.rewards.parts.faults import broken, needless_questions, scope, tampered, unreported
from ostinato.rewards.parts.hygiene import open_todos, repeated_reads
from ostinato.rewards.parts.outcome import solved
from ostinato.rewards.parts.style import style
from ostinato.rewards.parts.truth import false_claim
from ostinato.rewards.parts.work import Work, work_of
from ostinato.rewards.signals import refuse_void
from ostinato.types import Grade, PartState, Reward, RewardPart, Signal, Turn

DEFAULT = Path(__file__).with_name("default.toml")
"""The definition that ships."""
OUTCOME, EFFORT = "solved", "effort"
MOST_STYLE = 0.1
"""The largest weight of style: what looks good must not make up for what works."""

ReadFault = Callable[[Work], Fact]
FAULTS: Registry[ReadFault] = Registry(
    "fault",
    {
        "broken": lambda work: broken(work.turns),
        "tampered": lambda work: tampered(work.signals),
        "unreported": lambda work: unreported(work.signals),
        "false_claim": false_claim,
        "needless_questions": lambda work: needless_questions(work.signals),
    },
)
"""The faults that cost on every session, by name: ours, and those of plug-ins."""
FAULTS_OF_PASSING: Registry[ReadFault] = Registry(
    "fault of passing work",
    {
        "style": lambda work: style(work.signals),
        "scope": lambda work: scope(work.signals),
        "open_todos": open_todos,
        "repeated_reads": repeated_reads,
    },
)
"""The faults that cost on passing work alone, by name. Each is a fact from 0 to 1."""


def fault(name: str, *, of_passing: bool = False) -> Callable[[ReadFault], ReadFault]:
    """Return a decorator that adds a fault which `weights.NAME` of a practice definition may then price.

    The function reads one session's work and returns a fact from 0 to 1. Where it fails, the group of
    sessions of that task is not learnt from, and the log says why: neither a price of 0 nor a full one would
    be true.
    """

    def add(function: ReadFault) -> ReadFault:
        def read(work: Work) -> Fact:
            fact = function(work)
            if not 0 <= fact.value <= 1:
                raise ValueError(f"it returned {fact.value}, which does not lie between 0 and 1")
            return fact

        if name in parts():
            raise PluginError(f"practice has a part {name} already: take another name")
        (FAULTS_OF_PASSING if of_passing else FAULTS).add(name, guarded(f"fault {name}", read))
        return function

    return add


def parts() -> tuple[str, ...]:
    """Return the names that a definition may give a weight."""
    return (OUTCOME, *FAULTS, *FAULTS_OF_PASSING, EFFORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeDefinition:
    """A declared reward of a task with hidden tests: the sum over its parts of weight times fact.

    >>> PRACTICE.weights["solved"]
    1.0
    """

    name: str
    weights: Mapping[str, float]
    """The worth of a fact of 1, by the name of the part; a part without a weight is left out."""
    lowest_grade: Grade = Grade.JUDGED
    """The lowest grade of a verdict whose pass is paid for (`docs/verdict.md`)."""
    effort: EffortPrice = field(default_factory=EffortPrice)

    def __post_init__(self) -> None:
        for part, weight in self.weights.items():
            if part not in parts():
                raise DefinitionError(f"{self.name}: weights.{part} is no part: use {', '.join(parts())}")
            if not math.isfinite(weight):
                raise DefinitionError(f"{self.name}: weights.{part} is {weight}: make it finite")
            if weight > 0 and part != OUTCOME:
                raise DefinitionError(
                    f"{self.name}: weights.{part} is {weight}, which would pay for a fault or for effort: "
                    "make it 0 or less"
                )
        pay = self.weights.get(OUTCOME, 0.0)
        if pay <= 0:
            raise DefinitionError(
                f"{self.name} can pay for nothing: weights.{OUTCOME} is {pay}, so doing nothing would be "
                "best; make it positive"
            )
        if (weight := self.weights.get("style", 0.0)) < -MOST_STYLE:
            raise DefinitionError(f"{self.name}: weights.style is {weight}: make it at least {-MOST_STYLE}")
        if (most := -sum(self.weights.get(part, 0.0) for part in FAULTS_OF_PASSING)) >= pay:
            raise DefinitionError(
                f"{self.name}: the faults of passing work cost up to {most:g} and a pass pays {pay:g}, so "
                "failing could be better; let them add up to less"
            )

    def hash(self) -> str:
        """Return 12 hexadecimal digits that depend on every weight and name, not on their order, and on the
        source of each plug-in whose faults have a weight."""
        plugins = digests(FAULTS, [*self.weights]) | digests(FAULTS_OF_PASSING, [*self.weights])
        text = json.dumps(asdict(self) | ({"plugins": plugins} if plugins else {}), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def text(self) -> str:
        """Return the definition as TOML, which `read_practice_definition` turns back into an equal one."""
        return dump(self)


class PracticeReward:
    """A definition together with the renderer in whose format the sessions were sampled."""

    def __init__(self, definition: PracticeDefinition, renderer: Renderer) -> None:
        self.definition = definition
        self._hash = definition.hash()
        self._renderer = renderer

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        """Return the reward of one session; raises VoidSessionError, SignalValueError, PluginError.

        `as_of` changes nothing here: every fact is known when the session ends.
        """
        refuse_void(session_id, signals)
        work = work_of(turns, signals, self._renderer)
        outcome = solved(signals, lowest=self.definition.lowest_grade)
        weights = self.definition.weights
        facts = {name: read(work) for name, read in FAULTS.items() if name in weights}
        passing = outcome is not None and outcome.value > 0
        facts |= {
            name: read(work) if passing else Fact(value=0.0)
            for name, read in FAULTS_OF_PASSING.items()
            if name in weights
        }
        facts[EFFORT] = Fact(value=self.definition.effort.cost(work.effort))
        return Reward(
            session_id=session_id,
            definition=self._hash,
            parts=(
                _outcome(outcome, weights[OUTCOME]),
                *(_part(name, fact, weights[name]) for name, fact in facts.items() if name in weights),
            ),
            as_of=as_of,
        )


def _outcome(fact: Fact | None, weight: float) -> RewardPart:
    if fact is None:
        return RewardPart(name=OUTCOME, value=0.0, state=PartState.CENSORED)
    return _part(OUTCOME, fact, weight)


def _part(name: str, fact: Fact, weight: float) -> RewardPart:
    return RewardPart(name=name, value=weight * fact.value, evidence=fact.evidence)


def read_practice_definition(path: Path) -> PracticeDefinition:
    """Return the definition of a TOML file. Raises ConfigError and DefinitionError."""
    return load(PracticeDefinition, path)


PRACTICE = read_practice_definition(DEFAULT)
"""The definition that ships."""
