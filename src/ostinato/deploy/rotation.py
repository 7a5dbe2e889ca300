"""The tasks of each gate, and those that no gate ever sees.

Nothing is trained on a held-out task. Yet gates that ask the same tasks again and again let pass, of many
candidates, those that are lucky on just these. So each gate draws its own share of the tasks, and a frozen
share is left out of all gates: the sum of all promotions is judged on it.

Tasks of one cluster are hard for the same reason, so a cluster is drawn as a whole. Each split is drawn from
by itself, and at least one cluster of it is left to the gates.
"""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b

from ostinato.types import Task

FROZEN = "frozen"
"""The salt of the draw that freezes clusters."""
Clusters = set[tuple[str, str]]
"""Clusters by the name of their split and their own."""


def part_frozen(tasks: Sequence[Task], share: float) -> tuple[list[Task], list[Task]]:
    """Return the tasks of the gates and the frozen ones, which are `share` of each split's clusters, rounded
    down."""
    frozen = _drawn(tasks, share, FROZEN, least=0)
    return [each for each in tasks if _of(each) not in frozen], [
        each for each in tasks if _of(each) in frozen
    ]


def tasks_of_gate(tasks: Sequence[Task], share: float, gate: str) -> list[Task]:
    """Return the tasks of the gate of that name: `share` of each split's clusters, drawn by a hash of the
    name."""
    drawn = _drawn(tasks, share, gate, least=1)
    return [each for each in tasks if _of(each) in drawn]


def _drawn(tasks: Sequence[Task], share: float, salt: str, least: int) -> Clusters:
    """Return that share of each split's clusters, at least so many, in the order of their hashes."""
    splits = defaultdict[str, set[str]](set)
    for task in tasks:
        splits[task.split].add(task.cluster)
    drawn = Clusters()
    for split, clusters in splits.items():
        ordered = sorted(clusters, key=lambda cluster: blake2b(f"{salt}/{split}/{cluster}".encode()).digest())
        drawn |= {(split, cluster) for cluster in ordered[: max(least, int(share * len(ordered)))]}
    return drawn


def _of(task: Task) -> tuple[str, str]:
    return task.split, task.cluster
