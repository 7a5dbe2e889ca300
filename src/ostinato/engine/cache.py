"""Keys and values of every slot, and attention over them.

Shapes: S slots, B rows of this step, T new tokens a row, H heads, K kv heads, D head_dim, X keys in reach.
"""
# ruff: noqa: N803, N806

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.config import ModelConfig

SPARSE = 4
"""Rows are gathered when fewer than one in this many of the slots in reach is busy, else all are scanned."""


class SlotCache:
    """One static block [S, K, max_len + 1, D] a layer; the last position takes what padding writes."""

    def __init__(self, config: ModelConfig, slots: int, max_len: int) -> None:
        shape = (config.layers, slots, config.kv_heads, max_len + 1, config.head_dim)
        self.keys = torch.zeros(shape)
        self.values = torch.zeros(shape)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        for block in (self.keys, self.values):
            block[:, target, :, :length] = block[:, source, :, :length]


@dataclass(frozen=True, slots=True)
class Prefill:
    """Several new tokens a row; rows are padded on the right."""

    cache: SlotCache
    slots: Tensor
    """[B]"""
    write: Tensor
    """[B, T]: the position each token is stored at; max_len for padding."""
    mask: Tensor
    """[B, 1, T, X]: True where a token may look."""

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slots[:, None], :, self.write] = k_BKTD.transpose(1, 2)
        values[self.slots[:, None], :, self.write] = v_BKTD.transpose(1, 2)
        reach = self.mask.shape[-1]
        k, v = keys[:, :, :reach][self.slots], values[:, :, :reach][self.slots]
        grouped = q_BHTD.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q_BHTD, k, v, attn_mask=self.mask, enable_gqa=grouped)


class Decode:
    """One new token a row.

    The busy slots lie scattered. Copying their keys together costs more than reading the idle ones between,
    so queries are spread over all slots up to the last busy one, unless few are busy.
    """

    def __init__(self, cache: SlotCache, slots: Tensor, positions_B: Tensor) -> None:
        self.cache, self.slots, self.positions = cache, slots, positions_B
        self.high = int(slots.max()) + 1
        self.gather = len(slots) * SPARSE < self.high
        reach = int(positions_B.max()) + 1
        hidden = torch.arange(reach) > positions_B[:, None]
        bias_BX = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        self.bias = (bias_BX if self.gather else self._spread(bias_BX))[:, None, None]
        self.reach = reach

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slots, :, self.positions] = k_BKTD[:, :, 0]
        values[self.slots, :, self.positions] = v_BKTD[:, :, 0]
        B, H, _, D = q_BHTD.shape
        q = q_BHTD.reshape(B, k_BKTD.shape[1], -1, D) * D**-0.5
        y = self._gathered(q, keys, values) if self.gather else self._spread_out(q, keys, values)
        return y.reshape(B, H, 1, D)

    def _gathered(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        k, v = keys[:, :, : self.reach][self.slots], values[:, :, : self.reach][self.slots]
        return torch.softmax(q @ k.transpose(-1, -2) + self.bias, -1) @ v

    def _spread_out(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        k, v = keys[: self.high, :, : self.reach], values[: self.high, :, : self.reach]
        scores = self._spread(q) @ k.transpose(-1, -2)
        y = torch.softmax(scores.add_(self.bias), -1) @ v
        return y if len(self.slots) == self.high else y.index_select(0, self.slots)

    def _spread(self, rows: Tensor) -> Tensor:
        """[B, …] to [high, …] with zeros for the idle slots."""
        if len(rows) == self.high:
            return rows
        return rows.new_zeros((self.high, *rows.shape[1:])).index_copy_(0, self.slots, rows)
