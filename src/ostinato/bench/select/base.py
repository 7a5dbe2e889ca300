"""The nouns of the choice: a candidate, the reading of one instrument, and the cost. Torch-free."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.model.tokenizer import Tokenizer


class SelectError(Exception):
    """A choice cannot be made as asked; the message says what, where and what to do."""


class NotPossibleError(SelectError):
    """One instrument cannot be used on one model; the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text to continue greedily, up to `most` characters of an answer or the text `end`.

    >>> Prompt(text="2 + 2 =", end="\\n", most=8).most
    8
    """

    text: str
    end: str
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Token ids, of which those from `first` on are scored; `first` is at least 1.

    >>> Window(ids=(5, 6, 7), first=1).first
    1
    """

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The expense of one instrument on one model.

    >>> Cost(read=900, sampled=20, cpu_s=1.5, wall_s=2.0).sampled
    20
    """

    read: int
    """Tokens of prompts and of scored text; a prefix that is read twice counts twice."""
    sampled: int
    cpu_s: float
    """CPU seconds of this process: next to nothing where a server computes."""
    wall_s: float


class Candidate(Protocol):
    """An open model that continues texts and scores tokens."""

    name: str
    tokenizer: Tokenizer
    context: int
    """The most tokens of a prompt with its answer, or of a window."""
    read: int
    """Tokens that it read so far, and `sampled` those that it gave."""
    sampled: int

    async def complete(self, prompts: Sequence[Prompt]) -> list[str]:
        """Return each answer without its end. Raises NotPossibleError for a prompt beyond the context."""
        ...

    async def logprobs(self, windows: Sequence[Window]) -> list[Sequence[float]]:
        """Return the log-probabilities in nats of each window's scored tokens.

        Raises NotPossibleError where the model's server tells none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """The values of one instrument on one model, item by item: a figure is the sum over the weight.

    >>> ModelReading(values=(1.0, 0.0), cost=Cost(read=9, sampled=2, cpu_s=0.1, wall_s=0.1)).values[0]
    1.0
    """

    values: tuple[float, ...]
    cost: Cost


class Instrument(Protocol):
    """A measurement whose items are the same for every model."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def more_is_better(self) -> bool:
        """True for a share of right answers; False for an amount that a good model keeps small."""
        ...

    @property
    def weights(self) -> tuple[float, ...]: ...

    @property
    def clusters(self) -> tuple[str, ...]:
        """The cluster of each item: values of one cluster may resemble each other."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The counts of its making, and what was left out."""
        ...

    @property
    def hash(self) -> str:
        """The hash over everything that decides a figure beside the model."""
        ...

    async def values(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the value of each item. Raises NotPossibleError."""
        ...


def hash_of(parts: Any) -> str:
    """Return the hash of JSON values, by which two outputs show that they used the same instrument."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
