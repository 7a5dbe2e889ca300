"""The definition of the live reward: which facts count, how much, and how long each is waited for.

It is a file of its own, so a team declares what it pays for, and its hash is stored with every reward. One
that names an unknown fact, waits in vain, or can pay for nothing is refused when it is read.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from ostinato.config import dump, load
from ostinato.rewards.definition import DefinitionError
from ostinato.rewards.live.facts import READERS, Price, Reader, SessionFacts
from ostinato.rewards.signals import known_at, without_side_calls
from ostinato.types import PartState, Reward, RewardPart, Signal, Turn, TurnOutline

DEFAULT = Path(__file__).with_name("default.toml")
"""The definition that ships."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePart:
    """One part of a definition: a fact, its weight, and how long it is waited for.

    >>> LivePart(weight=-0.3).window_s
    86400.0
    """

    weight: float
    """The worth of a fact of 1; 0 for a fact that is shown and not paid for."""
    reads: str = ""
    """The fact's name; without it the part's own."""
    window_s: float = 86_400.0
    """Seconds after the session's last turn in which the fact is waited for. One that comes later still
    counts: the session is then scored anew."""
    silence: float = 0.0
    """The value of the fact when the window is over and nothing is known."""
    at_s: float | None = None
    """The age of the edit at which its share is read, for `share_kept` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDefinition:
    """A declared reward of a session with a developer: the sum over its parts of weight times fact.

    A part is `observed` when its fact is known by `as_of`, `censored` and worth 0 while its window is open,
    and `expired` with the worth of silence afterwards. One whose window is longer than `train_after_s` is
    censored until that is over even if its fact is known: an edit made early in a long session would have
    been watched for longer than the same edit in a short one.

    >>> LIVE.score("s1", (), ()).parts[0].censored
    True
    """

    name: str
    parts: Mapping[str, LivePart]
    train_after_s: float = 86_400.0
    """The age, in seconds after the last turn, at which a session is trained on and compared. A part that is
    still censored then is left out of both, of every session alike; it re-scores the session later."""
    effort: Price = field(default_factory=Price)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.train_after_s) and self.train_after_s > 0):
            raise DefinitionError(f"{self.name}: train_after_s is {self.train_after_s}: make it positive")
        _check_price(f"{self.name}: effort", self.effort)
        for name, part in self.parts.items():
            _check(f"{self.name}: parts.{name}", name, part)
        if not any(self._may_pay(name, part) for name, part in self.parts.items()):
            raise DefinitionError(
                f"{self.name} can pay for nothing: no part of it can be above 0 by train_after_s = "
                f"{self.train_after_s:g}, so doing nothing would be best; give `kept` a positive weight"
            )

    def _may_pay(self, name: str, part: LivePart) -> bool:
        reader = READERS[part.reads or name]
        best = max(part.weight * reader.low, part.weight * reader.high if part.weight else 0.0)
        return best > 0 and part.window_s <= self.train_after_s

    def hash(self) -> str:
        """Return 12 hexadecimal digits that depend on every weight, window and name."""
        return _hash(self.name, tuple(self.parts.items()), self.train_after_s, self.effort)

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

    def settles_at(self, turns: Sequence[Turn]) -> float:
        """Return the time at which a session with these turns is trained on, in seconds since the epoch."""
        return max(turn.started_at + turn.latency_s for turn in turns) + self.train_after_s

    def settled(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float
    ) -> Reward | None:
        """Return the reward at the age of `train_after_s`, or None while the session is younger.

        A session without turns has no age and returns None too.

        Whether a session counts depends on its age alone, never on the feedback so far, and all sessions that
        count are scored at the same age.
        """
        turns = without_side_calls(turns)
        if not turns or (end := self.settles_at(turns)) > as_of:
            return None
        return self.score(session_id, turns, signals, as_of=end)


class Scorer:
    """A definition made ready for many sessions: its hash and its readers are looked up once."""

    def __init__(self, definition: LiveDefinition) -> None:
        self._hash = definition.hash()
        self._price = definition.effort
        self._train_after_s = definition.train_after_s
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
        over = as_of is not None and ended is not None and as_of >= ended + part.window_s
        counts = as_of is None or over or part.window_s <= self._train_after_s
        fact = reader.read(facts, part.at_s or 0.0, self._price) if counts else None
        if fact is not None:
            return RewardPart(name=name, value=part.weight * fact.value, evidence=fact.evidence)
        return RewardPart(
            name=name,
            value=part.weight * (part.silence if over else 0.0),
            state=PartState.EXPIRED if over else PartState.CENSORED,
        )


@cache
def _hash(name: str, parts: tuple[tuple[str, LivePart], ...], train_after_s: float, effort: Price) -> str:
    named = [(each, asdict(part)) for each, part in sorted(parts, key=lambda pair: pair[0])]
    text = json.dumps([name, named, train_after_s, asdict(effort)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check_price(where: str, price: Price) -> None:
    shape = price.k, price.q, price.tokens_per_turn
    if not all(map(math.isfinite, shape)) or min(price.k, price.q) < 0 or price.tokens_per_turn <= 0:
        raise DefinitionError(
            f"{where}: k is {price.k}, q {price.q} and tokens_per_turn {price.tokens_per_turn}: make k and q "
            "at least 0, and tokens_per_turn above 0"
        )


def _check(where: str, name: str, part: LivePart) -> None:
    reads = part.reads or name
    if reads not in READERS:
        raise DefinitionError(f"{where} reads the unknown fact {reads!r}: use {', '.join(sorted(READERS))}")
    for field_, value in (("weight", part.weight), ("window_s", part.window_s), ("silence", part.silence)):
        if not math.isfinite(value):
            raise DefinitionError(f"{where}.{field_} is {value}: make it finite")
    if part.window_s < 0:
        raise DefinitionError(f"{where}.window_s is {part.window_s}: make it at least 0")
    reader = READERS[reads]
    if not reader.low <= part.silence <= reader.high:
        raise DefinitionError(
            f"{where}.silence is {part.silence}: {reads} lies between {reader.low} and {reader.high}"
        )
    if reader.at_an_age != (part.at_s is not None):
        raise DefinitionError(
            f"{where}: share_kept needs at_s, the age of the edit, and no other fact has it"
        )
    if part.at_s is not None and not 0 <= part.at_s <= part.window_s:
        raise DefinitionError(
            f"{where}.at_s is {part.at_s}: it lies between 0 and window_s, {part.window_s:g}"
        )


def read_definition(path: Path) -> LiveDefinition:
    """Return the definition of a TOML file. Raises ConfigError and DefinitionError."""
    return load(LiveDefinition, path)


LIVE = read_definition(DEFAULT)
