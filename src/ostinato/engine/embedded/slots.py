"""The table of slots: tokens, lengths, limits and the validity of keys, as arrays with one row per slot.

Invariant: keys and values of positions < `computed` lie in the cache, computed wholly by the weights of
`epoch` (MIXED if a swap fell in between). A finished request leaves its row behind for requests that continue
it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.engine.base import ROUTE_DTYPE
from ostinato.model.config import ModelConfig
from ostinato.types import Completion, Distribution, FinishReason, GenerateRequest

_SHAPING = "temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty"
SETTINGS = np.dtype([(name, np.float64) for name in _SHAPING.split()])
"""The fields of a `Sampling` that shape the distribution, in the order of the kernel's `Settings`."""
MIXED = -1
NEVER = -2


@dataclass(frozen=True, slots=True)
class Reuse:
    """A prefix of a prompt that is in the cache: `length` tokens at slot `source`."""

    source: int
    length: int


class SlotTable:
    """The rows of S slots, for sequences of at most `max_len` tokens.

    At most `drafts` tokens of a slot are drafted in one step; they lie behind its length.
    """

    def __init__(self, config: ModelConfig, slots: int, max_len: int, drafts: int = 0) -> None:
        self.max_len, self.drafts = max_len, drafts
        self.tokens = np.zeros((slots, max_len), np.int32)
        self.logprobs = np.zeros((slots, max_len), np.float32)
        self.versions = np.zeros((slots, max_len), np.int32)
        self.routes = np.zeros((slots, max_len, config.moe_layers, config.experts_per_token), ROUTE_DTYPE)
        self.uniform = np.zeros((slots, max_len), np.float32)
        self.stops = np.zeros((slots, config.vocab_size), np.bool_)
        self.length = np.zeros(slots, np.int64)
        self.prompt = np.zeros(slots, np.int64)
        self.limit = np.zeros(slots, np.int64)
        self.computed = np.zeros(slots, np.int64)
        self.settings = np.zeros(slots, SETTINGS)
        self.epoch = np.full(slots, NEVER, np.int64)
        self.busy = np.zeros(slots, np.bool_)
        self.freed = np.zeros(slots, np.int64)
        self._clock = 0

    def reusable(self, prompt: NDArray[np.int32], epoch: int) -> Reuse:
        """Return the slot with the longest prefix of `prompt[:-1]` that was computed in `epoch`."""
        reach = len(prompt) - 1
        same = self.tokens[:, :reach] == prompt[:reach]
        known = np.arange(reach) < self.computed[:, None]
        prefix = np.logical_and.accumulate(same & known, 1).sum(1)
        prefix[self.epoch != epoch] = 0
        # Among equals a free slot is taken whose tokens are all part of the prefix: it is continued in place.
        whole = ~self.busy & (prefix >= self.computed) & (prefix > 0)
        source = int(np.argmax(prefix * 2 + whole))
        return Reuse(source, int(prefix[source]))

    def place(self, reuse: Reuse) -> int:
        """Return the slot to use: the source if it is free and continued in place, else the longest unused
        one.

        There must be a free slot.
        """
        source, length = reuse.source, reuse.length
        if length and not self.busy[source] and length >= self.computed[source]:
            return source
        return int(np.argmin(np.where(self.busy, np.iinfo(np.int64).max, self.freed)))

    def admit(self, slot: int, request: GenerateRequest, reuse: Reuse, epoch: int) -> None:
        """Fill the row of a request whose first `reuse.length` tokens are computed."""
        count = len(request.prompt_ids)
        self.tokens[slot, :count] = request.prompt_ids
        self.routes[slot, : reuse.length] = self.routes[reuse.source, : reuse.length]
        self.length[slot] = self.prompt[slot] = count
        self.limit[slot] = min(count + request.max_tokens, self.max_len)
        room = int(self.limit[slot]) - count
        self.uniform[slot, count : count + room] = np.random.default_rng(request.sampling.seed).random(
            room, np.float32
        )
        self.computed[slot] = reuse.length
        self.settings[slot] = tuple(getattr(request.sampling, name) for name in SETTINGS.names or ())
        self.stops[slot] = False
        self.stops[slot, list(request.stop_ids)] = True
        self.epoch[slot] = epoch
        self.busy[slot] = True

    def append(
        self, slots: NDArray[np.int64], tokens: NDArray[np.int64], logprobs: NDArray[np.float32], version: int
    ) -> NDArray[np.int64]:
        """Write one sampled token per slot; return the slots that are finished by it."""
        at = self.length[slots]
        self.tokens[slots, at] = tokens
        self.logprobs[slots, at] = logprobs
        self.versions[slots, at] = version
        self.length[slots] = at + 1
        done = self.stops[slots, tokens] | (at + 1 >= self.limit[slots])
        return slots[done]

    def completion(self, slot: int, distribution: Distribution) -> Completion:
        start, end = int(self.prompt[slot]), int(self.length[slot])
        ids = tuple(self.tokens[slot, start:end].tolist())
        return Completion(
            ids=ids,
            logprobs=tuple(self.logprobs[slot, start:end].tolist()),
            versions=tuple(self.versions[slot, start:end].tolist()),
            finish=FinishReason.STOP if self.stops[slot, ids[-1]] else FinishReason.LENGTH,
            routes=self.routes[slot, : end - 1].tobytes() if self.routes.shape[2] else None,
            distribution=distribution,
        )

    def free(self, slot: int) -> None:
        self._clock += 1
        self.busy[slot] = False
        self.freed[slot] = self._clock

    def mix(self) -> None:
        """Note a swap: sequences that are partly computed will never be of one version."""
        self.epoch[self.busy] = MIXED
