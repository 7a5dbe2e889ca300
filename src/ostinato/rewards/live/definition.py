"""The definition of the live reward: which facts count, how much, and for how long they are waited for.

It is a file of its own, so a team declares what it pays for, and its hash is stored with every reward. One
that names an unknown fact, can pay for nothing, or pays for an outcome is refused when it is read: outcomes
decide whether a promotion stays, and no trainer may touch them.
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ostinato.config import dump, load
from ostinato.extend import PluginError, digests
from ostinato.rewards.definition import DefinitionError
from ostinato.rewards.live.correction import Correction
from ostinato.rewards.live.facts import READERS, Price, Reader, SessionFacts
from ostinato.rewards.live.outcomes import OUTCOMES, LiveOutcome
from ostinato.rewards.signals import known_at, without_side_calls
from ostinato.types import PartState, Reward, RewardPart, Signal, SignalKind, Turn, TurnOutline

log = logging.getLogger(__name__)

DEFAULT = Path(__file__).with_name("default.toml")
"""The definition that ships."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePart:
    """One part of a definition: a training fact and its weight.

    >>> LivePart(weight=-0.3).silence
    0.0
    """

    weight: float
    """The worth of a fact of 1; 0 for a fact that is shown and not paid for."""
    reads: str = ""
    """The fact's name; without it the part's own."""
    silence: float = 0.0
    """The value of the fact when the window is over and nothing is known."""
    at_s: float | None = None
    """The age of the edit at which its share is read, for `share_kept` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDefinition:
    """A declared reward of a session with a developer: the sum over its parts of weight times fact.

    A part is `observed` when its fact is known by `as_of`, `censored` and worth 0 while the window is open,
    and `expired` with the worth of silence afterwards. A fact that comes later still counts: the session is
    then scored anew.

    >>> LIVE.score("s1", (), ()).parts[0].censored
    True
    """

    name: str
    parts: Mapping[str, LivePart]
    train_after_s: float = 3_600.0
    """The window: the age, in seconds after the last turn, at which a session is trained on and compared."""
    background_after_s: float = 86_400.0
    """The window of a session in the background, whose report may be read the next morning. Each session is
    mature by its own window, so a slow kind neither waits for a fast one nor holds it up."""
    effort: Price = field(default_factory=Price)
    outcomes: Mapping[str, LiveOutcome] = field(default_factory=dict)
    """The outcomes by name: facts of later days, which decide whether a promotion stays."""
    late: Correction = field(default_factory=Correction)
    """How training learns what the window could not show."""

    def __post_init__(self) -> None:
        for window in ("train_after_s", "background_after_s"):
            if not (math.isfinite(seconds := getattr(self, window)) and seconds > 0):
                raise DefinitionError(f"{self.name}: {window} is {seconds}: make it positive")
        _check_price(f"{self.name}: effort", self.effort)
        if self.late.share and self.late.after_s <= (longest := max(self.windows)):
            raise DefinitionError(
                f"{self.name}: late.after_s is {self.late.after_s:g}: make it longer than train_after_s and "
                f"background_after_s, {longest:g}"
            )
        for name, outcome in self.outcomes.items():
            _check_outcome(f"{self.name}: outcomes.{name}", name, outcome)
        for name, part in self.parts.items():
            if (reads := part.reads or name) in OUTCOMES or self.outcomes.keys() & {name, reads}:
                raise DefinitionError(
                    f"{self.name}: parts.{name} pays for the outcome {reads!r}: an outcome decides whether a "
                    "promotion stays and is in no reward, so leave it under [outcomes] alone"
                )
            _check(f"{self.name}: parts.{name}", name, part, self.train_after_s)
        if not any(self._may_pay(name, part) for name, part in self.parts.items()):
            raise DefinitionError(
                f"{self.name} can pay for nothing: no part of it can be above 0, so doing nothing would be "
                "best; give `kept` a positive weight"
            )

    def _may_pay(self, name: str, part: LivePart) -> bool:
        reader = READERS[part.reads or name]
        return max(part.weight * reader.low, part.weight * reader.high if part.weight else 0.0) > 0

    def hash(self) -> str:
        """Return 12 hexadecimal digits that depend on every weight, window, outcome and name, and on the
        source of each plug-in that it reads."""
        declared = tuple(self.parts.items()), tuple(self.outcomes.items())
        plugins = digests(READERS, [part.reads or name for name, part in self.parts.items()])
        others = [json.dumps(plugins, sort_keys=True)] if plugins else []
        return _hash(*declared, self.name, self.windows, self.effort, self.late, *others)

    def text(self) -> str:
        """Return the definition as TOML, which `read_definition` turns back into an equal one."""
        return dump(self)

    def score(
        self,
        session_id: str,
        turns: Sequence[Turn | TurnOutline],
        signals: Sequence[Signal],
        *,
        as_of: float | None = None,
    ) -> Reward:
        """Return the reward of one session; raises SignalValueError.

        One that our own failure ended is the caller's to leave out: `Session.ending` keeps the first word on
        that, whatever a client says later. Signals observed after `as_of` (seconds since the epoch) do not
        count; with None all do, and no window is ever over. The order of signals changes nothing.
        """
        return Scorer(self).score(session_id, turns, signals, as_of)

    @property
    def windows(self) -> tuple[float, float]:
        """The window of a session that a person watches, and of one in the background."""
        return self.train_after_s, self.background_after_s

    def settles_at(self, turns: Sequence[Turn | TurnOutline], signals: Sequence[Signal] = ()) -> float:
        """Return when the window of a session is over, in seconds since the epoch."""
        window = self.windows[is_background(signals)]
        return _ended_at(turns) + window

    def trains_at(
        self, session_id: str, turns: Sequence[Turn | TurnOutline], signals: Sequence[Signal] = ()
    ) -> float:
        """Return when it is trained on: then, or at maturity if it is drawn to wait for late facts."""
        if not self.late.waits(session_id):
            return self.settles_at(turns, signals)
        return _ended_at(turns) + self.late.after_s

    def settled(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float
    ) -> Reward | None:
        """Return the reward at the end of the session's window, or None while the session is younger.

        A session without turns has no age and returns None too, and so does one on which the fact of a
        plug-in failed: it waits for the plug-in to be mended.

        Whether a session counts depends on its kind and age alone, never on the feedback so far, and all
        sessions of a kind that count are scored at the same age.
        """
        turns = without_side_calls(turns)
        if not turns or (end := self.settles_at(turns, signals)) > as_of:
            return None
        reward = self.score(session_id, turns, signals, as_of=end)
        return None if any(part.censored for part in reward.parts) else reward

    @property
    def mature_s(self) -> float:
        """The age at which every session can be trained on, in seconds after its last turn."""
        return max(*self.windows, self.late.after_s if self.late.share else 0.0)

    def ripe(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float
    ) -> tuple[Reward, float] | None:
        """Return the reward of a session that can be trained on, and what it is worth to the trainer.

        One that is drawn to wait for what comes late is scored at maturity; None for one that has to wait.
        """
        early = self.settled(session_id, turns, signals, as_of=as_of)
        if early is None or not self.late.waits(session_id):
            return None if early is None else (early, early.total)
        if (mature_at := self.trains_at(session_id, without_side_calls(turns), signals)) > as_of:
            return None
        late = self.score(session_id, turns, signals, as_of=mature_at)
        if any(part.censored for part in late.parts):
            return None
        return late, self.late.worth(early.total, late.total)


class Scorer:
    """A definition made ready for many sessions: its hash and its readers are looked up once."""

    def __init__(self, definition: LiveDefinition) -> None:
        self._hash = definition.hash()
        self._price = definition.effort
        self._windows = definition.windows
        self._parts = [(name, part, READERS[part.reads or name]) for name, part in definition.parts.items()]

    def score(
        self,
        session_id: str,
        turns: Sequence[Turn | TurnOutline],
        signals: Sequence[Signal],
        as_of: float | None,
    ) -> Reward:
        """Return the reward of one session, as `LiveDefinition.score` does."""
        facts = SessionFacts(turns, known_at(signals, as_of))
        parts = tuple(self._part(name, part, reader, facts, as_of) for name, part, reader in self._parts)
        return Reward(session_id=session_id, definition=self._hash, parts=parts, as_of=as_of)

    def _part(
        self, name: str, part: LivePart, reader: Reader, facts: SessionFacts, as_of: float | None
    ) -> RewardPart:
        ended = facts.ended_at
        window = self._windows[SignalKind.BACKGROUND in facts.by_kind]
        over = as_of is not None and ended is not None and as_of >= ended + window
        try:
            fact = reader.read(facts, part.at_s or 0.0, self._price)
        except PluginError as error:
            log.warning("%s", error)
            return RewardPart(name=name, value=0.0, state=PartState.CENSORED)
        if fact is not None:
            return RewardPart(name=name, value=part.weight * fact.value, evidence=fact.evidence)
        return RewardPart(
            name=name,
            value=part.weight * (part.silence if over else 0.0),
            state=PartState.EXPIRED if over else PartState.CENSORED,
        )


def _ended_at(turns: Sequence[Turn | TurnOutline]) -> float:
    """Return the end of the last turn, in seconds since the epoch."""
    return max(turn.started_at + turn.latency_s for turn in turns)


def is_background(signals: Sequence[Signal]) -> bool:
    """Return whether a session worked by itself in the background, whenever that was recorded."""
    return any(signal.kind is SignalKind.BACKGROUND for signal in signals)


@cache
def _hash(
    parts: tuple[tuple[str, LivePart], ...], outcomes: tuple[tuple[str, LiveOutcome], ...], *others: Any
) -> str:
    named = [{each: asdict(declared) for each, declared in some} for some in (parts, outcomes)]
    plain = [asdict(each) if isinstance(each, Price | Correction) else each for each in others]
    return hashlib.sha256(json.dumps([*named, *plain], sort_keys=True).encode()).hexdigest()[:12]


def _check_price(where: str, price: Price) -> None:
    shape = price.k, price.q, price.tokens_per_turn
    if not all(map(math.isfinite, shape)) or min(price.k, price.q) < 0 or price.tokens_per_turn <= 0:
        raise DefinitionError(
            f"{where}: k is {price.k}, q {price.q} and tokens_per_turn {price.tokens_per_turn}: make k and q "
            "at least 0, and tokens_per_turn above 0"
        )


def _check_outcome(where: str, name: str, outcome: LiveOutcome) -> None:
    reads = outcome.reads or name
    if reads not in OUTCOMES:
        raise DefinitionError(
            f"{where} reads the unknown outcome {reads!r}: use {', '.join(sorted(OUTCOMES))}"
        )
    if not (math.isfinite(outcome.after_s) and outcome.after_s > 0):
        raise DefinitionError(f"{where}.after_s is {outcome.after_s}: make it positive")
    if not 0 <= outcome.silence <= 1:
        raise DefinitionError(f"{where}.silence is {outcome.silence}: an outcome lies between 0 and 1")
    if outcome.margin is not None and not 0 < outcome.margin <= 1:
        raise DefinitionError(f"{where}.margin is {outcome.margin}: it lies above 0 and is 1 at most")


def _check(where: str, name: str, part: LivePart, window_s: float) -> None:
    reads = part.reads or name
    if reads not in READERS:
        raise DefinitionError(f"{where} reads the unknown fact {reads!r}: use {', '.join(sorted(READERS))}")
    for field_, value in (("weight", part.weight), ("silence", part.silence)):
        if not math.isfinite(value):
            raise DefinitionError(f"{where}.{field_} is {value}: make it finite")
    reader = READERS[reads]
    if not reader.low <= part.silence <= reader.high:
        raise DefinitionError(
            f"{where}.silence is {part.silence}: {reads} lies between {reader.low} and {reader.high}"
        )
    if reader.at_an_age != (part.at_s is not None):
        raise DefinitionError(
            f"{where}: share_kept needs at_s, the age of the edit, and no other fact has it"
        )
    if part.at_s is not None and not 0 <= part.at_s <= window_s:
        raise DefinitionError(
            f"{where}.at_s is {part.at_s:g}: it lies between 0 and train_after_s, {window_s:g}; what is "
            "known later is an outcome, so declare `survived` under [outcomes]"
        )


def read_definition(path: Path) -> LiveDefinition:
    """Return the definition of a TOML file. Raises ConfigError and DefinitionError."""
    return load(LiveDefinition, path)


LIVE = read_definition(DEFAULT)
