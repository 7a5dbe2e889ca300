"""A champion's weights become the newest version again."""

from pathlib import Path

import pytest
import torch

from ostinato.deploy.lineage import lineage
from ostinato.store import Objects, Store
from ostinato.sync import Publisher, Subscriber
from ostinato.train.base import record_of
from ostinato.train.republish import main, republish


def weights(version: int) -> dict[str, torch.Tensor]:
    return {"w": torch.linspace(-1, 1, 64) + version}


@pytest.fixture
def published(tmp_path: Path) -> tuple[Store, Objects]:
    """Champion 1, and the candidates 2 and 3 on top of it."""
    store, objects = Store.open(tmp_path / "store.db"), Objects.open(tmp_path / "objects")
    publisher = Publisher(objects)
    rows = [publisher.anchor(0, weights(0)), *(publisher.delta(n, weights(n)) for n in (1, 2, 3))]
    for manifest in rows:
        store.add_version(record_of(manifest, ()))
    return store, objects


def test_the_champion_is_the_newest_version_and_its_own_parent(published: tuple[Store, Objects]) -> None:
    store, objects = published
    assert republish(store, objects, 1) == 4
    assert torch.equal(Subscriber(objects).fetch(4)["w"], weights(1)["w"])
    assert [ancestor.version.version for ancestor in lineage(store, 4)] == [4, 1, 0]


def test_done_again_it_changes_nothing(published: tuple[Store, Objects]) -> None:
    store, objects = published
    assert republish(store, objects, 1) == republish(store, objects, 1) == republish(store, objects, 4) == 4
    assert republish(store, objects, 3) == 5


def test_learning_goes_on_from_it(published: tuple[Store, Objects]) -> None:
    store, objects = published
    version = republish(store, objects, 1)
    publisher = Publisher(objects)
    assert publisher.resume() == version
    publisher.delta(version + 1, weights(9))
    assert torch.equal(Subscriber(objects).fetch(version + 1)["w"], weights(9)["w"])


def test_a_version_that_is_not_there_is_an_error(published: tuple[Store, Objects], tmp_path: Path) -> None:
    told = ["--store", str(tmp_path / "store.db"), "--objects", str(tmp_path / "objects")]
    assert main([*told, "--version", "1"]) == 0
    assert main([*told, "--version", "17"]) == 1
    assert Subscriber(published[1]).head() == 4
