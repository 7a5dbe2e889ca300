"""Which codec a tensor gets: the one with the shortest payload, found without trying all on everything."""

import math
from collections.abc import Callable

import numpy as np

from ostinato.sync.codec import overwrite, planes, steps, symbols
from ostinato.sync.codec.ordinal import Ints, Kind, Words, kind_of, word_dtype, words_of
from ostinato.sync.codec.payload import DamagedPayload, opened, sealed
from ostinato.sync.weights import Blob, make_blob

SAME, RICE, SYMBOLS, OVERWRITE, XOR, FULL = "same", "rice", "symbols", "overwrite", "xor", "full"
CODECS = frozenset({SAME, RICE, SYMBOLS, OVERWRITE, XOR, FULL})

SPARSE, MOST = 0.25, 0.75
"""Up to the first fraction of changed values only what names their places is considered, above the second
nothing that does, between them all."""
SLICES, SLICE = 8, 512
"""What is considered is tried on this many values of a tensor, in slices spread over it."""
RICE_MUST_SAVE = 0.15
"""There `rice` takes four times as long as `symbols`, so it has to save this much of its size."""

CHUNK = 1 << 18
"""Values compared together: what is made of them stays in the cache of one core."""

Packer = Callable[[Words, Words, Ints], bytes]
"""The body of a payload from the words before and after and where they differ."""


def encode(before: Blob | None, after: Blob) -> tuple[str, bytes]:
    """The form of `after` for a reader who holds `before`: its codec and payload."""
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
    """The inverse of `encode`. Raises DamagedPayload when the payload is damaged or `before` does not fit."""
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
    """Turns `words`, a copy of the base, into what was encoded."""
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
    """Where bits differ. Most bytes of flags are zero: only those that are not are looked into."""
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


def _shortest(kind: Kind | None, old: Words, new: Words, places: Ints) -> tuple[str, bytes]:
    if len(places) <= SPARSE * len(old):
        return _sparse(kind, old, new, places)
    packers = _dense(kind, old, new, places) | (_mixed(kind) if len(places) <= MOST * len(old) else {})
    sample = _sample(len(old))
    old_some, new_some = old[sample], new[sample]
    differ = np.flatnonzero(old_some != new_some)
    tried = {codec: pack(old_some, new_some, differ) for codec, pack in packers.items()}
    codec = min(tried, key=lambda codec: len(tried[codec]) * (1 + RICE_MUST_SAVE if codec == RICE else 1))
    return codec, tried[codec] if len(sample) == len(old) else packers[codec](old, new, places)


def _sparse(kind: Kind | None, old: Words, new: Words, places: Ints) -> tuple[str, bytes]:
    """`rice`, unless the new values have nothing to do with the old ones."""
    if kind is None:
        return OVERWRITE, overwrite.packed(new, places)
    stepped = steps.packed(kind, old, new, places)
    if len(stepped) < overwrite.at_least(len(new), places):
        return RICE, stepped
    plain = overwrite.packed(new, places)
    return (RICE, stepped) if len(stepped) <= len(plain) else (OVERWRITE, plain)


def _dense(kind: Kind | None, old: Words, new: Words, places: Ints) -> dict[str, Packer]:
    """Those that look at every value; of equals the first is taken."""
    packers: dict[str, Packer] = {
        FULL: lambda _, new, __: planes.packed(new),
        XOR: lambda old, new, _: planes.packed(old ^ new),
    }
    if kind is not None:
        bounds = symbols.bounds_of(kind, old, new, places)
        packers[SYMBOLS] = lambda old, new, _: symbols.packed(kind, bounds, old, new)
    return packers


def _mixed(kind: Kind | None) -> dict[str, Packer]:
    """Those that name places."""
    packers: dict[str, Packer] = {OVERWRITE: lambda _, new, places: overwrite.packed(new, places)}
    if kind is not None:
        packers[RICE] = lambda old, new, places: steps.packed(kind, old, new, places)
    return packers


def _sample(count: int) -> Ints:
    """Where the values of the slices lie; all of them in a small tensor."""
    if count <= SLICES * SLICE:
        return np.arange(count)
    starts = np.linspace(0, count - SLICE, SLICES).astype(np.int64)
    return (starts[:, None] + np.arange(SLICE)).reshape(-1)
