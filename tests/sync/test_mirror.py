"""A region has a version whole or not at all, for as few bytes as one reader would need."""

import pytest
from fuzz.faulty_objects import Fault, FaultyObjects
from tests.sync.builders import published, same_bits, steps

from ostinato.store import Objects, ObjectsError
from ostinato.sync import Cadence, Subscriber, SyncError, collect
from ostinato.sync.mirror import Mirror

CADENCE = Cadence(anchor_every=8, skip=4)


@pytest.fixture
def pair() -> tuple[Objects, Objects]:
    return Objects.open("memory://"), Objects.open("memory://")


def test_a_region_follows(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    mirror, reader = Mirror(*pair), Subscriber(target)
    assert not mirror.step()
    publisher = published(source, 1, cadence=CADENCE)
    for version in range(2, 20):
        assert mirror.step() and not mirror.step()
        assert reader.head() == version - 1
        assert same_bits(reader.fetch(version - 1), steps(version - 1))
        publisher.delta(version, steps(version))
    assert reader.mismatches == 0


def test_a_region_that_was_away_takes_the_short_way(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    publisher = published(source, 4, cadence=CADENCE)
    Mirror(*pair).step()
    for version in range(5, 9):
        publisher.delta(version, steps(version))
    reader = Subscriber(target)
    reader.fetch(4)
    Mirror(*pair).step()
    assert not target.sizes("weights/parts/0000000006")
    assert reader.head() == 8
    assert same_bits(reader.fetch(8), steps(8))
    assert same_bits(Subscriber(target).fetch(8), steps(8))


def test_readers_may_start_in_a_region_after_a_collection(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    publisher, mirror = published(source, 0, cadence=CADENCE), Mirror(*pair)
    for version in range(1, 30):
        mirror.step()
        publisher.delta(version, steps(version))
        collect(source)
        collect(target)
    mirror.step()
    assert len(target.list("weights/parts")) < 30
    assert same_bits(Subscriber(target).fetch(29), steps(29))


@pytest.mark.parametrize("where", ["/parts/", "/versions/", "/epochs/"])
@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LOSE, Fault.FLIP, Fault.TRUNCATE, Fault.PRETEND])
def test_a_copy_that_failed_is_no_version(pair: tuple[Objects, Objects], where: str, fault: Fault) -> None:
    source, target = pair
    published(source, 3, cadence=CADENCE)
    left = [fault]

    def plan(operation: str, key: str) -> Fault:
        return left.pop() if left and operation == "get" and where in key else Fault.NONE

    mirror = Mirror(FaultyObjects(source, plan), target)
    try:
        mirror.step()
    except (SyncError, ObjectsError):
        assert Subscriber(target).head() is None
        mirror.step()
    assert not left
    assert same_bits(Subscriber(target).fetch(3), steps(3))


def test_the_version_being_published_is_copied_ahead(pair: tuple[Objects, Objects]) -> None:
    source, target = pair
    publisher = published(source, 1, cadence=CADENCE)
    asked: list[str] = []

    def note(operation: str, key: str) -> Fault:
        asked.append(key)
        return Fault.NONE

    mirror = Mirror(FaultyObjects(source, note), target)
    mirror.step()

    def plan(operation: str, key: str) -> Fault:
        if operation == "create" and "/versions/" in key:
            assert not mirror.step()
            asked.clear()
        return Fault.NONE

    publisher._objects = FaultyObjects(source, plan)
    part = publisher.delta(2, steps(2)).parts[0].key
    assert mirror.step() and part not in asked
    assert same_bits(Subscriber(target).fetch(2), steps(2))
