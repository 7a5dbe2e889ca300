"""What is not exactly what was published is refused, by name, and never returned."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sync.builders import flip, same_bits, weights

from ostinato.store import Objects
from ostinato.sync import DigestMismatch, Publisher, Subscriber, UnknownVersion
from ostinato.sync.manifest import ANCHOR_EVERY, manifest_key

CHAIN = 4


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An anchor and three deltas, for tests that put back what they damage."""
    folder = tmp_path_factory.mktemp("chain")
    publisher = Publisher(Objects.open(folder))
    publisher.anchor(0, weights(0))
    for version in range(1, CHAIN):
        publisher.delta(version, weights(version))
    return folder


@pytest.fixture
def long_chain(tmp_path: Path) -> Path:
    """Long enough that its last delta carries an anchor."""
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(0, weights(0))
    for version in range(1, ANCHOR_EVERY + 1):
        publisher.delta(version, weights(version))
    return tmp_path


def reader_of(folder: Path, *, holding: int | None = None) -> Subscriber:
    reader = Subscriber(Objects.open(folder))
    if holding is not None:
        reader.fetch(holding)
    return reader


def part_of(folder: Path, version: int) -> Path:
    return folder / reader_of(folder).manifest(version).parts[0].key


def test_nothing_was_published_yet(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    assert reader.head() is None
    with pytest.raises(UnknownVersion, match="version 0 is not in"):
        reader.fetch(0)


def test_the_head_is_followed(tmp_path: Path) -> None:
    reader, publisher = reader_of(tmp_path), Publisher(Objects.open(tmp_path))
    assert reader.head() is None
    publisher.anchor(7, weights(7))
    assert reader.head() == 7
    for version in (8, 9):
        publisher.delta(version, weights(version))
    assert (reader.head(), reader_of(tmp_path).head()) == (9, 9)


@given(st.lists(st.integers(0, CHAIN - 1), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_any_version_follows_any_other(chain: Path, versions: list[int]) -> None:
    reader = reader_of(chain)
    for version in versions:
        assert same_bits(reader.fetch(version), weights(version))
    assert reader.mismatches == 0


def test_a_version_that_was_never_published_is_named(chain: Path) -> None:
    reader = reader_of(chain, holding=1)
    with pytest.raises(UnknownVersion, match=f"version {CHAIN} is not in"):
        reader.fetch(CHAIN)
    assert same_bits(reader.fetch(2), weights(2))


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_one_flipped_bit_anywhere_is_refused(chain: Path, data: st.DataObject) -> None:
    """Whatever the reader holds, and whichever object the bit is in."""
    path = data.draw(st.sampled_from(sorted(p for p in chain.rglob("*") if p.is_file())))
    holding = data.draw(st.none() | st.integers(0, CHAIN - 2))
    original, reader = path.read_bytes(), reader_of(chain, holding=holding)
    flip(path, data.draw(st.integers(0, len(original) * 8 - 1)))
    try:
        refusal = _refusal(reader, CHAIN - 1)
    finally:
        path.write_bytes(original)
    assert reader.mismatches == bool(refusal)
    assert not refusal or path.name in refusal or f"version {int(path.stem)}" in refusal
    assert same_bits(reader.fetch(CHAIN - 1), weights(CHAIN - 1))


def _refusal(reader: Subscriber, version: int) -> str:
    """Why the fetch was refused; empty if it was not, and then it must be right."""
    try:
        tensors = reader.fetch(version)
    except DigestMismatch as error:
        return str(error)
    assert same_bits(tensors, weights(version))
    return ""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "expected [0-9a-f]{64}, got [0-9a-f]{64}"),
        (lambda path: path.write_bytes(b""), "got e3b0c44"),
        (lambda path: path.unlink(), "expected an object, got nothing"),
    ],
)
def test_a_damaged_part_is_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    Publisher(Objects.open(tmp_path)).anchor(0, weights(0))
    path = part_of(tmp_path, 0)
    damage(path)
    with pytest.raises(DigestMismatch, match=message) as refused:
        reader_of(tmp_path).fetch(0)
    assert path.name in refused.value.what
    assert "refused, the weights in use stay as they are" in str(refused.value)


def test_after_a_refusal_it_goes_on_from_what_it_held(chain: Path) -> None:
    path, reader = part_of(chain, 3), reader_of(chain, holding=1)
    original = path.read_bytes()
    flip(path, 77)
    for _ in range(2):
        with pytest.raises(DigestMismatch):
            reader.fetch(3)
    assert same_bits(reader.fetch(2), weights(2))
    path.write_bytes(original)
    assert same_bits(reader.fetch(3), weights(3))
    assert reader.mismatches == 2


def test_a_missing_link_is_named(tmp_path: Path) -> None:
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(0, weights(0))
    publisher.delta(1, weights(1))
    (tmp_path / manifest_key("weights", 0)).unlink()
    with pytest.raises(DigestMismatch, match="expected the base of version 1, got nothing"):
        reader_of(tmp_path).fetch(1)


def test_a_rewritten_history_is_refused(tmp_path: Path) -> None:
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(0, weights(0))
    publisher.delta(1, weights(1))
    (tmp_path / manifest_key("weights", 0)).unlink()
    Publisher(Objects.open(tmp_path), "other").anchor(0, weights(50))
    (tmp_path / manifest_key("other", 0)).rename(tmp_path / manifest_key("weights", 0))
    with pytest.raises(DigestMismatch, match="manifest of version 0"):
        reader_of(tmp_path).fetch(1)


def test_a_manifest_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    Publisher(Objects.open(tmp_path)).anchor(0, weights(0))
    (tmp_path / manifest_key("weights", 0)).rename(tmp_path / manifest_key("weights", 3))
    with pytest.raises(DigestMismatch, match="expected version 3, got version 0"):
        reader_of(tmp_path).fetch(3)


def test_weights_written_to_by_the_engine_are_noticed(chain: Path) -> None:
    reader = reader_of(chain)
    reader.fetch(1)["fixed"].add_(1)
    assert same_bits(reader.fetch(2), weights(2))
    assert reader.mismatches == 1


def test_a_new_reader_starts_from_the_nearest_anchor(long_chain: Path) -> None:
    for version in (0, 7):
        part_of(long_chain, version).unlink()
    reader = reader_of(long_chain)
    assert same_bits(reader.fetch(ANCHOR_EVERY), weights(ANCHOR_EVERY))
    assert reader.mismatches == 0
    with pytest.raises(DigestMismatch):
        reader.fetch(6)


def test_a_damaged_delta_is_circumvented_by_an_anchor(long_chain: Path) -> None:
    reader = reader_of(long_chain, holding=ANCHOR_EVERY - 1)
    flip(part_of(long_chain, ANCHOR_EVERY), 99)
    assert same_bits(reader.fetch(ANCHOR_EVERY), weights(ANCHOR_EVERY))
    assert reader.mismatches == 1


def test_a_damaged_anchor_does_not_stop_those_who_hold_the_base(long_chain: Path) -> None:
    anchor = next((long_chain / "weights" / "anchors").iterdir())
    flip(anchor, 99)
    reader = reader_of(long_chain, holding=ANCHOR_EVERY - 1)
    assert same_bits(reader.fetch(ANCHOR_EVERY), weights(ANCHOR_EVERY))
    with pytest.raises(DigestMismatch, match=anchor.name):
        reader_of(long_chain).fetch(ANCHOR_EVERY)
