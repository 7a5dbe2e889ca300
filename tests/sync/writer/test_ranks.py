"""Each rank publishes the rows it holds; a version holds the rows of all ranks or does not exist.

Covers sync/writer/ranks.py and sync/shards.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.sync.builders import ROOT, same_bits, steps
from tests.sync.writer.rank import share

from ostinato.store import Objects, ObjectsError
from ostinato.sync import Cadence, DigestMismatch, Fenced, Publisher, RankGroup, Shard, Subscriber
from ostinato.sync.chain.keys import Keys
from ostinato.sync.shards import assemble, flatten


def run_ranks(folder: Path, *jobs: tuple[str, int, int, int]) -> None:
    """Name, number of ranks, first and last version of each job; all its ranks at once, one process each."""
    command = [sys.executable, "-m", "tests.sync.writer.rank", str(folder), json.dumps(jobs)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=200)


@pytest.mark.parametrize("size", [2, *(pytest.param(size, marks=pytest.mark.deep) for size in (1, 4))])
def test_ranks_in_processes_of_their_own(tmp_path: Path, size: int) -> None:
    run_ranks(tmp_path, ("first", size, 0, 5), ("second", size, 6, 7))
    reader = Subscriber(Objects.open(tmp_path))
    assert reader.head() == 7
    for version in (0, 1, 4, 7):
        assert same_bits(reader.fetch(version), steps(version))
    manifest = reader.manifest(7)
    assert (manifest.epoch, reader.mismatches) == (2, 0)
    assert [entry.name.startswith("w@") for entry in manifest.tensors].count(True) == size
    assert manifest.size < reader.manifest(0).size / 4


def test_another_number_of_ranks_goes_on(tmp_path: Path) -> None:
    run_ranks(tmp_path, ("two", 2, 0, 1), ("one", 1, 2, 3))
    reader = Subscriber(Objects.open(tmp_path))
    for version in (1, 3):
        assert same_bits(reader.fetch(version), steps(version))


def test_a_rank_that_stays_away_publishes_nothing(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    group = RankGroup(rank=0, size=2, job="j", patience_s=0.1)
    with pytest.raises(ObjectsError, match=r"rank 1 left no weights/shares/.* within 0.1 s"):
        Publisher(objects, group=group).anchor(0, share(0, 0, 2))
    assert Subscriber(objects).head() is None


def test_a_swapped_share_is_refused(tmp_path: Path) -> None:
    objects, keys = Objects.open(tmp_path), Keys("weights")
    leader = Publisher(objects, group=RankGroup(rank=0, size=3, job="j", patience_s=0.1))
    leader.resume()
    for rank in (1, 2):
        with pytest.raises(ObjectsError, match="rank 0 left no"):
            Publisher(objects, group=RankGroup(rank=rank, size=3, job="j", patience_s=0.1)).anchor(
                0, share(0, rank, 3)
            )
    swapped, other = keys.share(0, 1, 1), keys.share(0, 1, 2)
    objects.delete(swapped)
    objects.create(swapped, objects.get(other))
    with pytest.raises(DigestMismatch, match=f"a share: expected {swapped}, got {other}"):
        leader.anchor(0, share(0, 0, 3))
    assert Subscriber(objects).head() is None


def test_a_rank_whose_leader_is_fenced_stops(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    Publisher(objects, group=RankGroup(rank=0, size=2, job="ours")).resume()
    Publisher(objects).resume()
    with pytest.raises(ObjectsError, match="rank 0 took no epoch"):
        Publisher(objects, group=RankGroup(rank=1, size=2, job="ours", patience_s=0.1)).resume()


def test_a_rank_notices_that_others_committed(tmp_path: Path) -> None:
    objects = Objects.open(tmp_path)
    leader = Publisher(objects, group=RankGroup(rank=0, size=2, job="j", patience_s=0.1))
    with pytest.raises(ObjectsError):
        leader.anchor(0, share(0, 0, 2))
    other = Publisher(objects)
    rank = Publisher(objects, group=RankGroup(rank=1, size=2, job="j", patience_s=0.1))
    rank._start = leader._start  # type: ignore[method-assign]
    other.anchor(0, steps(0))
    with pytest.raises(Fenced):
        rank.anchor(0, share(0, 1, 2))


def test_shards_come_together_in_any_order() -> None:
    whole = torch.arange(12).reshape(6, 2)
    parts = [Shard(tensor=whole[a:b], start=a, rows=6) for a, b in ((4, 6), (0, 3), (3, 3), (3, 4))]
    flat = {name: tensor for part in parts for name, tensor in flatten({"w": part}).items()}
    assert same_bits(assemble(flat), {"w": whole})


@pytest.mark.parametrize("spans", [[(0, 3)], [(0, 3), (4, 6)], [(0, 4), (3, 6)], [(1, 6)]])
def test_missing_or_doubled_rows_are_refused(spans: list[tuple[int, int]]) -> None:
    whole = torch.arange(12).reshape(6, 2)
    flat = {}
    for a, b in spans:
        flat |= flatten({"w": Shard(tensor=whole[a:b], start=a, rows=6)})
    with pytest.raises(DigestMismatch, match="tensor 'w'"):
        assemble(flat)


def test_a_name_that_looks_like_a_shard_is_refused() -> None:
    with pytest.raises(ValueError, match="must not contain '@'"):
        Publisher(Objects.open("memory://"), cadence=Cadence()).anchor(0, {"w@0/1": torch.ones(1)})


def test_a_rank_counts_from_zero() -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        RankGroup(rank=2, size=2, job="j")
