"""A damaged payload raises DamagedPayload: no crash, no other error, no memory beyond the tensor's.

Covers sync/codec/payload.py.
"""

import tracemalloc

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.codec import (
    FULL,
    OVERWRITE,
    RICE,
    SYMBOLS,
    XOR,
    DamagedPayload,
    decode,
    overwrite,
    planes,
    steps,
    symbols,
)
from ostinato.sync.codec.ordinal import kind_of, words_of
from ostinato.sync.codec.payload import number, sealed
from ostinato.sync.weights import Blob, to_blobs

COUNT = 2000
KIND = kind_of("bfloat16")
assert KIND is not None


def pair() -> tuple[Blob, Blob]:
    random = torch.Generator().manual_seed(0)
    before = torch.randn(COUNT, generator=random) * 0.02
    after = before + 1e-4 * torch.randn(COUNT, generator=random)
    blobs = to_blobs({"before": before.bfloat16(), "after": after.bfloat16()}, copy=True)
    return blobs["before"], blobs["after"]


BEFORE, AFTER = pair()
OLD, NEW = words_of(BEFORE), words_of(AFTER)
PLACES = np.flatnonzero(OLD != NEW)
BODIES = {
    RICE: steps.packed(KIND, OLD, NEW, PLACES),
    SYMBOLS: symbols.packed(KIND, symbols.bounds_of(KIND, OLD, NEW, PLACES), OLD, NEW),
    OVERWRITE: overwrite.packed(NEW, PLACES),
    XOR: planes.packed(OLD ^ NEW),
    FULL: planes.packed(NEW),
}
codecs = st.sampled_from(sorted(BODIES))


def back(codec: str, payload: bytes) -> Blob:
    return decode(codec, BEFORE, payload, AFTER.dtype, AFTER.shape)


@pytest.mark.parametrize("codec", sorted(BODIES))
def test_each_form_comes_back(codec: str) -> None:
    assert back(codec, sealed(BODIES[codec])).digest == AFTER.digest


@given(codecs, st.data())
def test_a_flipped_bit_is_noticed(codec: str, data: st.DataObject) -> None:
    damaged = bytearray(sealed(BODIES[codec]))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedPayload):
        back(codec, bytes(damaged))


@given(codecs, st.data())
def test_a_missing_end_is_noticed(codec: str, data: st.DataObject) -> None:
    payload = sealed(BODIES[codec])
    with pytest.raises(DamagedPayload):
        back(codec, payload[: data.draw(st.integers(0, len(payload) - 1))])


def refused_or_fits(codec: str, body: bytes) -> None:
    try:
        blob = back(codec, sealed(body))
    except DamagedPayload:
        return
    assert (blob.dtype, blob.shape, blob.data.size) == (AFTER.dtype, AFTER.shape, AFTER.data.size)


@given(codecs, st.data())
def test_damage_with_a_valid_checksum_ends_in_a_tensor_or_an_error(codec: str, data: st.DataObject) -> None:
    """The writer of a payload can compute checksums too; then the digest of the tensor shows the damage."""
    body = bytearray(BODIES[codec])
    for _ in range(data.draw(st.integers(1, 4))):
        # The first bytes are counts, bounds and kinds, and worth most of the tries.
        at = data.draw(st.one_of(st.integers(0, min(60, len(body) - 1)), st.integers(0, len(body) - 1)))
        body[at] = data.draw(st.integers(0, 255))
    refused_or_fits(codec, bytes(body[: data.draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))]))


@given(codecs, st.binary(max_size=80))
def test_arbitrary_bodies_end_in_a_tensor_or_an_error(codec: str, body: bytes) -> None:
    refused_or_fits(codec, body)


HUGE = 1 << 40
BOMBS = {
    "a zstd frame that claims much": (FULL, zstandard.ZstdCompressor().compress(bytes(1 << 24))),
    "a count beyond the tensor": (OVERWRITE, number(HUGE) + bytes(64)),
    "a class with too many changes": (RICE, bytes([0, 1]) + number(HUGE) + bytes(64)),
    "a number without an end": (RICE, b"\xff" * 64),
    "too many classes": (SYMBOLS, number(HUGE) + bytes(64)),
    "numbers of 255 low bits": (RICE, bytes([0, 2]) + b"\xff" * 64),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_payload_that_claims_to_be_huge_takes_no_memory(name: str) -> None:
    codec, body = BOMBS[name]
    payload = sealed(body)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedPayload):
            back(codec, payload)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
