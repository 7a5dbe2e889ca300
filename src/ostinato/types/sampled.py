"""What is asked of an engine, what it sampled, and the row that is trained on."""

import math
from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why the engine stopped sampling one turn."""

    STOP = "stop"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"
    """The client's stop text was complete: the turn was cut there, without a stop token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What shaped the distribution that a turn's tokens were drawn from, beside the weights and the context.

    An engine draws from softmax(logits / temperature); whatever else is set here cuts or bends that
    distribution. Our engines know a temperature and a seed, and the gateway refuses the rest by name, so the
    other fields say what another engine did.

    >>> Sampling(temperature=0.3, seed=7).unscorable
    >>> Sampling(temperature=0.0).unscorable
    'sampled greedily'
    """

    temperature: float = 1.0
    """0 means greedy: the likeliest token, without a draw."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all tokens."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"a temperature is a number of at least 0, got {self.temperature}")

    @property
    def unscorable(self) -> str | None:
        """Why the trainer cannot compute the probability of what was drawn; None when it can."""
        if self.temperature == 0:
            return "sampled greedily"
        bent = [name for name, nothing in _PLAIN.items() if getattr(self, name) != nothing]
        return f"sampled with {', '.join(bent)}" if bent else None


_PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""The values at which these fields of a Sampling change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """What an engine is asked: continue `prompt_ids`.

    >>> GenerateRequest(request_id="r1", session_id="s1", prompt_ids=(1,), stop_ids=(3,), max_tokens=8).seed
    0
    """

    request_id: str
    session_id: str
    prompt_ids: tuple[int, ...]
    stop_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    """0 means greedy."""
    seed: int = 0

    @property
    def sampling(self) -> Sampling:
        """What the turn that comes of it records."""
        return Sampling(temperature=self.temperature, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine sampled; every sequence has one entry for each sampled token, the stop token included.

    `routes` is little-endian uint16 of shape [prompt + completion tokens - 1, moe layers, top_k], raw; None
    if dense.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log of the probability that each token was drawn with: of softmax(logits / temperature). A
    greedy token was not drawn: its number is that of temperature 1, and no gradient is computed from it."""
    versions: tuple[int, ...]
    finish: FinishReason
    routes: bytes | None = None

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"a completion needs one logprob and version per token, got {len(self.ids)} ids, "
                f"{len(self.logprobs)} logprobs, {len(self.versions)} versions"
            )
        if self.routes is not None and len(self.routes) % 2:
            raise ValueError(f"routes are two bytes each, got {len(self.routes)} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One trainable row: the tokens of one segment of a session.

    `ids`, `mask`, `logprobs`, `versions` and `temperatures` have one entry per token; mask is True on sampled
    tokens only, the others are 0.0, 0 and 1.0 elsewhere. `logprobs` are of softmax(logits / temperature).

    >>> Sample(session_id="s1", turns=(0,), ids=(1, 2), mask=(False, True), logprobs=(0.0, -0.5),
    ...        versions=(0, 7), temperatures=(1.0, 0.3), advantage=0.5).newest_version
    7
    """

    session_id: str
    turns: tuple[int, ...]
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    temperatures: tuple[float, ...]
    advantage: float

    def __post_init__(self) -> None:
        lengths = {
            name: len(getattr(self, name)) for name in ("ids", "mask", "logprobs", "versions", "temperatures")
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"session {self.session_id}: a row needs one entry per token, got {lengths}")
        if not any(self.mask):
            raise ValueError(f"session {self.session_id}: a row without a sampled token trains nothing")
        if not math.isfinite(self.advantage):
            raise ValueError(
                f"session {self.session_id}: an advantage is a finite number, got {self.advantage}"
            )

    @property
    def oldest_version(self) -> int:
        return min(v for v, sampled in zip(self.versions, self.mask, strict=True) if sampled)

    @property
    def newest_version(self) -> int:
        return max(v for v, sampled in zip(self.versions, self.mask, strict=True) if sampled)
