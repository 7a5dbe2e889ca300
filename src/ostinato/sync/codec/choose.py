"""The choice of a codec for a tensor: the shortest payload, found without trying all codecs on all values."""

import math
from collections.abc import Callable

import numpy as np

from ostinato.sync.codec import overwrite, planes, steps, symbols
from ostinato.sync.codec.ordinal import Ints, NumberKind, Words, kind_of, word_dtype, words_of
from ostinato.sync.codec.payload import DamagedPayload, opened, sealed
from ostinato.sync.weights import Blob, make_blob

SAME, RICE, SYMBOLS, OVERWRITE, XOR, FULL = "same", "rice", "symbols", "overwrite", "xor", "full"
CODECS = frozenset({SAME, RICE, SYMBOLS, OVERWRITE, XOR, FULL})

SPARSE, MOST = 0.25, 0.75
"""Two fractions of changed values: up to the first, only codecs that name places are considered; above the
second, only codecs that do not; between the two, all.
"""
SLICES, SLICE = 8, 512
"""The codecs considered are tried on this many slices of this many values, spread over the tensor."""
RICE_MUST_SAVE = 0.15
"""The fraction that `rice` has to save in a tensor of many changes, since it takes four times as long as
`symbols`."""
CHUNK = 1 << 18
"""Values compared together, so that intermediate results stay in the cache of one core."""

Packer = Callable[[Words, Words, Ints], bytes]
"""A function that returns the body of a payload, from the words before and after and the places of
changes."""


def encode(before: Blob | None, after: Blob) -> tuple[str, bytes]:
    """Return codec and payload of `after` for a reader that holds `before`."""
    new = words_of(after)
    if before is None or (before.dtype, before.shape) != (after.dtype, after.shape):
        return FULL, sealed(planes.packed(new))
    old = words_of(before)
    places = changed_places(old, new)
    if not len(places):
        return SAME, b""
    codec, body = _shortest(kind_of(after.dtype), old, new, places)
    return codec, sealed(body)


def decode(codec: str, before: Blob | None, payload: bytes, dtype: str, shape: tuple[int, ...]) -> Blob:
    """Return the tensor that `encode` was given.

    Raises DamagedPayload when the payload is damaged or `before` does not fit.
    """
    count = math.prod(shape)
    if codec == FULL:
        return _blob(dtype, shape, planes.read(opened(payload).rest(), word_dtype(dtype), count))
    if before is None or (before.dtype, before.shape) != (dtype, shape):
        raise DamagedPayload(f"{codec} needs a {dtype} base of shape {shape}")
    if codec == SAME:
        return before
    words = words_of(before).copy()
    _apply(codec, payload, dtype, words)
    return _blob(dtype, shape, words)


def _apply(codec: str, payload: bytes, dtype: str, words: Words) -> None:
    """Turn `words`, a copy of the base, into the encoded values."""
    reader, kind = opened(payload), kind_of(dtype)
    if codec == OVERWRITE:
        overwrite.apply(reader, words)
    elif codec == XOR:
        words ^= planes.read(reader.rest(), words.dtype, len(words))
    elif codec == RICE and kind is not None:
        steps.apply(kind, reader, words)
    elif codec == SYMBOLS and kind is not None:
        symbols.apply(kind, reader, words)
    else:
        raise DamagedPayload(f"there is no codec {codec!r} for {dtype}")


def _blob(dtype: str, shape: tuple[int, ...], words: Words) -> Blob:
    return make_blob(dtype, shape, words.view(np.uint8))


def changed_places(old: Words, new: Words) -> Ints:
    """Return the places where bits differ. Most bytes of flags are zero, and only the others are unpacked."""
    flags = np.empty(CHUNK, np.bool_)
    packed = np.zeros((len(old) + 7) // 8, np.uint8)
    for start in range(0, len(old), CHUNK):
        size = min(CHUNK, len(old) - start)
        np.not_equal(old[start : start + size], new[start : start + size], out=flags[:size])
        packed[start // 8 : (start + size + 7) // 8] = np.packbits(flags[:size], bitorder="little")
    byte = np.flatnonzero(packed != 0)
    bit = np.flatnonzero(np.unpackbits(packed[byte], bitorder="little").view(np.bool_))
    places: Ints = (byte[bit >> 3] << 3) + (bit & 7)
    return places


def _shortest(kind: NumberKind | None, old: Words, new: Words, places: Ints) -> tuple[str, bytes]:
    if len(places) <= SPARSE * len(old):
        return _sparse(kind, old, new, places)
    packers = _dense(kind, old, new, places) | (_mixed(kind) if len(places) <= MOST * len(old) else {})
    sample = _sample(len(old))
    old_some, new_some = old[sample], new[sample]
    differ = np.flatnonzero(old_some != new_some)
    tried = {codec: pack(old_some, new_some, differ) for codec, pack in packers.items()}
    codec = min(tried, key=lambda codec: len(tried[codec]) * (1 + RICE_MUST_SAVE if codec == RICE else 1))
    return codec, tried[codec] if len(sample) == len(old) else packers[codec](old, new, places)


def _sparse(kind: NumberKind | None, old: Words, new: Words, places: Ints) -> tuple[str, bytes]:
    """Return the payload of `rice`, or of `overwrite` when the new values are unrelated to the old ones."""
    if kind is None:
        return OVERWRITE, overwrite.packed(new, places)
    stepped = steps.packed(kind, old, new, places)
    if len(stepped) < overwrite.at_least(len(new), places):
        return RICE, stepped
    plain = overwrite.packed(new, places)
    return (RICE, stepped) if len(stepped) <= len(plain) else (OVERWRITE, plain)


def _dense(kind: NumberKind | None, old: Words, new: Words, places: Ints) -> dict[str, Packer]:
    """Return the packers that process every value; of equals the first is taken."""
    packers: dict[str, Packer] = {
        FULL: lambda _, new, __: planes.packed(new),
        XOR: lambda old, new, _: planes.packed(old ^ new),
    }
    if kind is not None:
        bounds = symbols.bounds_of(kind, old, new, places)
        packers[SYMBOLS] = lambda old, new, _: symbols.packed(kind, bounds, old, new)
    return packers


def _mixed(kind: NumberKind | None) -> dict[str, Packer]:
    """Return the packers that name the places of changes."""
    packers: dict[str, Packer] = {OVERWRITE: lambda _, new, places: overwrite.packed(new, places)}
    if kind is not None:
        packers[RICE] = lambda old, new, places: steps.packed(kind, old, new, places)
    return packers


def _sample(count: int) -> Ints:
    """Return the places of the values in the slices; all places in a small tensor."""
    if count <= SLICES * SLICE:
        return np.arange(count)
    starts = np.linspace(0, count - SLICE, SLICES).astype(np.int64)
    return (starts[:, None] + np.arange(SLICE)).reshape(-1)
