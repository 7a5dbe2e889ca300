"""An object exists whole or not at all, and never changes."""

import os
import signal
from pathlib import Path

import pytest
from tests.store.builders import start_python

from ostinato.store import AlreadyExists, Missing, Objects, ObjectsError

WRITE_FOREVER = """
import sys
from ostinato.store import Objects
objects = Objects.open(sys.argv[1])
for number in range(10**9):
    objects.create(f"big/{number:06}", bytes([number % 256]) * 500_000)
    print(number, flush=True)
"""
WRITE_TOO_MUCH = """
import resource, sys
from ostinato.store import Objects, StorageFull
objects = Objects.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    objects.create("a/big", b"x" * 200_000)
except StorageFull as error:
    print(error)
objects.create("a/small", b"x" * 50_000)
"""


@pytest.fixture(params=["folder", "file", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return Objects.open(
        {"folder": tmp_path / "new" / "o", "file": f"file://{tmp_path}/o", "memory": "memory://"}[
            request.param
        ]
    )


def test_a_created_object_is_read_back(objects: Objects) -> None:
    objects.create("b/2", b"two")
    objects.create("b/1", b"")
    objects.create("c", bytes(range(256)))
    assert (objects.get("b/2"), objects.get("b/1"), objects.get("c")) == (b"two", b"", bytes(range(256)))
    assert (objects.list(), objects.list("b"), objects.list("none")) == (
        ["b/1", "b/2", "c"],
        ["b/1", "b/2"],
        [],
    )
    assert (objects.exists("b/1"), objects.exists("b/3")) == (True, False)


def test_an_object_never_changes(objects: Objects) -> None:
    objects.create("a", b"1")
    with pytest.raises(AlreadyExists, match="a exists already"):
        objects.create("a", b"2")
    assert objects.get("a") == b"1"


def test_a_missing_object_is_named(objects: Objects) -> None:
    with pytest.raises(Missing, match="there is no a/b"):
        objects.get("a/b")


@pytest.mark.parametrize("key", ["../a", "a/../b"])
def test_a_key_cannot_leave_the_folder(objects: Objects, key: str) -> None:
    with pytest.raises(ObjectsError, match=r"\.\."):
        objects.create(key, b"1")


def test_an_unknown_url_is_named() -> None:
    with pytest.raises(ObjectsError, match="carrier://pigeon: open: "):
        Objects.open("carrier://pigeon")


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with start_python(WRITE_TOO_MUCH, tmp_path) as writer:
        said, _ = writer.communicate()
    assert "no space left to write a/big; free some and try again" in said
    assert Objects.open(tmp_path).list() == ["a/small"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["small"]


def test_kill_9_leaves_no_half_object(tmp_path: Path) -> None:
    with start_python(WRITE_FOREVER, tmp_path) as writer:
        assert writer.stdout
        acknowledged = [int(writer.stdout.readline()) for _ in range(10)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += map(int, writer.stdout.read().split())
    objects = Objects.open(tmp_path)
    found = objects.list("big")
    assert len(found) >= len(acknowledged)
    assert all(objects.get(key) == bytes([i % 256]) * 500_000 for i, key in enumerate(found))
    objects.create(f"big/{len(found):06}", b"again")
