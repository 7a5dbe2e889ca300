"""A version is published whole or not at all, by one publisher, whatever happens meanwhile.

Covers sync/writer/publisher.py, sync/writer/upload.py and sync/chain/epochs.py.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
import torch
from fuzz.faulty_objects import Fault, FaultyObjects
from tests.sync.builders import ROOT, bits, flip, published, same_bits, steps, weights

from ostinato.store import Missing, Objects, ObjectsError, StorageFull
from ostinato.sync import (
    Cadence,
    DigestMismatch,
    Fenced,
    OtherArchitecture,
    OutOfOrder,
    Overtaken,
    Publisher,
    Subscriber,
    SyncError,
    UnknownVersion,
)

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


def test_other_tensors_need_an_anchor_and_readers_keep_what_they_serve(objects: Objects) -> None:
    publisher = started(objects)
    changed = {**weights(0), "fixed": torch.ones(2, 2), "new": torch.arange(3)}
    del changed["scalar"]
    with pytest.raises(
        OtherArchitecture, match=r"'fixed' is float32 \[2, 2\], not float32 \[5\]; it has 'new'"
    ):
        publisher.delta(1, changed)
    assert (publisher.version, Subscriber(objects).head()) == (0, 0)
    reader, fresh = Subscriber(objects), Subscriber(objects)
    reader.fetch(0)
    publisher.anchor(1, changed, parent=0)
    with pytest.raises(OtherArchitecture, match=r"version 1 is of another architecture.*it lacks 'scalar'"):
        reader.fetch(1)
    assert same_bits(reader.fetch(0), weights(0))
    assert same_bits(fresh.fetch(1), changed)


def test_the_served_architecture_decides_which_versions_are_accepted(objects: Objects) -> None:
    started(objects)
    reader = Subscriber(objects, like={"w": torch.zeros(2, dtype=torch.bfloat16)})
    with pytest.raises(OtherArchitecture, match=r"it has 'empty'; it has 'fixed'; .*; [0-9]+ more; refused"):
        reader.fetch(0)


def test_later_changes_in_place_are_not_lost(objects: Objects) -> None:
    tensors = weights(0)
    publisher = Publisher(objects)
    publisher.anchor(0, tensors)
    tensors["fixed"].mul_(2)
    publisher.delta(1, tensors)
    assert same_bits(Subscriber(objects).fetch(1), tensors)


def test_large_weights_lie_in_several_parts(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.sync.writer.upload.PART_BYTES", 40)
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
    with pytest.raises(Overtaken, match="resume and go on"):
        Publisher(objects).anchor(3, weights(4))


def test_resuming_goes_on_where_the_last_one_stopped(objects: Objects) -> None:
    assert Publisher(objects).resume() is None
    started(objects).delta(1, weights(1))
    successor = Publisher(objects)
    assert successor.resume() == 1
    assert successor.delta(2, weights(2)).base == 1
    assert same_bits(Subscriber(objects).fetch(2), weights(2))


def test_the_newer_of_two_publishers_goes_on(objects: Objects) -> None:
    first = started(objects)
    second = Publisher(objects)
    second.resume()
    with pytest.raises(Fenced, match="another publisher took epoch 2"):
        first.delta(1, weights(100))
    second.delta(1, weights(1))
    for version in (1, 2):
        with pytest.raises(Fenced):
            first.delta(version, weights(version))
    assert [second.delta(2, weights(2)).epoch, Subscriber(objects).manifest(0).epoch] == [2, 1]
    assert same_bits(Subscriber(objects).fetch(2), weights(2))


class Rival:
    """Commits version 1 between the last check for a newer epoch and the commit."""

    def __init__(self, objects: Objects) -> None:
        self.publisher = Publisher(objects)
        self.publisher.resume()
        self.done = False

    def __call__(self, operation: str, key: str) -> Fault:
        if operation == "create" and key.endswith("versions/0000000001.json") and not self.done:
            self.done = True
            self.publisher.delta(1, weights(100))
        return Fault.NONE


def test_a_newer_publisher_in_the_last_moment(objects: Objects) -> None:
    started(objects)
    network = FaultyObjects(objects, lambda *_: Fault.NONE)
    late = Publisher(network)
    late.resume()
    rival = Rival(objects)
    late._objects._plan = rival
    with pytest.raises(Fenced):
        late.delta(1, weights(1))


def test_an_older_publisher_in_the_last_moment(objects: Objects) -> None:
    """The newer publisher has to go on from the version that the older one still committed."""
    first = started(objects)
    newer: list[Publisher] = []

    def take_over(operation: str, key: str) -> Fault:
        if operation == "create" and key.endswith("versions/0000000001.json") and not newer:
            newer.append(Publisher(objects))
            newer[0].resume()
        return Fault.NONE

    first._objects = FaultyObjects(objects, take_over)
    first.delta(1, weights(1))
    with pytest.raises(Overtaken, match="holds other weights, of epoch 1: resume"):
        newer[0].delta(1, weights(100))
    assert newer[0].resume() == 1
    assert newer[0].delta(2, weights(2)).parent_hash == Subscriber(objects).manifest(1).digest
    with pytest.raises(Fenced):
        first.delta(2, weights(2))


def test_prefixes_do_not_meet(objects: Objects) -> None:
    Publisher(objects, "a").anchor(0, weights(1))
    Publisher(objects, "b").anchor(7, weights(2))
    assert (Subscriber(objects, "a").head(), Subscriber(objects, "b").head()) == (0, 7)


def failing(objects: Objects, fault: Fault, where: str) -> FaultyObjects:
    """The first request to create something below `where` meets `fault`."""
    left = [fault]

    def plan(operation: str, key: str) -> Fault:
        return left.pop() if left and operation == "create" and where in key else Fault.NONE

    return FaultyObjects(objects, plan)


@pytest.mark.parametrize("where", ["parts/", "versions/", "ways/"])
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_a_failed_publish_leaves_no_trace_and_may_be_repeated(
    objects: Objects, where: str, fault: Fault
) -> None:
    """This holds for every fault of the store, on parts, on extra ways and on the manifest."""
    publisher = published(objects, 0, cadence=Cadence(anchor_every=1))
    publisher._objects = publisher._uploader._objects = failing(objects, fault, where)
    try:
        publisher.delta(1, steps(1))
    except (ObjectsError, SyncError):
        assert publisher.version == 0
        with suppress(
            SyncError
        ):  # garbage in the place of the manifest is there for good, and said each time
            publisher.delta(1, steps(1))
    reader = Subscriber(objects)
    reader.fetch(0)
    if publisher.version == 0:
        assert where == "versions/" and fault in {Fault.TRUNCATE, Fault.FLIP, Fault.SWAP}
        with pytest.raises(DigestMismatch):
            reader.fetch(1)
    else:
        assert same_bits(reader.fetch(1), steps(1))


def test_a_lost_response_is_looked_up(objects: Objects) -> None:
    publisher = started(objects)
    publisher._objects = failing(objects, Fault.LOSE, "versions/")
    assert publisher.delta(1, weights(1)).version == publisher.version == 1


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
    publisher = Publisher(objects)
    publisher.anchor(0, weights(0, width=2000))
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


def test_a_damaged_part_is_written_again(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    anchor = started(objects)
    manifest = anchor.delta(1, weights(1))
    (tmp_path / "weights/versions/0000000001.json").unlink()
    flip(tmp_path / manifest.parts[0].key, 100)
    again = Publisher(objects)
    again.resume()
    again.delta(1, weights(1))
    assert same_bits(Subscriber(objects).fetch(1), weights(1))


def test_kill_9_in_the_middle_of_publishing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sync.writer.kill_publishers", str(tmp_path), "12"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    acknowledged = json.loads(said)
    objects = Objects.open(tmp_path)
    reader = Subscriber(objects)
    head = reader.head()
    assert head is not None and head >= acknowledged[-1] > 0
    assert acknowledged == sorted(acknowledged)
    for version in (*range(head), head):
        assert bits(reader.fetch(version)["odd"]) == bits(weights(version)["odd"])
    assert same_bits(Subscriber(objects).fetch(head), weights(head, width=4000))
    with pytest.raises(Missing):
        objects.get(f"weights/versions/{head + 1:010}.json")
