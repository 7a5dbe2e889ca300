"""Nothing is collected that a reader may need, and a lease keeps a version.

Covers sync/collect.py and sync/chain/leases.py.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sync.builders import published, same_bits, steps

from ostinato.store import Objects
from ostinato.sync import Cadence, Subscriber, UnknownVersion, collect
from ostinato.sync.chain.keys import Keys
from ostinato.sync.chain.leases import LEASE_S, Lease, lease, leases
from ostinato.sync.chain.sealed import seal

KEYS = Keys("weights")
CADENCE = Cadence(anchor_every=4, skip=2)


@pytest.fixture
def objects() -> Objects:
    return Objects.open("memory://")


def test_the_newest_two_anchors_and_all_since_stay(objects: Objects) -> None:
    published(objects, 14, cadence=CADENCE)
    before = sum(objects.sizes().values())
    first = collect(objects)
    assert first.objects > 8 and first.bytes == before - sum(
        size for key, size in objects.sizes().items() if "/horizons/" not in key
    )
    assert collect(objects).objects == 0
    for holding in (None, 8, 9, 11, 13):
        reader = Subscriber(objects)
        if holding is not None:
            reader.fetch(holding)
        assert same_bits(reader.fetch(14), steps(14))
        assert reader.mismatches == 0
    with pytest.raises(UnknownVersion, match=r"version 6 .* was collected"):
        Subscriber(objects).fetch(6)


def test_manifests_stay_so_that_no_version_can_be_made_twice(objects: Objects) -> None:
    published(objects, 14, cadence=CADENCE)
    collect(objects)
    assert [Subscriber(objects).manifest(version).version for version in range(15)] == list(range(15))


@given(version=st.integers(0, 14), holding=st.none() | st.integers(0, 14))
def test_a_version_on_lease_stays(version: int, holding: int | None) -> None:
    objects = Objects.open("memory://")
    published(objects, 14, cadence=CADENCE)
    reader = Subscriber(objects, leases=False)
    if holding is not None:
        reader.fetch(holding)
    with lease(objects, KEYS, version, holding) as assured:
        assert assured
        collect(objects)
        assert same_bits(reader.fetch(version), steps(version))
        assert same_bits(Subscriber(objects, leases=False).fetch(version), steps(version))
    assert not leases(objects, KEYS)


def test_a_late_lease_is_reported(objects: Objects) -> None:
    published(objects, 14, cadence=CADENCE)
    collect(objects)
    with lease(objects, KEYS, 3, None) as assured:
        assert not assured
    with lease(objects, KEYS, 14, None) as assured:
        assert assured


def test_a_lease_of_a_dead_reader_runs_out(objects: Objects) -> None:
    published(objects, 14, cadence=CADENCE)
    for until, name in ((1.0, "dead" * 4), (4e9, "a11f" * 4)):
        objects.create(KEYS.lease(name), seal({"version": 1, "holding": None, "until": until}))
    assert leases(objects, KEYS) == [Lease(version=1, holding=None, until=4e9)]
    assert not objects.exists(KEYS.lease("dead" * 4))
    assert LEASE_S > 60


def test_the_version_being_published_is_never_touched(objects: Objects) -> None:
    published(objects, 14, cadence=CADENCE)
    coming = {KEYS.part(15, "9f"), KEYS.patch(15, "9f"), KEYS.share(15, 1, 1)}
    left = {KEYS.part(14, "9f"), KEYS.patch(3, "9f"), KEYS.share(14, 1, 1)}
    for key in coming | left:
        objects.create(key, b"x")
    collect(objects)
    assert {key for key in coming | left if objects.exists(key)} == coming


def test_nothing_to_collect(objects: Objects, tmp_path: Path) -> None:
    assert collect(objects).objects == 0
    published(objects, 1)
    assert collect(objects).objects == 0
    assert same_bits(Subscriber(objects).fetch(1), steps(1))


def test_a_publisher_goes_on_over_a_collection(objects: Objects) -> None:
    publisher = published(objects, 14, cadence=CADENCE)
    for version in range(15, 30):
        collect(objects)
        publisher.delta(version, steps(version))
        assert same_bits(Subscriber(objects).fetch(version), steps(version))
