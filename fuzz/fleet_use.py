"""The resources that a simulated fleet really uses: the scheduler can only estimate them from reports."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.fleet.scheduler.types import Pressure, Size

STEP_S = 1.0
"""How often the use is computed."""
PSI_S = 10.0
"""The time over which the kernel averages a stall."""
BURST_PER_S = 0.2
"""Chance per second that a computing sandbox stops: bursts last 5 s on average."""
GROWN_S, AT_FIRST = 30.0, 0.3
"""How long a sandbox takes to fill its share of memory and disk, and the part that it has at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUse:
    """The resources that a sandbox may use, and the shares that it does use.

    >>> SandboxUse(size=Size(500, 512, 64)).duty
    0.15
    """

    size: Size
    duty: float = 0.15
    """Share of the time in which it uses all its CPU."""
    fill: float = 0.7
    """Share of its memory and disk that it uses in the end."""


class SimulatedUse:
    """The use of all nodes: arrays with one slot a sandbox, so that a step advances 100,000 at once."""

    def __init__(self, nodes: int, capacity: Size, rng: np.random.Generator) -> None:
        self._nodes, self._capacity, self._rng = nodes, capacity, rng
        self._cores = capacity.millicores / 1000
        self.where: dict[str, int] = {}
        self._free: list[int] = []
        self._node = np.zeros(0, dtype=np.int64)
        self._numbers = np.zeros((6, 0))  # cores, duty, memory, disk, since, on
        self._live = np.zeros(0, dtype=bool)
        self._starting: dict[str, int] = {}
        self._cpu = np.zeros(nodes)
        self._stall = np.zeros(nodes)
        self._memory = np.zeros(nodes)
        self._disk = np.zeros(nodes)

    def start(self, sandbox: str, node: int) -> None:
        """Begin a start, which keeps one core busy."""
        self._starting[sandbox] = node

    def end_start(self, sandbox: str, node: int) -> bool:
        """End a start; return False if its node died meanwhile."""
        return self._starting.pop(sandbox, None) == node

    def add(self, sandbox: str, node: int, use: SandboxUse, now: float) -> None:
        if not self._free:
            self._grow()
        slot = self.where[sandbox] = self._free.pop()
        self._node[slot], self._live[slot] = node, True
        size = use.size
        self._numbers[:, slot] = (
            size.millicores / 1000,
            use.duty,
            size.memory_mb * use.fill,
            size.disk_mb * use.fill,
            now,
            0.0,
        )

    def remove(self, sandbox: str) -> None:
        self._starting.pop(sandbox, None)
        slot = self.where.pop(sandbox, None)
        if slot is not None:
            self._live[slot] = False
            self._free.append(slot)

    def clear(self, node: int) -> None:
        slots = set(np.flatnonzero(self._live & (self._node == node)).tolist())
        for sandbox in [sandbox for sandbox, slot in self.where.items() if slot in slots]:
            self.remove(sandbox)
        for sandbox in [sandbox for sandbox, where in self._starting.items() if where == node]:
            del self._starting[sandbox]

    def step(self, now: float) -> None:
        """Let each sandbox start or stop computing, so that it computes for its duty's share of the time."""
        live = np.flatnonzero(self._live)
        cores, duty, memory, disk, since, on = self._numbers[:, live]
        enter = BURST_PER_S * duty / (1 - duty)
        chance = self._rng.random(live.size)
        on = np.where(on > 0, chance >= BURST_PER_S, chance < enter).astype(float)
        self._numbers[5, live] = on
        grown = AT_FIRST + (1 - AT_FIRST) * np.minimum((now - since) / GROWN_S, 1)
        starts = np.bincount(list(self._starting.values()), minlength=self._nodes)
        self._cpu = self._sum(live, cores * on) + starts
        self._memory, self._disk = self._sum(live, memory * grown), self._sum(live, disk * grown)
        waiting = np.maximum(0, 1 - self._cores / np.maximum(self._cpu, 1e-9))
        self._stall += (waiting - self._stall) * (1 - np.exp(-STEP_S / PSI_S))

    def _sum(self, live: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.zeros(self._nodes)
        np.add.at(sums, self._node[live], weights)
        return sums

    def pressure(self, node: int) -> Pressure:
        return Pressure(
            cpu=min(1.0, float(self._cpu[node]) / self._cores),
            memory=float(self._memory[node]) / self._capacity.memory_mb,
            disk=float(self._disk[node]) / self._capacity.disk_mb,
            stalls=(float(self._stall[node]),),
        )

    def over(self) -> set[int]:
        """Return the nodes whose CPU stalled for 1 of the last 10 s, or that are out of memory or disk."""
        over = (
            (self._stall > 0.1)
            | (self._memory > self._capacity.memory_mb)
            | (self._disk > self._capacity.disk_mb)
        )
        return set(np.flatnonzero(over).tolist())

    def _grow(self) -> None:
        old, more = self._live.size, max(1024, self._live.size)
        self._node = np.concatenate([self._node, np.zeros(more, dtype=np.int64)])
        self._live = np.concatenate([self._live, np.zeros(more, dtype=bool)])
        self._numbers = np.concatenate([self._numbers, np.zeros((6, more))], axis=1)
        self._free.extend(range(old, old + more))
