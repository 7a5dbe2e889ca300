"""A manifest is read back exactly, or refused.

Covers sync/chain/manifest.py, sync/chain/sealed.py and sync/chain/keys.py.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sync.builders import weights

from ostinato.store import Objects
from ostinato.sync import DigestMismatch, Manifest, Publisher
from ostinato.sync.chain.manifest import Patch, TensorEntry


def published(objects: Objects) -> Manifest:
    publisher = Publisher(objects)
    publisher.anchor(4, weights(4))
    return publisher.delta(5, weights(5))


OBJECTS = Objects.open("memory://")
MANIFEST = published(OBJECTS)
DATA = MANIFEST.to_bytes()


def test_it_comes_back() -> None:
    assert Manifest.from_bytes(DATA, "m") == MANIFEST
    assert json.loads(DATA)["digest"] == MANIFEST.digest


def test_the_same_weights_in_another_run_give_another_digest() -> None:
    other = published(Objects.open("memory://"))
    assert other.digest != MANIFEST.digest
    assert replace(other, run=MANIFEST.run, parent_hash=None, ways=()) == replace(
        MANIFEST, parent_hash=None, ways=()
    )


def test_a_patch_beside_comes_back() -> None:
    patch = Patch(version=1, base=None, parts=MANIFEST.parts, tensors=MANIFEST.tensors, state_root="9f")
    assert Patch.from_bytes(patch.to_bytes(), "p") == patch
    with pytest.raises(DigestMismatch):
        Manifest.from_bytes(patch.to_bytes(), "p")


def test_anything_else_gives_another_digest() -> None:
    others = [
        replace(MANIFEST, version=6),
        replace(MANIFEST, epoch=9),
        replace(MANIFEST, ways=()),
        replace(MANIFEST, tensors=()),
    ]
    assert len({manifest.digest for manifest in [MANIFEST, *others]}) == 5


@given(st.integers(0, len(DATA) * 8 - 1))
def test_one_flipped_bit_is_noticed(bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatch, match="versions/5"):
        Manifest.from_bytes(bytes(damaged), "versions/5")


@given(st.integers(0, len(DATA) - 1))
def test_a_missing_end_is_noticed(length: int) -> None:
    with pytest.raises(DigestMismatch, match="versions/5"):
        Manifest.from_bytes(DATA[:length], "versions/5")


@pytest.mark.parametrize(
    "data", [b"3", b"[]", b"{}", b"null", DATA + b" ", DATA.replace(b":5", b": 5"), b"[" * 99_999]
)
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(DigestMismatch):
        Manifest.from_bytes(data, "m")


@pytest.mark.parametrize("change", [{"codec": "gzip"}, {"dtype": "float3"}])
def test_an_unknown_codec_or_dtype_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unknown codec"):
        replace(MANIFEST.tensors[0], **change)
    assert isinstance(MANIFEST.tensors[0], TensorEntry)
