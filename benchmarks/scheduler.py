"""The scheduler beside first-fit-decreasing and spreading, on simulated fleets of 1,000 nodes.

`python -m benchmarks.scheduler [--json]`. The decisions are those of `ostinato.fleet.scheduler`, called as
the servers call it. Nodes, sandboxes and clients are simulated (`fuzz.fleet_simulator`), so CPU seconds
are real and times inside the simulation are not. Four fifths of the sandboxes come within 30 s, the rest in
four waves; nodes die, some templates never start, a warm pool is drained at the first moment, some sandboxes
are forks. `pods_per_s` counts only the CPU time inside the scheduler, `pods_per_s_all` also that of the
simulator.

Packing compares the nodes in use when most sandboxes live with what first-fit-decreasing needs for the same
sandboxes if it knows all of them in advance (by the scarcest share; Panigrahy et al. 2011, "FFDMax"). With
three resources that rule is far from perfect, so the volume, which no rule can beat, is printed beside it.

`large_wait_s` is how long the second of two sandboxes that need a whole node waits among small ones without
end.
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.fleet_simulator import (
    FleetPlan,
    FleetSimulator,
    SandboxPlan,
    Tally,
    large_among_small,
)
from fuzz.fleet_use import SandboxUse

from benchmarks.measure import Run, quantile, table
from ostinato.fleet.scheduler.cluster import Cluster
from ostinato.fleet.scheduler.cost import StartCosts
from ostinato.fleet.scheduler.node import FleetNode, Overcommit
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.types import RefusalReason, Size, StartKind
from ostinato.fleet.scheduler.warm_pool import WarmPool

CAPACITY = Size(64_000, 256 * 1024, 1000 * 1024)
EVENTS = ("place", "started", "failed", "ended", "join", "measure", "reconcile", "lose", "tick")
FIRST_S = 30.0
"""The time within which the sandboxes of the burst are requested."""
WAVES = 4
STREAM_S = 600.0
"""The time for which small sandboxes come while large ones wait."""


def plan(seed: int, nodes: int, sandboxes: int) -> FleetPlan:
    """A burst that fills half of the fleet, and waves after it."""
    chance = random.Random(seed)
    wave = sandboxes // 20
    burst = [_pod(chance, FIRST_S * chance.random(), None) for _ in range(sandboxes - WAVES * wave)]
    waves = [
        _pod(chance, 60 + 60 * number + 5 * chance.random(), len(burst))
        for number in range(WAVES)
        for _ in range(wave)
    ]
    return FleetPlan(
        nodes=nodes,
        capacity=CAPACITY,
        sandboxes=(*burst, *waves),
        pools={
            "t1": WarmPool(size=Size(4000, 4096, 4096), ready=nodes // 2),
            "broken0": WarmPool(size=Size(1000, 1024, 1024), ready=nodes // 10),
        },
        overcommit=Overcommit(cpu=3.0),
        deaths=tuple((chance.uniform(5, 300), chance.randrange(nodes)) for _ in range(max(1, nodes // 50))),
        seed=seed,
    )


def _pod(chance: random.Random, at: float, parents: int | None) -> SandboxPlan:
    fails = chance.random() < 0.01
    size = Size(
        chance.choices([500, 1000, 2000, 4000], [0.3, 0.4, 0.2, 0.1])[0],
        chance.choices([512, 1024, 2048, 4096], [0.3, 0.3, 0.3, 0.1])[0],
        chance.choice([1024, 2048, 4096]),
    )
    return SandboxPlan(
        at=at,
        template=f"broken{chance.randrange(4)}" if fails else f"t{min(int(chance.paretovariate(1.1)), 500)}",
        use=SandboxUse(size=size, duty=chance.uniform(0.05, 0.3), fill=chance.uniform(0.3, 1.0)),
        life_s=chance.lognormvariate(4.5, 0.5),
        fails=fails,
        fork_of=chance.randrange(parents) if parents and chance.random() < 0.5 else None,
    )


class Timed(Scheduler):
    """The scheduler, with a count of the CPU seconds spent in its events."""

    spent_s = 0.0


def _timed(event: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        start = time.process_time()
        try:
            return event(*arguments)
        finally:
            Timed.spent_s += time.process_time() - start

    return call


for _event in EVENTS:
    setattr(Timed, _event, _timed(getattr(Scheduler, _event)))


class Spreading(Cluster):
    """The peer: the node with most left, as Kubernetes' LeastAllocated scores by default."""

    def find(self, template: str, kind: StartKind, size: Size) -> FleetNode | RefusalReason:
        expected = self.overcommit.expected(size)
        fitting = [node for node in self if node.refuses(size, expected, 1e-3) is None]
        return max(fitting, key=FleetNode.free_share) if fitting else RefusalReason.FULL


class SpreadingScheduler(Scheduler):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.cluster = Spreading(StartCosts(), settings["overcommit"])


def first_fit_decreasing(sizes: list[Size], room: Size) -> int:
    """Return the number of nodes that an off-line packer needs."""
    shares = np.array(sizes, dtype=float) / np.array(room)
    free = np.ones((len(sizes), 3))
    used = 0
    for share in shares[np.argsort(-shares.max(axis=1))]:
        node = int((free[: used + 1] >= share - 1e-12).all(axis=1).argmax())
        free[node] -= share
        used = max(used, node + 1)
    return used


def volume(sizes: list[Size], room: Size) -> float:
    """Return the number of nodes that every packer needs: the sum of the scarcest resource."""
    return float((np.array(sizes, dtype=float).sum(axis=0) / np.array(room)).max())


def measure(seed: int, nodes: int, sandboxes: int) -> dict[str, float]:
    """One fleet, from the first sandbox to the last."""
    fleet = plan(seed, nodes, sandboxes)
    Timed.spent_s, start = 0.0, time.process_time()
    tally = FleetSimulator(fleet, Timed).run()
    whole_s = time.process_time() - start
    return _figures(fleet, tally) | {
        "pods_per_s": tally.placed / Timed.spent_s,
        "pods_per_s_all": tally.placed / whole_s,
    }


def _figures(fleet: FleetPlan, tally: Tally) -> dict[str, float]:
    room = fleet.overcommit.room(fleet.capacity)
    returns = tally.returns or [0]
    return {
        "nodes_over_pressure": len(tally.over_pressure),
        "packing_vs_ffd": tally.peak_used / first_fit_decreasing(tally.peak_sizes, room),
        "packing_vs_volume": tally.peak_used / volume(tally.peak_sizes, room),
        "placed": tally.placed,
        "unfinished": len(fleet.sandboxes) - tally.finished - tally.hopeless,
        "refusals": tally.refusals,
        "returns_p99": float(np.percentile(returns, 99)),
        "lost_and_told": tally.lost,
        "warm": tally.warm,
        "warm_starts": tally.warm_starts,
        "forks_at_home": tally.forks_at_home / max(tally.forks, 1),
        "live_at_peak": len(tally.peak_sizes),
        "used_at_peak": tally.peak_used,
    }


def peer(seed: int) -> dict[str, float]:
    """Measure both rules on the same fleet a tenth as large, which half of the nodes would hold."""
    fleet = plan(seed, 100, 5_000)
    ours, spread = (
        _figures(fleet, FleetSimulator(fleet, rule).run()) for rule in (Scheduler, SpreadingScheduler)
    )
    return {
        "small_packing_vs_ffd": ours["packing_vs_ffd"],
        "spreading_packing_vs_ffd": spread["packing_vs_ffd"],
    }


def crowded(seed: int) -> dict[str, float]:
    """Measure two sandboxes as large as a node, among small ones without end that fill 92 % of 32 nodes."""
    fleet = large_among_small(
        nodes=32, load=0.92, life_s=3.0, large_at=(100.0, 100.0), seed=seed, most_s=STREAM_S
    )
    small = len(fleet.sandboxes) - 2
    waited = FleetSimulator(fleet).run().waited_s
    return {
        "large_wait_s": max(waited.get(index, STREAM_S) for index in range(small, len(fleet.sandboxes))),
        "small_wait_p99_s": float(np.percentile([waited[index] for index in waited if index < small], 99)),
    }


def main() -> None:
    options = _options()
    with Run("scheduler", "numpy") as run:
        rows = [measure(seed, options.nodes, options.pods) for seed in range(1, options.seeds + 1)]
        beside = [peer(seed) for seed in range(1, options.seeds + 1)]
        waits = [crowded(seed) for seed in range(1, options.seeds + 1)]
        parts = (rows, beside, waits)
        figures = {name: quantile([row[name] for row in part]) for part in parts for name in part[0]}
        table(
            ["figure", "median [least, most]" if options.seeds < 6 else "median [95 %]"],
            [[name, figure.text(0 if figure.value > 100 else 3)] for name, figure in figures.items()],
        )
        plain = {name: round(figure.value, 4) for name, figure in figures.items()}
        ranges = {f"{name}_range": [figure.low, figure.high] for name, figure in figures.items()}
        scale = {"nodes": options.nodes, "pods": options.pods, "seeds": options.seeds}
        run.finish(plain | ranges | scale, as_json=options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduler", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object, last line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
