"""A clock, and what work shares on it: processors, links and places.

Every process is a generator that yields what it waits for: `Pause` (time), `Spend` (of a station), `Take`
(places) or a `Milestone`. A station shares its capacity evenly among the work there, as a processor or a link
does. Its own virtual clock runs as fast as one piece of work proceeds, so that an arrival costs one heap
operation, however much work is there. No kept library shares evenly (the resources of simpy queue).
"""

import heapq
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count

Process = Generator["Pause | Spend | Take | Milestone", None, None]
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Spend:
    """Wait until `station` has done `amount` for each of `members`, which share its capacity as so many."""

    station: "Station"
    amount: float
    members: float = 1.0


@dataclass(frozen=True, slots=True)
class Take:
    """Wait for `count` places; whoever took them gives them back with `Places.give`."""

    places: "Places"
    count: float = 1.0


class Milestone:
    """Something that happens once; whoever waits afterwards goes on at once."""

    def __init__(self) -> None:
        self.happened = False
        self.waiting: list[Process] = []


class Places:
    """A number of places, given to processes in the order in which they asked."""

    def __init__(self, world: "World", size: float) -> None:
        self._world = world
        self.size = self.free = size
        self.queue: deque[tuple[float, Process]] = deque()
        self.used_s = 0.0
        """Place-seconds for which places were taken, up to the last change."""
        self.most = 0.0
        self._since = 0.0

    def change(self, by: float) -> None:
        """Change the number of free places and account the time until now."""
        self.used_s += (self.size - self.free) * (self._world.now - self._since)
        self._since = self._world.now
        self.free += by
        self.most = max(self.most, self.size - self.free)

    def give(self, count: float = 1.0) -> None:
        """Give places back; those who wait first go on."""
        self.change(count)
        while self.queue and self.queue[0][0] <= self.free + TINY:
            wanted, process = self.queue.popleft()
            self.change(-wanted)
            self._world.resume(process)


class Station:
    """Capacity that the work in it shares evenly; one piece never proceeds faster than 1 a second.

    A processor's capacity is its threads and the work is in CPU seconds; a link's capacity is 1 and the work
    is in seconds of the whole link. `host` bounds several stations together.
    """

    def __init__(self, world: "World", name: str, capacity: float, host: "Host | None" = None) -> None:
        if not capacity > 0:
            raise ValueError(f"station {name!r}: capacity {capacity} is not above 0")
        self.name, self.capacity, self.host = name, capacity, host
        self.members = 0.0
        self.rate = 0.0
        self.done = 0.0
        """Units of work done so far, of all members."""
        self.clock = 0.0
        """The work that a member would have had done which was here from the start."""
        self.work: list[tuple[float, int, float, Process]] = []
        world.stations.append(self)
        if host is not None:
            host.stations.append(self)

    @property
    def demand(self) -> float:
        """The capacity that the work here would use if nothing else ran."""
        return min(self.capacity, self.members)

    def share(self, scale: float) -> None:
        """Set the speed of each member for a station that has this part of its demand."""
        self.rate = self.demand * scale / self.members if self.members > TINY else 0.0

    def due(self) -> float:
        """Return the seconds until the next piece of work is done."""
        return max(0.0, self.work[0][0] - self.clock) / self.rate if self.work else float("inf")

    def advance(self, seconds: float) -> None:
        self.clock += self.rate * seconds
        self.done += self.rate * self.members * seconds


@dataclass(slots=True)
class Host:
    """Cores that several stations share; one that wants little has it, the others share the rest evenly."""

    cores: float
    stations: list[Station] = field(default_factory=list)

    def share(self) -> None:
        """Fill evenly: no station gets more than its demand, and all together no more than the cores."""
        left = self.cores
        waiting = sorted((s for s in self.stations if s.members > TINY), key=lambda s: s.demand)
        for i, station in enumerate(waiting):
            given = min(station.demand, left / (len(waiting) - i))
            station.share(given / station.demand)
            left -= given


class World:
    """All processes and stations on one clock, in seconds from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stations: list[Station] = []
        self.events = 0
        self._timers: list[tuple[float, int, Process]] = []
        self._ready: deque[Process] = deque()
        self._order = count()

    def start(self, process: Process) -> None:
        """Let a process begin now."""
        self._ready.append(process)

    def resume(self, process: Process) -> None:
        self._ready.append(process)

    def happen(self, event: Milestone) -> None:
        """Let an event happen: everyone who waits for it goes on."""
        event.happened = True
        self._ready.extend(event.waiting)
        event.waiting.clear()

    def run(self, until: float = float("inf")) -> None:
        """Run until nothing is left to happen, or until the time `until`."""
        while True:
            while self._ready:
                self._step(self._ready.popleft())
            station = min(self.stations, key=Station.due, default=None)
            work = float("inf") if station is None else station.due()
            timer = self._timers[0][0] - self.now if self._timers else float("inf")
            wait = min(work, timer)
            if self.now + wait > until or wait == float("inf"):
                self._advance(max(0.0, until - self.now) if until < float("inf") else 0.0)
                return
            self._advance(wait)
            self.events += 1
            if timer <= work:
                self._ready.append(heapq.heappop(self._timers)[2])
            elif station is not None:
                _, _, members, process = heapq.heappop(station.work)
                self._change(station, -members)
                self._ready.append(process)

    def _advance(self, seconds: float) -> None:
        self.now += seconds
        for station in self.stations:
            station.advance(seconds)

    def _change(self, station: Station, members: float) -> None:
        station.members = station.members + members if station.work else 0.0  # so that sums never drift
        if station.host is None:
            station.share(1.0)
        else:
            station.host.share()

    def _step(self, process: Process) -> None:
        """Let a process go on to what it waits for next."""
        for wanted in process:
            match wanted:
                case Pause(seconds) if seconds > 0:
                    heapq.heappush(self._timers, (self.now + seconds, next(self._order), process))
                    return
                case Spend(station, amount, members) if amount > 0 and members > 0:
                    entry = (station.clock + amount, next(self._order), members, process)
                    heapq.heappush(station.work, entry)
                    self._change(station, members)
                    return
                case Take(places, size) if size > places.free + TINY or places.queue:
                    places.queue.append((size, process))
                    return
                case Take(places, size):
                    places.change(-size)
                case Milestone() as event if not event.happened:
                    event.waiting.append(process)
                    return
                case _:
                    continue


def every(world: World, processes: Sequence[Process]) -> Milestone:
    """Start processes, and return the event that all of them have ended."""
    ended = Milestone()
    left = [len(processes)]

    def counted(process: Process) -> Process:
        yield from process
        left[0] -= 1
        if not left[0]:
            world.happen(ended)

    for process in processes:
        world.start(counted(process))
    if not processes:
        world.happen(ended)
    return ended
