"""The forward pass of a batch of slots: the prefill of new prompts, or one more token for each slot.

`Forward` is the protocol that the engine uses. `TorchForward` runs anywhere; `NativeForward` (`native.py`)
runs where there is a C compiler, and is several times faster.
"""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.embedded.kv_cache import Decode, Prefill, SlotCache
from ostinato.engine.embedded.sampling import penalise, sample
from ostinato.engine.embedded.slots import SlotTable
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp, prefix

Slots = NDArray[np.int64]


class Forward(Protocol):
    """Computes rows of a SlotTable and samples into it."""

    def fill(self, slot: int, end: int) -> None:
        """Compute the tokens of a slot below position `end`, which comes before its last one."""
        ...

    def advance(self, slots: Slots, version: int) -> Slots:
        """Compute the missing tokens of these slots and sample one token for each, labelled with `version`.

        Where tokens were drafted and the sampled one is as drafted, more than one. Return the slots that are
        finished.
        """
        ...

    def drafted(self) -> tuple[int, int]:
        """Return how many tokens were drafted so far, and how many of them were accepted."""
        ...

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Let `target` go on from the first `length` tokens of `source`, which may be the same slot."""
        ...

    def prepare(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return weights ready for `use`, without touching those in use. It may run in a thread.

        Raises WeightsError.
        """
        ...

    def use(self, weights: Any) -> None:
        """Compute with the result of `prepare` from now on."""
        ...


class TorchForward:
    """The decoder in torch, over blocks of keys that grow.

    It drafts nothing: its rows depend on the batch by rounding, so that a draft could change a token.
    """

    def __init__(self, decoder: Decoder, table: SlotTable, draft: Mtp | None = None) -> None:
        self._table = table
        self._decoder = decoder
        self._decoder = self.prepare(decoder.state_dict())
        self._cache = SlotCache(decoder.config, len(table.busy))

    def prepare(self, tensors: Mapping[str, Tensor]) -> Decoder:
        shadow, start = copy.deepcopy(self._decoder), prefix(self._decoder.config)
        shadow.load_state_dict({name: tensors[name] for name in tensors if not name.startswith(start)})
        return shadow

    def use(self, weights: Decoder) -> None:
        self._decoder = weights

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, length: int) -> None:
        if source != target:
            self._cache.copy_prefix(source, target, length)

    @torch.inference_mode()
    def fill(self, slot: int, end: int) -> None:
        self._compute(np.array([slot]), np.array([end]))

    @torch.inference_mode()
    def advance(self, slots: Slots, version: int) -> Slots:
        missing = self._table.length[slots] - self._table.computed[slots]
        parts = (slots[missing > 1], self._prefill), (slots[missing == 1], self._decode)
        finished = [self._append(part, compute(part), version) for part, compute in parts if len(part)]
        return np.concatenate(finished)

    def drafted(self) -> tuple[int, int]:
        return 0, 0

    def _prefill(self, slots: Slots) -> Tensor:
        """Compute several tokens of each of these slots; return logits [B, V] after their last ones."""
        last = self._table.length[slots] - self._table.computed[slots] - 1
        hidden = self._compute(slots, self._table.length[slots])
        return self._decoder.head(hidden[torch.arange(len(slots)), torch.from_numpy(last)])

    def _compute(self, slots: Slots, end: Slots) -> Tensor:
        """Compute the tokens of each slot below its position `end`; return their hidden states [B, T, C]."""
        table = self._table
        start = table.computed[slots]
        width, reach = int((end - start).max()), int(end.max())
        positions = start[:, None] + np.arange(width)
        real = positions < end[:, None]
        ids = np.where(real, table.tokens[slots[:, None], np.minimum(positions, reach - 1)], 0)
        self._cache.reserve(reach)
        at = torch.from_numpy(np.where(real, positions, 0))
        cache = Prefill(self._cache, torch.from_numpy(slots), at, torch.from_numpy(real))
        hidden, routes = self._decoder.hidden(torch.from_numpy(ids).long(), positions=at, cache=cache)
        if routes is not None:
            rows = np.broadcast_to(slots[:, None], real.shape)[real]
            table.routes[rows, positions[real]] = routes.numpy()[real]
        table.computed[slots] = end
        return hidden

    def _decode(self, slots: Slots) -> Tensor:
        """Compute the last token of each of these slots; return logits [B, V] after it."""
        table = self._table
        positions = table.computed[slots]
        ids = torch.from_numpy(table.tokens[slots, positions]).long()[:, None]
        at = torch.from_numpy(positions)
        self._cache.reserve(int(positions.max()) + 1)
        cache = Decode(self._cache, torch.from_numpy(slots), at)
        hidden, routes = self._decoder.hidden(ids, positions=at[:, None], cache=cache)
        if routes is not None:
            table.routes[slots, positions] = routes.numpy()[:, 0]
        table.computed[slots] = positions + 1
        return self._decoder.head(hidden[:, 0])

    def _append(self, slots: Slots, logits: Tensor, version: int) -> Slots:
        table = self._table
        uniform = table.uniform[slots, table.length[slots]]
        for row, slot in enumerate(slots):
            start, end = table.prompt[slot], table.length[slot]
            penalise(logits[row], table.tokens[slot, :end], start, table.settings[slot])
        tokens, logprobs = sample(logits, table.settings[slots], torch.from_numpy(uniform))
        return table.append(slots, tokens.numpy(), logprobs.numpy(), version)
