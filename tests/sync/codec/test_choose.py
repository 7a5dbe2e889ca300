"""A tensor comes back to the bit from every codec; a base that does not fit is refused.

Covers sync/codec/choose.py, sync/codec/symbols.py, sync/codec/overwrite.py, sync/codec/planes.py,
sync/codec/steps.py and sync/codec/bounds.py.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.codec import (
    CODECS,
    FULL,
    OVERWRITE,
    RICE,
    SAME,
    SYMBOLS,
    XOR,
    DamagedPayload,
    decode,
    encode,
)
from ostinato.sync.codec.choose import SLICE, SLICES
from ostinato.sync.weights import DTYPES, Blob, make_blob, to_blobs

LARGE = 8 * SLICES * SLICE
"""Values of a tensor of which only a sample is tried."""


def blob(dtype: str, shape: tuple[int, ...], data: bytes) -> Blob:
    return make_blob(dtype, shape, np.frombuffer(data, np.uint8))


def of(tensor: torch.Tensor) -> Blob:
    return to_blobs({"t": tensor}, copy=True)["t"]


@st.composite
def blobs(draw: st.DrawFn, count: int) -> list[Blob]:
    """Draw blobs of one dtype and shape, with arbitrary bits: NaNs with payloads, -0.0 and all."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = math.prod(shape) * DTYPES[dtype].itemsize
    return [blob(dtype, shape, draw(st.binary(min_size=size, max_size=size))) for _ in range(count)]


@st.composite
def steps(draw: st.DrawFn) -> tuple[Blob, Blob]:
    """A tensor of any dtype before and after: some of its normal values changed, by little or altogether."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    count = draw(st.integers(0, 3000))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    itemsize = DTYPES[dtype].itemsize
    old = torch.from_numpy(random.normal(0, 0.02 if "float" in dtype else 40, count)).to(DTYPES[dtype])
    before = of(old)
    words = before.data.copy().view(f"<u{itemsize}")
    moved = np.flatnonzero(random.random(count) < draw(st.sampled_from([0.0, 1e-3, 0.02, 0.3, 1.0])))
    largest = draw(st.sampled_from([1, 5, 1 << 8 * itemsize - 2]))
    words[moved] += random.integers(1, largest, len(moved), endpoint=True).astype(words.dtype)
    return before, make_blob(dtype, before.shape, words.view(np.uint8))


def comes_back(before: Blob | None, after: Blob) -> str:
    codec, payload = encode(before, after)
    back = decode(codec, before, payload, after.dtype, after.shape)
    assert (back.data.tobytes(), back.digest) == (after.data.tobytes(), after.digest)
    assert (back.dtype, back.shape) == (after.dtype, after.shape)
    return codec


@given(blobs(2))
def test_arbitrary_bits_come_back(pair: list[Blob]) -> None:
    comes_back(*pair)


@given(steps())
def test_a_step_comes_back(pair: tuple[Blob, Blob]) -> None:
    before, after = pair
    assert (comes_back(before, after) == SAME) == (before.digest == after.digest)


@given(blobs(1), st.booleans())
def test_a_tensor_without_a_base_comes_back(single: list[Blob], other_shape: bool) -> None:
    (new,) = single
    old = blob(new.dtype, (*new.shape, 0), b"") if other_shape else None
    assert encode(old, new)[0] == FULL
    comes_back(old, new)


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bool"}))
def test_a_large_tensor_comes_back_however_much_of_it_changed(dtype: str) -> None:
    random = np.random.default_rng(0)
    scale = 0.02 if "float" in dtype else 40
    before = of(torch.from_numpy(random.normal(0, scale, LARGE)).to(DTYPES[dtype]))
    words = before.data.view(f"<u{before.itemsize}")
    for fraction in (1e-4, 0.01, 0.2, 0.5, 1.0):
        after = words + (random.random(LARGE) < fraction).astype(words.dtype)
        comes_back(before, make_blob(dtype, before.shape, after.view(np.uint8)))


def test_signed_zeros_and_nans_are_kept_apart() -> None:
    bits = [0x0000, 0x8000, 0x7FC0, 0x7FC1, 0xFFC0, 0x7F80, 0xFF80, 0x0001, 0x8001]
    words = np.array(bits * 2000, np.uint16)
    for shift in range(1, len(bits)):
        before, after = (
            make_blob("bfloat16", words.shape, w.view(np.uint8)) for w in (words, np.roll(words, shift))
        )
        comes_back(before, after)


def trained(rate: float, dtype: torch.dtype, count: int = LARGE) -> tuple[Blob, Blob]:
    """Weights before and after a step of Adam at this rate, whose direction is noise."""
    random = torch.Generator().manual_seed(0)
    weights = torch.randn(count, generator=random) * 0.02
    return of(weights.to(dtype)), of((weights + rate * torch.randn(count, generator=random)).to(dtype))


def test_each_codec_has_its_case() -> None:
    random = np.random.default_rng(0)
    noise, other = (blob("uint8", (LARGE,), random.bytes(LARGE)) for _ in range(2))
    replaced = noise.data.copy()
    replaced[random.integers(0, LARGE, 50)] = 7
    flips = noise.data ^ np.uint8(128) * (random.random(LARGE) < 0.4)
    found = {
        SAME: encode(noise, noise),
        FULL: encode(noise, other),
        OVERWRITE: encode(noise, make_blob("uint8", (LARGE,), replaced)),
        XOR: encode(noise, make_blob("uint8", (LARGE,), flips)),
        RICE: encode(*trained(1e-6, torch.bfloat16)),
        SYMBOLS: encode(*trained(1e-4, torch.float32)),
    }
    assert {name: codec for name, (codec, _) in found.items()} == {name: name for name in CODECS}


def test_a_small_step_costs_few_bits_a_changed_value() -> None:
    before, after = trained(2.45e-7, torch.bfloat16, 1 << 20)
    changed = int((before.data.view(np.uint16) != after.data.view(np.uint16)).sum())
    codec, payload = encode(before, after)
    assert codec == RICE
    assert 0.009 < changed / (1 << 20) < 0.011
    assert 8 * len(payload) / changed < 7.5
    assert after.data.size / len(payload) > 150


@pytest.mark.parametrize("rate", [1e-5, 1e-3])
def test_a_step_of_all_values_is_smaller_than_the_weights(rate: float) -> None:
    before, after = trained(rate, torch.float32)
    assert len(encode(before, after)[1]) < 0.8 * after.data.size < len(encode(None, after)[1])


@given(steps())
def test_applying_an_overwrite_twice_changes_nothing(pair: tuple[Blob, Blob]) -> None:
    before, after = pair
    codec, payload = encode(before, after)
    if codec == OVERWRITE:
        assert decode(codec, after, payload, after.dtype, after.shape).digest == after.digest


@pytest.mark.parametrize("codec", sorted(CODECS - {FULL}))
def test_a_base_of_another_shape_is_refused(codec: str) -> None:
    for old in (None, blob("uint8", (2, 2), b"abcd"), blob("int8", (4,), b"abcd")):
        with pytest.raises(DamagedPayload, match="needs a uint8 base of shape"):
            decode(codec, old, b"", "uint8", (4,))


def test_a_codec_that_a_dtype_lacks_is_refused() -> None:
    old = of(torch.arange(4))
    _, payload = encode(None, old)
    for codec in (RICE, "gzip"):
        with pytest.raises(DamagedPayload, match="no codec"):
            decode(codec, old, payload, "int64", (4,))
