"""Ranks in processes of their own, job after job: `python -m … FOLDER [[JOB, SIZE, FIRST, LAST], …]`.
…]`.

One import of torch serves all of them, which are forked.
"""

import json
import os
import sys

import torch
from tests.sync.builders import steps

from ostinato.store import Objects
from ostinato.sync import Cadence, Publisher, RankGroup, Shard


def share(version: int, rank: int, size: int) -> dict[str, torch.Tensor | Shard]:
    """Return the tensors of this rank: some rows of `w`, and its part of the other tensors."""
    whole = steps(version)
    rows = whole["w"].tensor_split(size)
    start = sum(len(each) for each in rows[:rank])
    names = sorted(whole.keys() - {"w"})
    own: dict[str, torch.Tensor | Shard] = {name: whole[name] for name in names[rank::size]}
    return {"w": Shard(tensor=rows[rank], start=start, rows=len(whole["w"])), **own}


def publish(folder: str, group: RankGroup, first: int, last: int) -> None:
    publisher = Publisher(Objects.open(folder), group=group, cadence=Cadence(anchor_every=4, skip=2))
    head = publisher.resume()
    for version in range(first, last + 1):
        tensors = share(version, group.rank, group.size)
        if head is None and version == first:
            publisher.anchor(version, tensors)
        else:
            publisher.delta(version, tensors)


def run(folder: str, job: str, size: int, first: int, last: int) -> list[int]:
    """Run all ranks at once, each in a process; return their exit codes."""
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            torch.set_num_threads(1)
            publish(folder, RankGroup(rank=rank, size=size, job=job, patience_s=60.0), first, last)
            os._exit(0)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


if __name__ == "__main__":
    ended = [run(sys.argv[1], job, *numbers) for job, *numbers in json.loads(sys.argv[2])]
    sys.exit(any(status for statuses in ended for status in statuses))
