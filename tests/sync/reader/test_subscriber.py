"""Weights that are not exactly those published are refused, with the reason, and never returned.

Covers sync/reader/subscriber.py, sync/reader/download.py and sync/chain/architecture.py.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.faulty_objects import Fault, FaultyObjects
from hypothesis import given
from hypothesis import strategies as st
from tests.sync.builders import flip, published, same_bits, steps, weights

from ostinato.store import Objects
from ostinato.sync import DigestMismatch, Publisher, Subscriber, UnknownVersion
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.paths import Cadence
from ostinato.sync.collect import collect

ANCHOR_EVERY = Cadence().anchor_every
manifest_key = Keys("weights").manifest

CHAIN = 4


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An anchor and three deltas, for tests that repair the objects they damage."""
    folder = tmp_path_factory.mktemp("chain")
    publisher = Publisher(Objects.open(folder))
    publisher.anchor(0, weights(0))
    for version in range(1, CHAIN):
        publisher.delta(version, weights(version))
    return folder


@pytest.fixture
def long_chain(tmp_path: Path) -> Path:
    """Long enough that its last delta carries an anchor."""
    published(Objects.open(tmp_path), ANCHOR_EVERY)
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


@pytest.mark.parametrize(
    "name", [".DS_Store", "0000000009.json~", "0000000009 (copy).json", "9.json", "x/0000000009.json"]
)
def test_stray_names_are_no_versions(tmp_path: Path, name: str) -> None:
    objects = Objects.open(tmp_path)
    published(objects, 2)
    folders = [folder for folder in (tmp_path / "weights").iterdir() if folder.is_dir()]
    for folder in [*folders, tmp_path / "weights/leases", tmp_path / "weights/horizons"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"stray")
    assert reader_of(tmp_path).head() == 2
    publisher = Publisher(objects)
    publisher.resume()
    publisher.delta(3, steps(3))
    assert reader_of(tmp_path).head() == 3
    collect(objects)
    assert (tmp_path / "weights/versions" / name).read_bytes() == b"stray"


def test_the_head_is_followed(tmp_path: Path) -> None:
    reader, publisher = reader_of(tmp_path), Publisher(Objects.open(tmp_path))
    assert reader.head() is None
    publisher.anchor(7, weights(7))
    assert reader.head() == 7
    for version in (8, 9):
        publisher.delta(version, weights(version))
    assert (reader.head(), reader_of(tmp_path).head()) == (9, 9)


@given(st.lists(st.integers(0, CHAIN - 1), min_size=1, max_size=5))
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
def test_one_flipped_bit_anywhere_is_refused(chain: Path, data: st.DataObject) -> None:
    """This holds for every version that the reader holds, and for a bit in every object."""
    path = data.draw(st.sampled_from(sorted(p for p in chain.rglob("*") if p.is_file())))
    holding = data.draw(st.none() | st.integers(0, CHAIN - 2))
    original, reader = path.read_bytes(), reader_of(chain, holding=holding)
    flip(path, data.draw(st.integers(0, len(original) * 8 - 1)))
    try:
        refusal = _refusal(reader, CHAIN - 1)
    finally:
        path.write_bytes(original)
    assert bool(refusal) <= reader.mismatches <= 1
    assert not refusal or path.name in refusal or f"version {int(path.stem)}" in refusal
    assert same_bits(reader.fetch(CHAIN - 1), weights(CHAIN - 1))


def _refusal(reader: Subscriber, version: int) -> str:
    """Return why the fetch was refused; empty if it was not, and then its weights must be right."""
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


def test_a_reader_keeps_its_weights_after_a_refusal(chain: Path) -> None:
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


def test_a_refused_fetch_leaves_no_thread_behind(tmp_path: Path) -> None:
    """Nor anything that the garbage collector would have to wait for: see `Objects.stream`."""
    published(Objects.open(tmp_path), 3)
    flip(part_of(tmp_path, 0), 99)
    with pytest.raises(DigestMismatch) as refused:
        reader_of(tmp_path).fetch(3)
    assert refused.value.__traceback__ is not None  # whose frames are alive, and so is what they hold
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("objects")]


def test_a_missing_link_is_named(tmp_path: Path) -> None:
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(0, weights(0))
    publisher.delta(1, weights(1))
    (tmp_path / manifest_key(0)).unlink()
    with pytest.raises(DigestMismatch, match=r"versions/0000000000\.json: expected an object, got nothing"):
        reader_of(tmp_path).fetch(1)


def test_a_rewritten_history_is_refused(tmp_path: Path) -> None:
    publisher = Publisher(Objects.open(tmp_path))
    publisher.anchor(0, weights(0))
    publisher.delta(1, weights(1))
    (tmp_path / manifest_key(0)).unlink()
    Publisher(Objects.open(tmp_path), "other").anchor(0, weights(50))
    (tmp_path / Keys("other").manifest(0)).rename(tmp_path / manifest_key(0))
    with pytest.raises(DigestMismatch, match=r"versions/0000000000\.json: expected [0-9a-f]{64}, got"):
        reader_of(tmp_path).fetch(1)


def test_a_manifest_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    Publisher(Objects.open(tmp_path)).anchor(0, weights(0))
    (tmp_path / manifest_key(0)).rename(tmp_path / manifest_key(3))
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
    assert same_bits(reader.fetch(ANCHOR_EVERY), steps(ANCHOR_EVERY))
    assert reader.mismatches == 0
    with pytest.raises(DigestMismatch, match="expected an object, got nothing"):
        reader.fetch(6)


def test_a_damaged_delta_is_circumvented_by_an_anchor(long_chain: Path) -> None:
    reader = reader_of(long_chain, holding=ANCHOR_EVERY - 1)
    flip(part_of(long_chain, ANCHOR_EVERY), 99)
    assert same_bits(reader.fetch(ANCHOR_EVERY), steps(ANCHOR_EVERY))
    assert reader.mismatches == 1


def test_a_damaged_anchor_does_not_stop_readers_with_another_path(long_chain: Path) -> None:
    (anchor,) = (long_chain / "weights" / "ways" / f"{ANCHOR_EVERY:010}").iterdir()
    flip(anchor, 99)
    for holding in (ANCHOR_EVERY - 1, None):
        reader = reader_of(long_chain, holding=holding)
        assert same_bits(reader.fetch(ANCHOR_EVERY), steps(ANCHOR_EVERY))


def read_by(folder: Path, *, holding: int | None, version: int) -> list[str]:
    """Return the keys of the parts that are read meanwhile."""
    reader, read = reader_of(folder, holding=holding), []

    def plan(operation: str, key: str) -> Fault:
        if operation == "get" and "/parts/" in key:
            read.append(key)
        return Fault.NONE

    reader._downloader._objects = FaultyObjects(Objects.open(folder), plan)
    assert same_bits(reader.fetch(version), steps(version))
    return [key.split("/")[2].lstrip("0") for key in read]


def test_skips_are_taken_where_they_need_fewer_bytes(long_chain: Path) -> None:
    assert read_by(long_chain, holding=8, version=17) == ["16", "17"]
    assert read_by(long_chain, holding=0, version=24) == ["8", "16", "24"]
    assert read_by(long_chain, holding=23, version=24) == ["24"]
    assert read_by(long_chain, holding=14, version=16) == ["15", "16"]


def prefetching_at_the_commit(folder: Path, publisher: Publisher, reader: Subscriber) -> list[int]:
    """Let the reader fetch ahead right before each commit; return how many parts it then fetched."""
    ahead: list[int] = []

    def plan(operation: str, key: str) -> Fault:
        if operation == "create" and "/versions/" in key:
            ahead.append(reader.prefetch())
        return Fault.NONE

    publisher._objects = FaultyObjects(Objects.open(folder), plan)
    return ahead


def test_parts_of_the_next_version_are_fetched_ahead(tmp_path: Path) -> None:
    publisher = published(Objects.open(tmp_path), 1)
    reader = reader_of(tmp_path, holding=1)
    assert reader.prefetch() == 0
    ahead = prefetching_at_the_commit(tmp_path, publisher, reader)
    manifest = publisher.delta(2, steps(2))
    assert ahead == [1]
    (tmp_path / manifest.parts[0].key).unlink()
    assert same_bits(reader.fetch(2), steps(2))


def test_an_anchor_beside_a_delta_is_not_fetched_ahead(tmp_path: Path) -> None:
    publisher = published(Objects.open(tmp_path), ANCHOR_EVERY - 1)
    reader = reader_of(tmp_path, holding=ANCHOR_EVERY - 1)
    ahead = prefetching_at_the_commit(tmp_path, publisher, reader)
    publisher.delta(ANCHOR_EVERY, steps(ANCHOR_EVERY))
    assert len(list((tmp_path / "weights" / "parts" / f"{ANCHOR_EVERY:010}").iterdir())) == 2
    assert ahead == [1]


def test_parts_fetched_ahead_are_checked(tmp_path: Path) -> None:
    publisher, reader = published(Objects.open(tmp_path), 0), reader_of(tmp_path, holding=0)
    garbage = tmp_path / Keys("weights").part(1, "9f" * 32)
    garbage.parent.mkdir()
    garbage.write_bytes(b"garbage")
    assert reader.prefetch() == 0
    publisher.delta(1, steps(1))
    assert same_bits(reader.fetch(1), steps(1))


def test_a_manifest_from_another_run_is_refused(tmp_path: Path) -> None:
    """It lies, with its parts, where the next version is expected."""
    for prefix in ("weights", "other"):
        published(Objects.open(tmp_path), 3, prefix=prefix)
    other = reader_of(tmp_path).manifest(2)
    (tmp_path / Keys("weights").manifest(3)).unlink()
    (tmp_path / Keys("other").manifest(3)).rename(tmp_path / Keys("weights").manifest(3))
    for reader in (reader_of(tmp_path), reader_of(tmp_path, holding=2)):
        with pytest.raises(
            DigestMismatch, match=f"{other.version + 1:010}.json: run: expected [0-9a-f]{{16}}, got"
        ):
            reader.fetch(3)
        assert same_bits(reader.fetch(2), steps(2))
