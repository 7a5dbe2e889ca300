"""The codec is lossless for any bytes under any dtype, and notices a damaged payload or never fits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.codec import FULL, SAME, XOR, decode, encode
from ostinato.sync.weights import DTYPES, Blob, make_blob


def blob(dtype: str, shape: tuple[int, ...], data: bytes) -> Blob:
    return make_blob(dtype, shape, np.frombuffer(data, np.uint8))


@st.composite
def blobs(draw: st.DrawFn, count: int) -> list[Blob]:
    """Of one dtype and shape, with arbitrary bits: NaNs with payloads, -0.0 and all."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = math.prod(shape) * DTYPES[dtype].itemsize
    return [blob(dtype, shape, draw(st.binary(min_size=size, max_size=size))) for _ in range(count)]


def decoded(codec: str, old: Blob | None, payload: bytes, new: Blob) -> Blob:
    return decode(codec, old, payload, new.dtype, new.shape)


@given(blobs(2))
def test_a_change_comes_back(pair: list[Blob]) -> None:
    old, new = pair
    codec, payload = encode(old, new)
    back = decoded(codec, old, payload, new)
    assert (back.data.tobytes(), back.digest) == (new.data.tobytes(), new.digest)


@given(blobs(1), st.booleans())
def test_what_stands_alone_comes_back(single: list[Blob], other_shape: bool) -> None:
    (new,) = single
    old = blob(new.dtype, (*new.shape, 0), b"") if other_shape else None
    codec, payload = encode(old, new)
    assert codec == FULL
    assert decoded(codec, None, payload, new).data.tobytes() == new.data.tobytes()


def test_each_codec_has_its_case() -> None:
    random = np.random.default_rng(0)
    noise, other = (blob("uint8", (4096,), random.bytes(4096)) for _ in range(2))
    near = blob("uint8", (4096,), noise.data.tobytes()[:-1] + b"\x00")
    assert encode(noise, noise) == (SAME, b"")
    assert encode(noise, near)[0] == XOR
    assert encode(noise, other)[0] == FULL


def test_a_small_step_is_smaller_than_the_weights() -> None:
    random = np.random.default_rng(0)
    old = random.standard_normal(10_000).astype(np.float32)
    new = old * np.float32(1 + 1e-4)
    before, after = (blob("float32", (10_000,), array.tobytes()) for array in (old, new))
    assert len(encode(before, after)[1]) < 0.6 * old.nbytes < len(encode(None, after)[1])


@pytest.mark.parametrize("codec", [SAME, XOR])
def test_a_base_of_another_shape_is_refused(codec: str) -> None:
    new = blob("uint8", (4,), b"abcd")
    for old in (None, blob("uint8", (2, 2), b"abcd"), blob("int8", (4,), b"abcd")):
        with pytest.raises(ValueError, match="needs a uint8 base of shape"):
            decoded(codec, old, b"", new)


@pytest.mark.parametrize("payload", [b"", b"no zstd", encode(None, blob("uint8", (3,), b"abc"))[1]])
def test_a_damaged_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        decode(FULL, None, payload, "uint8", (4,))


def test_a_payload_that_unpacks_to_too_much_is_refused() -> None:
    _, payload = encode(None, blob("uint8", (1 << 20,), bytes(1 << 20)))
    with pytest.raises(ValueError, match="payload"):
        decode(FULL, None, payload, "uint8", (4,))
