"""The sample: a row of tokens that can be trained on, and the group of all samples of one prompt."""

import math
from dataclasses import dataclass

_PER_TOKEN = ("ids", "mask", "logprobs", "versions", "temperatures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The experts that an engine sent the first tokens of a row to, best first.

    `data` is raw little-endian uint16 of shape [tokens, width], where `width` is the number of layers with
    experts times that of experts per token, layer by layer.

    >>> Routes(data=bytes(12), width=2).tokens
    3
    """

    data: bytes
    width: int

    def __post_init__(self) -> None:
        if self.width < 1 or not self.data or len(self.data) % (2 * self.width):
            raise ValueError(
                f"routes of {self.width} experts a token take {2 * self.width} bytes for each, got "
                f"{len(self.data)} bytes"
            )

    @property
    def tokens(self) -> int:
        return len(self.data) // (2 * self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One trainable row: the tokens of one segment of a session.

    `ids`, `mask`, `logprobs`, `versions` and `temperatures` have one entry per token. The mask is True on
    sampled tokens only; elsewhere `logprobs`, `versions` and `temperatures` are 0.0, 0 and 1.0. `logprobs`
    are of softmax(logits / temperature). `routes` are of the first tokens of the row, at most of all but the
    last one, which was sampled and never computed; None when no engine told any.

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
    routes: Routes | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in _PER_TOKEN}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"session {self.session_id}: a row needs one entry per token, got {lengths}")
        if not any(self.mask):
            raise ValueError(f"session {self.session_id}: a row without a sampled token trains nothing")
        if not math.isfinite(self.advantage):
            raise ValueError(
                f"session {self.session_id}: an advantage is a finite number, got {self.advantage}"
            )
        if self.routes is not None and self.routes.tokens >= len(self.ids):
            raise ValueError(
                f"session {self.session_id}: routes of {self.routes.tokens} tokens for a row of "
                f"{len(self.ids)}, whose last one was never computed"
            )

    @property
    def oldest_version(self) -> int:
        return min(v for v, sampled in zip(self.versions, self.mask, strict=True) if sampled)

    @property
    def newest_version(self) -> int:
        return max(v for v, sampled in zip(self.versions, self.mask, strict=True) if sampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All samples of one prompt: the ledger offers them to the trainer together or not at all.

    >>> row = Sample(session_id="s1", turns=(0,), ids=(1, 2), mask=(False, True), logprobs=(0.0, -0.5),
    ...              versions=(0, 7), temperatures=(1.0, 1.0), advantage=0.5)
    >>> Group(id="g1", prompt="9d1c/0", samples=(row,), rewards=(1.0, 0.0)).oldest_version
    7
    """

    id: str
    prompt: str
    """The ledger's key of the prompt: trained at most once."""
    samples: tuple[Sample, ...]
    rewards: tuple[float, ...]
    """One total per session that began on its own (for a forked session the mean of its branches). The
    learner divides by their number."""
    kind: str = ""
    """The kind of the task, so that trained and stale samples can be counted by kind."""
    trees: tuple[tuple[str, ...], ...] = ()
    """The sessions behind each reward, those without a sample included: a session alone, or a trunk and then
    its branches. Empty when every session of the group is alone and has a sample."""
    person: str = ""
    """The id of the first session of the same person in the collection, which tells people apart and names
    nobody; empty in practice."""
    weight: float = 1.0
    """The weight of a live session, above 0 and 1 at most, which is less where its person brings many. The
    advantages of its samples contain it."""

    def __post_init__(self) -> None:
        if wrong := [reward for reward in self.rewards if not math.isfinite(reward)]:
            raise ValueError(f"group {self.id}: a reward is a finite number, got {wrong[0]}")
        if not 0 < self.weight <= 1:
            raise ValueError(f"group {self.id}: a weight is above 0 and 1 at most, got {self.weight}")
        if self.trees and (len(self.trees) != len(self.rewards) or not all(self.trees)):
            raise ValueError(
                f"group {self.id}: {len(self.rewards)} rewards need as many trees of one session at least, "
                f"got {self.trees}"
            )

    @property
    def oldest_version(self) -> int:
        return min(sample.oldest_version for sample in self.samples)
