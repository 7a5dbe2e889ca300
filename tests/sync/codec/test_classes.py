"""Ranks and places agree with sorting; ordinals keep the order and distinguish all bit patterns.

Covers sync/codec/classes.py and sync/codec/ordinal.py.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.codec.bounds import bounds_for, merged
from ostinato.sync.codec.classes import BLOCK, CHUNK, classes, magnitudes
from ostinato.sync.codec.ordinal import MANTISSA_BITS, kind_of
from ostinato.sync.weights import DTYPES

sizes = st.sampled_from([0, 1, 63, 64, 65, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK - 1, CHUNK + 70])


@given(sizes, st.lists(st.integers(0, (1 << 16) - 1), max_size=9), st.integers(0, 99))
def test_ranks_are_those_of_a_stable_sort_by_class(count: int, bounds: list[int], seed: int) -> None:
    words = np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16)
    bounds.sort()
    which = np.searchsorted(bounds, magnitudes(words), side="right")
    order = np.argsort(which, kind="stable")
    found = classes(words, bounds)
    assert found.sizes.tolist() == np.bincount(which, minlength=len(bounds) + 1).tolist()
    assert found.places(np.arange(count)).tolist() == order.tolist()
    assert found.ranks(order, which[order]).tolist() == list(range(count))


@pytest.mark.parametrize("value", [0, 1])
def test_a_block_may_be_of_one_class_altogether(value: int) -> None:
    words = np.full(3 * BLOCK, value << 7, np.uint16)
    assert classes(words, [256]).places(np.arange(3 * BLOCK)).tolist() == list(range(3 * BLOCK))


@pytest.mark.parametrize("dtype", sorted(MANTISSA_BITS))
def test_ordinals_rise_with_values(dtype: str) -> None:
    kind = kind_of(dtype)
    assert kind is not None
    width = min(kind.width, 16)  # of float32 the upper half
    words = np.arange(1 << width).astype(f"u{kind.width // 8}") << (kind.width - width)
    ordinals = kind.ordinals(words)
    assert len(np.unique(ordinals)) == len(words)
    assert (kind.words(ordinals.astype(np.int64)) == words).all()
    values = torch.from_numpy(words.copy()).view(DTYPES[dtype]).float().numpy()
    rising = values[np.argsort(ordinals)]
    rising = rising[~np.isnan(rising)]
    assert (np.diff(rising[np.isfinite(rising)]) >= 0).all()


@pytest.mark.parametrize(("dtype", "values"), [("int8", [-128, -1, 0, 127]), ("uint8", [0, 1, 255])])
def test_whole_numbers_are_their_own_ordinals(dtype: str, values: list[int]) -> None:
    kind = kind_of(dtype)
    assert kind is not None
    words = np.array(values, dtype).view(np.uint8)
    assert kind.ordinals(words).tolist() == values


def test_differences_of_64_bits_are_not_taken() -> None:
    assert kind_of("float64") is kind_of("int64") is None


def test_neighbours_that_change_alike_are_one_class() -> None:
    alike, rare = (1000.0, 500.0), (100_000.0, 50.0)
    assert merged([alike, alike, rare, rare], 8) == [0, 2]
    assert merged([alike, rare, alike], 1) == [0]


def test_bounds_follow_where_values_change() -> None:
    random = np.random.default_rng(0)
    weights = torch.from_numpy(random.normal(0, 0.02, 1 << 16)).bfloat16()
    words = weights.view(torch.int16).numpy().view(np.uint16)
    kind = kind_of("bfloat16")
    assert kind is not None
    near_zero = words[weights.abs().float().numpy() < 1e-3]
    found = bounds_for(kind, words, near_zero, np.ones(len(near_zero), np.int64), 7)
    assert 1 <= len(found) <= 7
    # 1e-3 lies between 2^-10 and 2^-9: exponents 117 and 118 of bfloat16, in the upper byte of a magnitude.
    assert 118 << 8 in found
    assert not bounds_for(kind, words, near_zero[:10], np.ones(10, np.int64), 7)
