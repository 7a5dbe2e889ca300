"""The chain on a bucket keeps the same promises as on a folder, over a real wire."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.sync.bucket import NAME, SETTINGS, s3_server
from tests.sync.builders import published, same_bits, steps

from ostinato.store import AlreadyExists, Missing, Objects
from ostinato.sync import Cadence, Fenced, Publisher, Subscriber, collect
from ostinato.sync.mirror import Mirror

pytest.importorskip(
    "moto", reason="moto, the S3 server of these tests, is not installed: pip install moto[s3]"
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Objects:
    for name, value in {**SETTINGS, "AWS_ENDPOINT": server}.items():
        monkeypatch.setenv(name, value)
    return Objects.open(f"s3://{NAME}/{request.node.name}")


def test_an_object_is_created_once(bucket: Objects) -> None:
    bucket.create("a/b", b"1")
    with pytest.raises(AlreadyExists, match="a/b exists already"):
        bucket.create("a/b", b"2")
    assert (bucket.get("a/b"), bucket.exists("a/b"), bucket.exists("a/c")) == (b"1", True, False)
    with pytest.raises(Missing, match="there is no a/c"):
        bucket.get("a/c")
    bucket.delete("a/b")
    assert bucket.list() == []


def test_one_of_many_concurrent_creations_succeeds(bucket: Objects) -> None:
    def create(writer: int) -> bool:
        try:
            bucket.create("once", bytes([writer]) * 1000)
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1


def test_all_pages_of_a_listing_are_read(bucket: Objects) -> None:
    for number in range(20):
        bucket.create(f"n/{number:02}", bytes(number))
    assert bucket.sizes("n") == {f"n/{number:02}": number for number in range(20)}
    with bucket.stream(bucket.list("n")) as contents:
        assert list(contents) == [bytes(number) for number in range(20)]


def test_a_chain_is_published_followed_and_collected(bucket: Objects) -> None:
    publisher = published(bucket, 9, cadence=Cadence(anchor_every=4, skip=2))
    reader = Subscriber(bucket)
    for version in (0, 3, 4, 9, 8):
        assert same_bits(reader.fetch(version), steps(version))
    assert collect(bucket).objects > 0
    assert same_bits(Subscriber(bucket).fetch(9), steps(9))
    successor = Publisher(bucket)
    assert successor.resume() == 9
    successor.delta(10, steps(10))
    with pytest.raises(Fenced):
        publisher.delta(10, steps(10))
    assert reader.head() == 10 and same_bits(reader.fetch(10), steps(10))
    assert reader.mismatches == 0


def test_a_region_mirrors_a_bucket_into_another(bucket: Objects) -> None:
    region = Objects.open(f"{bucket.where}-region")
    published(bucket, 3)
    assert Mirror(bucket, region).step()
    assert same_bits(Subscriber(region).fetch(3), steps(3))
