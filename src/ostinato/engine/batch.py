"""One forward of a batch of slots: prefill of new prompts, or one more token each."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.cache import Decode, Prefill, SlotCache
from ostinato.engine.slots import SlotTable
from ostinato.model.decoder import Decoder

Slots = NDArray[np.int64]


class Forward:
    """Runs the decoder over rows of a SlotTable and records what it computed there. Needs inference mode."""

    def __init__(self, decoder: Decoder, table: SlotTable, cache: SlotCache) -> None:
        self._decoder, self._table, self._cache = decoder, table, cache

    def prefill(self, slots: Slots) -> Tensor:
        """Compute what is missing of these slots' prompts; logits [B, V] after their last tokens."""
        table = self._table
        start, end = table.computed[slots], table.length[slots]
        width, reach = int((end - start).max()), int(end.max())
        positions = start[:, None] + np.arange(width)
        real = positions < end[:, None]
        ids = np.where(real, table.tokens[slots[:, None], np.minimum(positions, reach - 1)], 0)
        seen = np.where(real, positions, 0)
        self._cache.reserve(reach)
        at = torch.from_numpy(seen)
        cache = Prefill(self._cache, torch.from_numpy(slots), at, torch.from_numpy(real))
        hidden, routes = self._decoder.hidden(torch.from_numpy(ids).long(), positions=at, cache=cache)
        if routes is not None:
            rows = np.broadcast_to(slots[:, None], real.shape)[real]
            table.routes[rows, positions[real]] = routes.numpy()[real]
        table.computed[slots] = end
        last = torch.from_numpy(end - start - 1)
        return self._decoder.head(hidden[torch.arange(len(slots)), last])

    def decode(self, slots: Slots) -> Tensor:
        """Compute the last token of these slots; logits [B, V] after it."""
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
