"""A stream of small pods with a few large ones among them, for the scheduler on a simulated fleet."""

import random
from collections.abc import Sequence

from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.pod import Size
from ostinato.fleet.scheduler.simulate import FleetPlan, PodPlan
from ostinato.fleet.scheduler.truth import Use

WHOLE = Size(4000, 4096, 4096)
"""A node of the stream, and a pod that needs all of it."""


def among_small(
    *, nodes: int, load: float, life_s: float, large_at: Sequence[float], seed: int, most_s: float
) -> FleetPlan:
    """Return a plan of endless small pods, `load` of the fleet's room, and of pods as large as a node."""
    chance, at, pods = random.Random(seed), 0.0, []
    small = Use(size=Size(1000, 1024, 1024))
    while at < most_s:
        at += chance.expovariate(load * 4 * nodes / life_s)
        pods.append(PodPlan(at=at, template="t", use=small, life_s=life_s * chance.uniform(0.5, 1.5)))
    pods += [PodPlan(at=then, template="t", use=Use(size=WHOLE), life_s=life_s) for then in large_at]
    return FleetPlan(
        nodes=nodes,
        capacity=WHOLE,
        pods=tuple(pods),
        pools={},
        overcommit=Overcommit(cpu=1.0),
        seed=seed,
        most_s=most_s,
    )
