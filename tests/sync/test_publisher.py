"""A version is published whole or not at all, by one publisher, whatever happens in between."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import torch
from tests.sync.builders import ROOT, bits, flip, same_bits, weights

from ostinato.store import Missing, Objects, ObjectsError, StorageFull
from ostinato.sync import DigestMismatch, Fenced, OutOfOrder, Publisher, Subscriber, UnknownVersion

Full = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def objects() -> Objects:
    return Objects.open("memory://")


def started(objects: Objects, version: int = 0) -> Publisher:
    publisher = Publisher(objects)
    publisher.anchor(version, weights(version))
    return publisher


def test_anchor_then_deltas(objects: Objects) -> None:
    publisher = started(objects, 3)
    manifest = publisher.delta(4, weights(4))
    assert (manifest.kind, manifest.version, manifest.base, manifest.parent) == ("delta", 4, 3, 3)
    assert manifest.parent_hash == Subscriber(objects).manifest(3).digest
    assert publisher.version == 4
    assert same_bits(Subscriber(objects).fetch(4), weights(4))


def test_only_what_changed_is_sent(objects: Objects) -> None:
    publisher = started(objects)
    assert publisher.delta(1, weights(0)).size == 0
    changed = weights(0)
    changed["fixed"][2] = 7.0
    codecs = {entry.name: entry.codec for entry in publisher.delta(2, changed).tensors}
    assert {name for name, codec in codecs.items() if codec != "same"} == {"fixed"}


def test_tensors_may_come_go_and_change_shape(objects: Objects) -> None:
    publisher = started(objects)
    changed = {"fixed": torch.ones(2, 2), "scalar": weights(0)["scalar"], "new": torch.arange(3)}
    publisher.delta(1, changed)
    reader = Subscriber(objects)
    reader.fetch(0)
    assert same_bits(reader.fetch(1), changed)


def test_later_changes_in_place_are_not_lost(objects: Objects) -> None:
    tensors = weights(0)
    publisher = Publisher(objects)
    publisher.anchor(0, tensors)
    tensors["fixed"].mul_(2)
    publisher.delta(1, tensors)
    assert same_bits(Subscriber(objects).fetch(1), tensors)


def test_large_weights_lie_in_several_parts(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.sync.publisher.PART_BYTES", 40)
    publisher = started(objects)
    assert len(publisher.delta(1, weights(1)).parts) > 2
    assert same_bits(Subscriber(objects).fetch(1), weights(1))


def test_versions_have_no_gaps(objects: Objects) -> None:
    publisher = started(objects)
    for version in (0, 2, -1):
        with pytest.raises(OutOfOrder, match=f"version {version} cannot follow version 0"):
            publisher.delta(version, weights(1))
    with pytest.raises(OutOfOrder, match="version 5 cannot follow version 0"):
        Publisher(objects).anchor(5, weights(5))


def test_a_delta_needs_a_base(objects: Objects) -> None:
    with pytest.raises(OutOfOrder, match="call anchor or resume first"):
        Publisher(objects).delta(0, weights(0))


def test_an_anchor_may_branch_off_an_older_version(objects: Objects) -> None:
    publisher = started(objects)
    publisher.delta(1, weights(1))
    branch = publisher.anchor(2, weights(9), parent=0)
    assert (branch.base, branch.parent, branch.parent_hash) == (
        None,
        0,
        Subscriber(objects).manifest(0).digest,
    )
    with pytest.raises(UnknownVersion, match="version 77"):
        publisher.anchor(3, weights(3), parent=77)


def test_the_first_commit_may_repeat_a_predecessor(objects: Objects) -> None:
    assert started(objects, 3).version == started(objects, 3).version == 3
    with pytest.raises(Fenced):
        Publisher(objects).anchor(3, weights(4))


def test_resuming_goes_on_where_the_last_one_stopped(objects: Objects) -> None:
    assert Publisher(objects).resume() is None
    started(objects).delta(1, weights(1))
    successor = Publisher(objects)
    assert successor.resume() == 1
    assert successor.delta(2, weights(2)).base == 1
    assert same_bits(Subscriber(objects).fetch(2), weights(2))


def test_of_two_publishers_one_is_fenced(objects: Objects) -> None:
    first = started(objects)
    second = Publisher(objects)
    second.resume()
    second.delta(1, weights(1))
    with pytest.raises(Fenced, match="committed by another publisher"):
        first.delta(1, weights(100))
    with pytest.raises(Fenced):
        first.delta(2, weights(2))
    second.delta(2, weights(2))
    assert same_bits(Subscriber(objects).fetch(2), weights(2))


def test_prefixes_do_not_meet(objects: Objects) -> None:
    Publisher(objects, "a").anchor(0, weights(1))
    Publisher(objects, "b").anchor(7, weights(2))
    assert (Subscriber(objects, "a").head(), Subscriber(objects, "b").head()) == (0, 7)


class Unreliable(Objects):
    """Objects over a network that fails: `fails` says for a key whether before or after the write."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.where = objects.where
        self.fails: Callable[[str], str] = lambda _: "never"

    def create(self, key: str, data: bytes) -> None:
        when = self.fails(key)
        if when == "before":
            raise ObjectsError(f"{key}: connection refused")
        self._objects.create(key, data)
        if when == "after":
            raise ObjectsError(f"{key}: timed out")

    def get(self, key: str) -> bytes:
        return self._objects.get(key)

    def exists(self, key: str) -> bool:
        return self._objects.exists(key)

    def list(self, prefix: str = "") -> list[str]:
        return self._objects.list(prefix)


@pytest.mark.parametrize("where", ["parts/", "versions/"])
def test_a_failed_publish_may_be_repeated(objects: Objects, where: str) -> None:
    network = Unreliable(objects)
    publisher = started(network)
    network.fails = lambda key: "before" if where in key else "never"
    with pytest.raises(ObjectsError, match="connection refused"):
        publisher.delta(1, weights(1))
    assert (publisher.version, Subscriber(objects).head()) == (0, 0)
    network.fails = lambda _: "never"
    publisher.delta(1, weights(1))
    assert same_bits(Subscriber(objects).fetch(1), weights(1))


def test_a_lost_answer_is_looked_up(objects: Objects) -> None:
    network = Unreliable(objects)
    publisher = started(network)
    network.fails = lambda key: "after" if "versions/" in key else "never"
    assert publisher.delta(1, weights(1)).version == publisher.version == 1


def test_a_lost_answer_may_hide_another_publisher(objects: Objects) -> None:
    network = Unreliable(objects)
    publisher = started(network)
    other = Publisher(objects)
    other.resume()
    other.delta(1, weights(100))
    network.fails = lambda key: "before" if "versions/" in key else "never"
    with pytest.raises(Fenced):
        publisher.delta(1, weights(1))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def filler(disk: Path) -> Iterator[None]:
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            yield
    path.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Full]]:
    """A folder and a way to fill it up: a real small file system, or a limit for those who may not mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        yield disk, lambda: file_size_limit(500)
    else:
        yield disk, lambda: filler(disk)
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_publishes_nothing_and_the_call_may_be_repeated(small_disk: tuple[Path, Full]) -> None:
    disk, full = small_disk
    objects = Objects.open(disk / "objects")
    publisher = started(objects)
    with full(), pytest.raises(StorageFull, match="free some and try again"):
        publisher.delta(1, weights(1, width=2000))
    assert (publisher.version, Subscriber(objects).head()) == (0, 0)
    publisher.delta(1, weights(1, width=2000))
    assert same_bits(Subscriber(objects).fetch(1), weights(1, width=2000))


def test_a_damaged_head_is_not_built_upon(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    manifest = started(objects).delta(1, weights(1))
    flip(tmp_path / manifest.parts[0].key, 100)
    with pytest.raises(DigestMismatch, match=manifest.parts[0].sha256):
        Publisher(objects).resume()


def test_a_damaged_part_is_not_taken_for_ours(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    anchor = started(objects)
    manifest = anchor.delta(1, weights(1))
    (tmp_path / "weights/versions/0000000001.json").unlink()
    flip(tmp_path / manifest.parts[0].key, 100)
    again = Publisher(objects)
    again.resume()
    with pytest.raises(DigestMismatch, match=manifest.parts[0].sha256):
        again.delta(1, weights(1))


def test_kill_9_in_the_middle_of_publishing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sync.kill_publishers", str(tmp_path), "12"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    acknowledged = json.loads(said)
    objects = Objects.open(tmp_path)
    reader = Subscriber(objects)
    head = reader.head()
    assert head is not None and head >= acknowledged[-1] > 12
    for version in (*range(head), head):
        assert bits(reader.fetch(version)["odd"]) == bits(weights(version)["odd"])
    assert same_bits(Subscriber(objects).fetch(head), weights(head, width=4000))
    with pytest.raises(Missing):
        objects.get(f"weights/versions/{head + 1:010}.json")
