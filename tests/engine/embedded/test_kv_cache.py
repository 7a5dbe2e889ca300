"""Attention over slots agrees with the plain formula, for every way in which a step can read them."""

import pytest
import torch
import torch.nn.functional as F

from ostinato.engine.embedded.kv_cache import GROWTH, Decode, Prefill, SlotCache
from ostinato.model.config import ModelConfig

CONFIG = ModelConfig(vocab_size=8, hidden_size=16, layers=1, heads=4, kv_heads=2, head_dim=4)
SLOTS, LENGTH = 12, GROWTH + 9


def filled() -> tuple[SlotCache, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    cache = SlotCache(CONFIG, SLOTS)
    cache.reserve(LENGTH)
    for block in (*cache.keys, *cache.values):
        block.normal_()
    return cache, cache.keys[0].clone(), cache.values[0].clone()


@pytest.mark.parametrize("busy", [[0], [11], [2, 7, 3], [0, 1, 2], list(range(12)), [11, 4, 9, 0, 5]])
def test_one_token_a_row(busy: list[int]) -> None:
    cache, keys, values = filled()
    n, slots, positions = len(busy), torch.tensor(busy), torch.arange(len(busy)) * 5 + 3
    q, k, v = torch.randn(n, 4, 1, 4), torch.randn(n, 2, 1, 4), torch.randn(n, 2, 1, 4)
    got = Decode(cache, slots, positions).attend(0, q, k, v)
    for i, slot in enumerate(busy):
        at = int(positions[i])
        seen_k = torch.cat((keys[slot, :, :at], k[i]), 1)
        seen_v = torch.cat((values[slot, :, :at], v[i]), 1)
        expected = F.scaled_dot_product_attention(q[i : i + 1], seen_k[None], seen_v[None], enable_gqa=True)
        assert torch.allclose(got[i], expected[0], atol=1e-5)
        assert torch.equal(cache.keys[0][slot, :, at], k[i, :, 0])


def test_several_tokens_a_row_with_padding() -> None:
    cache, keys, values = filled()
    start, count = torch.tensor([4, 0, 60]), torch.tensor([3, 5, 1])
    slots = torch.tensor([7, 1, 2])
    positions = start[:, None] + torch.arange(5)
    real = torch.arange(5) < count[:, None]
    q, k, v = torch.randn(3, 4, 5, 4), torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 4)
    got = Prefill(cache, slots, torch.where(real, positions, 0), real).attend(0, q, k, v)
    for i, slot in enumerate(slots.tolist()):
        for t in range(int(count[i])):
            seen_k = torch.cat((keys[slot, :, : start[i]], k[i, :, : t + 1]), 1)[None]
            seen_v = torch.cat((values[slot, :, : start[i]], v[i, :, : t + 1]), 1)[None]
            query = q[i : i + 1, :, t : t + 1]
            expected = F.scaled_dot_product_attention(query, seen_k, seen_v, enable_gqa=True)
            assert torch.allclose(got[i, :, t], expected[0, :, 0], atol=1e-5)
        untouched = cache.keys[0][slot, :, int(start[i] + count[i]) :]
        assert torch.equal(untouched, keys[slot, :, int(start[i] + count[i]) :])


def test_growing_keeps_what_is_there() -> None:
    cache, keys, _ = filled()
    cache.reserve(3 * GROWTH + 1)
    assert cache.capacity == 4 * GROWTH
    assert torch.equal(cache.keys[0][:, :, : keys.shape[2]], keys)


def test_copying_a_prefix_touches_nothing_else() -> None:
    cache, keys, values = filled()
    cache.copy_prefix(3, 5, 10)
    assert torch.equal(cache.keys[0][5, :, :10], keys[3, :, :10])
    assert torch.equal(cache.values[0][5, :, 10:], values[5, :, 10:])
