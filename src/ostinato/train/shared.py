"""Rows that begin alike, computed as one: their common prompt once, and behind it what each row adds.

Sessions under one profile share its system prompt and tools, and those of a group their task too. With a real
tokenizer that is most of a row: of 760 tokens of a SmolLM2 session on a pebble 480 are the same in every row.

::

    padded                          packed
    prompt  row 1 ……………             prompt │ row 1 ……………… │ row 2 …… │ row 3 ……………
    prompt  row 2 ……                every row attends to the prompt and to itself
    prompt  row 3 ……………

Gradients are exact: those of all rows add up in the prompt. Shapes: B rows, T tokens, H heads, K kv heads, D
head_dim, P tokens of the prompt.
"""
# ruff: noqa: N803, N806

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.decoder import Decoder

WORTH = 64
"""The tokens from which on a common prompt is computed once; below, one padded pass is faster."""


class PackedAttention:
    """A `KeyValueCache` that keeps nothing: tokens of one row [1, T] are a prompt and the rows behind it."""

    def __init__(self, prompt: int, rows: Sequence[int]) -> None:
        self._prompt = prompt
        self._rows = rows

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        """Return the attention of each row to the prompt and itself, [1, H, T, D]."""
        groups, P = q_BHTD.shape[1] // k_BKTD.shape[1], self._prompt
        sizes = [P, *self._rows]
        k, v = (x.repeat_interleave(groups, 1) for x in (k_BKTD, v_BKTD))
        q_prompt, *q_rows = torch.split_with_sizes(q_BHTD, sizes, 2)
        k_prompt, *k_rows = torch.split_with_sizes(k, sizes, 2)
        v_prompt, *v_rows = torch.split_with_sizes(v, sizes, 2)
        attended = [F.scaled_dot_product_attention(q_prompt, k_prompt, v_prompt, is_causal=True)]
        for q_row, k_row, v_row in zip(q_rows, k_rows, v_rows, strict=True):
            T = q_row.shape[2]
            seen = torch.ones(T, P + T, dtype=torch.bool, device=q_row.device).tril(P)
            keys, values = torch.cat((k_prompt, k_row), 2), torch.cat((v_prompt, v_row), 2)
            attended.append(F.scaled_dot_product_attention(q_row, keys, values, attn_mask=seen))
        return torch.cat(attended, 2)


def prompt_length(ids_BT: Tensor, counted_BT: Tensor) -> int:
    """Return the number of tokens that all rows begin with and that predict no counted token."""
    return min(_first((ids_BT != ids_BT[:1]).any(0)), _first(counted_BT[:, 1:].any(0)))


def packed_hidden(decoder: Decoder, ids_BT: Tensor, counted_BT: Tensor, prompt: int) -> Tensor:
    """Return the hidden states [N, C] that predict the counted tokens, row by row; the first column is
    ignored. `prompt` is at most the rows' `prompt_length`."""
    ends = [int(row.nonzero()[-1]) if row.any() else prompt for row in counted_BT]
    rows = [max(0, end - prompt) for end in ends]
    ids = torch.cat([ids_BT[0, :prompt], *(row[prompt:end] for row, end in zip(ids_BT, ends, strict=True))])
    reach = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    positions = torch.cat([reach[:prompt], *(reach[prompt : prompt + length] for length in rows)])
    attention = PackedAttention(prompt, [length for length in rows if length])
    hidden_BTC, _ = decoder.hidden(ids[None], positions=positions[None], cache=attention)
    predicts = [
        counted[prompt + 1 : prompt + 1 + length] for counted, length in zip(counted_BT, rows, strict=True)
    ]
    return hidden_BTC[0, prompt:][torch.cat(predicts)]


def _first(columns: Tensor) -> int:
    """Return the index of the first True, or their number when there is none."""
    found = columns.nonzero()
    return int(found[0]) if len(found) else len(columns)
