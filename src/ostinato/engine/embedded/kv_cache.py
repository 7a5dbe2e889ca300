"""Keys and values of every slot, and attention over them.

Shapes: S slots, B rows of this step, T new tokens a row, H heads, K kv heads, D head_dim, X keys in reach.

A decode step is fast when the keys are read as one contiguous run: a batched product over slices with gaps
between them takes three times as long. So the blocks are only as long as the longest sequence so far, they
grow by copying, and every step reads them whole, up to the last busy slot.
"""
# ruff: noqa: N803, N806

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.config import ModelConfig

GROWTH = 64
"""The number of positions that are added at a time."""
SPARSE = 4
"""Rows are gathered when fewer than one in this many of the slots in reach are busy; else all are scanned."""


class SlotCache:
    """Blocks [S, K, capacity, D] for each layer; the capacity follows the longest sequence."""

    def __init__(self, config: ModelConfig, slots: int) -> None:
        shape = (slots, config.kv_heads, GROWTH, config.head_dim)
        self.capacity = GROWTH
        self.keys = [torch.zeros(shape) for _ in range(config.layers)]
        self.values = [torch.zeros(shape) for _ in range(config.layers)]

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` tokens."""
        if length > self.capacity:
            more = -(-(length - self.capacity) // GROWTH) * GROWTH
            self.capacity += more
            self.keys = [F.pad(block, (0, 0, 0, more)) for block in self.keys]
            self.values = [F.pad(block, (0, 0, 0, more)) for block in self.values]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        for block in (*self.keys, *self.values):
            block[target, :, :length] = block[source, :, :length]

    def addresses(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Return the rows of the flattened blocks [S·K·capacity, D] for tokens [n], shape [n·K]."""
        _, K, X, _ = self.keys[0].shape
        return ((slots[:, None] * K + torch.arange(K)) * X + positions[:, None]).flatten()

    def write(self, layer: int, addresses: Tensor, k_nKD: Tensor, v_nKD: Tensor) -> None:
        D = k_nKD.shape[-1]
        self.keys[layer].view(-1, D).index_copy_(0, addresses, k_nKD.reshape(-1, D))
        self.values[layer].view(-1, D).index_copy_(0, addresses, v_nKD.reshape(-1, D))


class Prefill:
    """The attention of several new tokens per row; rows are padded on the right."""

    def __init__(self, cache: SlotCache, slots: Tensor, positions_BT: Tensor, real_BT: Tensor) -> None:
        self.cache, self.slots, self.real = cache, slots, real_BT
        self.reach = int(positions_BT.max()) + 1
        rows = slots[:, None].expand_as(real_BT)
        self.addresses = cache.addresses(rows[real_BT], positions_BT[real_BT])
        self.mask = (torch.arange(self.reach) <= positions_BT[:, :, None])[:, None]

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        new = k_BKTD.transpose(1, 2)[self.real], v_BKTD.transpose(1, 2)[self.real]
        self.cache.write(layer, self.addresses, *new)
        k = self.cache.keys[layer][:, :, : self.reach][self.slots]
        v = self.cache.values[layer][:, :, : self.reach][self.slots]
        grouped = q_BHTD.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q_BHTD, k, v, attn_mask=self.mask, enable_gqa=grouped)


class Decode:
    """The attention of one new token per row.

    The busy slots lie scattered. Copying their keys together costs more than reading the idle slots between,
    so queries are spread over all slots up to the last busy one, unless few are busy.
    """

    def __init__(self, cache: SlotCache, slots: Tensor, positions: Tensor) -> None:
        self.cache, self.slots = cache, slots
        self.addresses = cache.addresses(slots, positions)
        self.high = int(slots.max()) + 1
        self.gather = len(slots) * SPARSE < self.high
        hidden = torch.arange(cache.capacity) > positions[:, None]
        bias_BX = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        self.bias = (bias_BX if self.gather else self._spread(bias_BX))[:, None, None]

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        self.cache.write(layer, self.addresses, k_BKTD[:, :, 0], v_BKTD[:, :, 0])
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        B, H, _, D = q_BHTD.shape
        q = q_BHTD.reshape(B, k_BKTD.shape[1], -1, D) * D**-0.5
        if self.gather:
            y = self._product(q, keys[self.slots], values[self.slots])
        else:
            y = self._product(self._spread(q), keys[: self.high], values[: self.high])
            y = y if len(y) == B else y.index_select(0, self.slots)
        return y.reshape(B, H, 1, D)

    def _product(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax((q @ k.transpose(-1, -2)).add_(self.bias), -1) @ v

    def _spread(self, rows: Tensor) -> Tensor:
        """Spread [B, …] to [high, …], with zeros for the idle slots."""
        if len(rows) == self.high:
            return rows
        return rows.new_zeros((self.high, *rows.shape[1:])).index_copy_(0, self.slots, rows)
