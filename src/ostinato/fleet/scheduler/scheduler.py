"""The scheduler: events in, decisions out. It carries out nothing itself and waits for nothing.

    place ─────► Placement (a place is held from now on) or Refusal (with the time to ask again)
    started, failed, ended, withdraws ─────► the place is confirmed, or free again
    join, reconcile, lose ─────► nodes join, report and leave; the sandboxes of a lost node are Lost
    tick ─────► Kill sandboxes whose time is over, StartWarm sandboxes that the warm pools lack

A sandbox has at most one reservation at any time, however often it is requested; one that ended stays ended.
Nothing is on disk: a new scheduler learns from the nodes' reports which sandboxes run (`reconcile`).
"""

import heapq
import random
from collections.abc import Callable, Iterable, Mapping

from ostinato.fleet.scheduler.circuit_breaker import CircuitBreaker
from ostinato.fleet.scheduler.cluster import Cluster
from ostinato.fleet.scheduler.cost import StartCosts
from ostinato.fleet.scheduler.dedicated_nodes import RETRY_S, DedicatedNodes
from ostinato.fleet.scheduler.node import BUSY, FleetNode, Overcommit, Reservation
from ostinato.fleet.scheduler.start_health import StartHealth
from ostinato.fleet.scheduler.types import (
    Action,
    Kill,
    Lost,
    Placement,
    PlacementRequest,
    Pressure,
    Refusal,
    RefusalReason,
    ReportedSandbox,
    Size,
    StartKind,
    StartWarm,
)
from ostinato.fleet.scheduler.wait_queue import LATEST_S, EventRate, WaitQueue
from ostinato.fleet.scheduler.warm_pool import WarmPool, WarmPools

SILENT_S = 10.0
"""A node that has not reported for this long is lost."""
START_S = 60.0
"""A start that has neither succeeded nor failed by then has failed."""
LATE_S = 3.0
"""The greatest age of a node's report when it arrives."""
REMEMBER_S = 3600.0
"""The time for which the scheduler remembers that a sandbox has ended."""
RECENT_S = 1.0


class Scheduler:
    """All decisions of a fleet. Times are those of `clock`, in seconds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        chance: random.Random,
        overcommit: Overcommit | None = None,
        busy: Pressure = BUSY,
        pools: Mapping[str, WarmPool] | None = None,
    ) -> None:
        self._clock = clock
        self._busy = busy
        self._chance = chance
        self._costs = StartCosts()
        self.cluster = Cluster(self._costs, overcommit or Overcommit())
        self._queue = WaitQueue(clock, chance)
        self._dedicated = DedicatedNodes(clock, self.cluster)
        self._pools = WarmPools(pools or {}, f"{chance.getrandbits(32):08x}")
        self._reservations: dict[str, Reservation] = {}
        self._ended: dict[str, float] = {}
        self._expiries: list[tuple[float, str]] = []
        self._starting: dict[str, float] = {}
        self._health = StartHealth(clock, chance)
        self._ends = EventRate(clock)
        self._ttl_sum = 0.0
        self._last_refusal = (-RECENT_S, RefusalReason.FULL)

    # --- sandboxes ------------------------------------------------------------------------------------------

    def place(self, request: PlacementRequest) -> Placement | Refusal:
        """Hold a place for a sandbox, or say when to ask again. The same id gets the same place again."""
        known = self._reservations.get(request.id)
        if known is not None:
            return known.placement
        reason = self._refuses_for_good(request)
        if reason is not None:
            return Refusal(sandbox=request.id, reason=reason, retry_after_s=None)
        per_s = self._served_per_s(request.template) if self._queue else 0.0
        room_for = self._room_for(request.size)
        must_wait = self._queue.must_wait(request.id, per_s, room_for)
        if must_wait and self._dedicated.node_of(request.id) is None:
            wait = self._queue.wait(request.id, per_s, room_for)
            return Refusal(sandbox=request.id, reason=RefusalReason.QUEUED, retry_after_s=wait)
        return self._take_warm(request) or self._reserve(request)

    def _refuses_for_good(self, request: PlacementRequest) -> RefusalReason | None:
        if request.id in self._ended:
            return RefusalReason.ENDED
        if request.parent is not None and request.parent not in self._reservations:
            return RefusalReason.NO_PARENT
        if self.cluster.nodes and not self.cluster.could_ever(request.size):
            return RefusalReason.TOO_LARGE
        return None

    def _take_warm(self, request: PlacementRequest) -> Placement | None:
        """Give a sandbox of the pool to the client: its place becomes the request's, nothing is started."""
        source = (
            None if request.parent or request.only_on else self._pools.take(request.template, request.size)
        )
        if source is None:
            return None
        node = self.cluster.nodes[self._reservations[source].node]
        self._release(source)
        reservation = self._reservation(request, node, StartKind.WARM, source)
        reservation.running_since = self._clock()
        self._hold(reservation, node, cost_s=0.0)
        return reservation.placement

    def _reserve(self, request: PlacementRequest) -> Placement | Refusal:
        wait = self._health.of(request.template).wait_s()
        if wait:
            return Refusal(sandbox=request.id, reason=RefusalReason.FAILING, retry_after_s=wait)
        choice = self._choose_node(request)
        if isinstance(choice, RefusalReason):
            return self._refuse(request, choice)
        return self._start(request, *choice).placement

    def _start(self, request: PlacementRequest, node: FleetNode, kind: StartKind) -> Reservation:
        reservation = self._reservation(request, node, kind, request.parent or "")
        self._hold(reservation, node, self._costs.expect_s(request.template, kind, held=reservation.held))
        self._health.of(request.template).record_try()
        self._starting[request.id] = self._clock()
        return reservation

    def _choose_node(self, request: PlacementRequest) -> tuple[FleetNode, StartKind] | RefusalReason:
        """Choose a node. A fork belongs on its parent's node; it moves only when that has no room."""
        if not self.cluster.nodes or (request.only_on and request.only_on not in self.cluster.nodes):
            return RefusalReason.NO_NODES
        home = request.only_on or (request.parent and self._reservations[request.parent].node)
        kind = StartKind.FORK if request.parent else StartKind.COLD
        if home:
            node = self.cluster.nodes[home]
            reason = self.cluster.refuses(node, request, kind)
            if reason is None or request.only_on:
                return reason or (node, kind)
            kind = StartKind.MOVE
        dedicated = self._dedicated.node_of(request.id)
        if dedicated is not None and self.cluster.refuses(dedicated, request, kind) is None:
            return dedicated, kind
        choice = self.cluster.find(request.template, kind, request.size)
        return choice if isinstance(choice, RefusalReason) else (choice, kind)

    def _refuse(self, request: PlacementRequest, reason: RefusalReason) -> Refusal:
        self._last_refusal = self._clock(), reason
        wait = self._queue.wait_again(request.id, self._served_per_s(request.template))
        if reason is not RefusalReason.NO_NODES and self._dedicated.record_no_room(request):
            wait = min(wait, RETRY_S)
        return Refusal(sandbox=request.id, reason=reason, retry_after_s=wait)

    def _served_per_s(self, template: str) -> float:
        """Return how many sandboxes a second will get a place: as many as can be started, or as many as end.

        Before the first has ended, sandboxes are assumed to live as long as they may.
        """
        if self._last_refusal[1] is RefusalReason.STARTS:
            cost_s = self._costs.expect_s(template, StartKind.COLD, held=True)
            return self.cluster.starts_per_s() / max(cost_s, 1e-6)
        ends = self._ends.per_s()
        return max(ends, len(self._reservations) ** 2 / self._ttl_sum) if self._reservations else ends

    def _room_for(self, size: Size) -> float:
        """Return how many sandboxes of this size there is room for; none when one was refused just now."""
        return 0.0 if self._clock() - self._last_refusal[0] < RECENT_S else self.cluster.room_for(size)

    def started(self, sandbox: str, cpu_s: float) -> None:
        """Record that a sandbox runs and that its start took this many CPU seconds. Ignores unknown ids."""
        known = self._reservations.get(sandbox)
        if known is None or known.running_since is not None:
            return
        request, node = known.request, self.cluster.nodes[known.node]
        self._starting.pop(sandbox, None)
        known.running_since = self._clock()
        self._health.record_success(request.template, node)
        node.learn(request.template)
        self._costs.learn(request.template, known.kind, cpu_s, held=known.held)
        if known.pooled:
            self._pools.record_ready(request)

    def failed(self, sandbox: str) -> None:
        """Record that a sandbox did not start. Its place is free, and it may be requested again."""
        known = self._reservations.get(sandbox)
        if known is None:
            return
        self._release(sandbox)
        self._health.record_failure(known.request.template, self.cluster.nodes[known.node])

    def ended(self, sandbox: str) -> None:
        """Record that a sandbox is gone, for any reason. Its id is never used again, known or not."""
        self._queue.leave(sandbox)
        if sandbox in self._reservations:
            self._ends.add()
            self._release(sandbox)
        self._ended[sandbox] = self._clock() + REMEMBER_S

    def withdraws(self, sandbox: str) -> None:
        """Record that a refused client will not come back: the others move up."""
        self._queue.leave(sandbox)

    def node_of(self, sandbox: str) -> str | None:
        """Return the node that holds a sandbox's place."""
        known = self._reservations.get(sandbox)
        return None if known is None else known.node

    def extend(self, sandbox: str, deadline_s: float) -> bool:
        """Set the deadline to so many seconds from now; return False when there is no such sandbox."""
        known = self._reservations.get(sandbox)
        if known is None:
            return False
        self._expire_at(known, self._clock() + deadline_s + known.request.ttl_s - known.request.deadline_s)
        return True

    def sweep(self, label: str, value: str) -> list[Kill]:
        """End every sandbox that carries the label: the ones that a crashed run has left behind."""
        left = [each for each in self._reservations.values() if each.request.labels.get(label) == value]
        return [self._kill(reservation, f"swept: {label}={value}") for reservation in left]

    # --- nodes ----------------------------------------------------------------------------------------------

    def join(self, name: str, capacity: Size) -> list[Action]:
        """Add a node. If it was here with another capacity, the sandboxes that it ran before are lost."""
        known = self.cluster.nodes.get(name)
        if known is not None and known.capacity == capacity:
            return []
        actions = self.lose(name, "the node came back different") if known is not None else []
        node = FleetNode(
            name,
            capacity=capacity,
            room=self.cluster.overcommit.room(capacity),
            busy=self._busy,
            breaker=CircuitBreaker(self._clock, self._chance),
            clock=self._clock,
        )
        self.cluster.add(node)
        return actions

    def measure(self, name: str, pressure: Pressure) -> None:
        """Take in the load that a node reports."""
        self.cluster.nodes[name].measure(pressure)

    def reconcile(self, name: str, running: Iterable[ReportedSandbox]) -> list[Action]:
        """Compare all sandboxes that a node reports with its reservations, and settle the difference.

        Unknown sandboxes are taken over, ended ones are killed, missing ones are Lost.
        """
        node = self.cluster.nodes[name]
        actions: list[Action] = []
        reported = set()
        for each in running:
            sandbox = each.request.id
            reported.add(sandbox)
            known = self._reservations.get(sandbox)
            if sandbox in self._ended or (known is not None and known.node != name):
                actions.append(Kill(sandbox=sandbox, node=name, why="no client has it any more"))
            elif known is None:
                self._adopt(each, node)
        settled = self._clock() - LATE_S
        for reservation in [each for each in node.reservations.values() if each.request.id not in reported]:
            if reservation.running_since is not None and reservation.running_since < settled:
                actions.append(self._lost(reservation, "it died, or its node was started anew"))
        return actions

    def _adopt(self, report: ReportedSandbox, node: FleetNode) -> None:
        reservation = self._reservation(report.request, node, StartKind.COLD, "")
        reservation.running_since = self._clock() - report.age_s
        reservation.pooled = report.pooled
        self._expire_at(reservation, reservation.running_since + report.request.ttl_s)
        self._book(reservation)
        node.hold(reservation)
        self.cluster.update(node)
        if report.pooled:
            self._pools.adopt(report.request)

    def lose(self, name: str, why: str) -> list[Action]:
        """Remove a node that is gone, and all sandboxes on it."""
        node = self.cluster.nodes.get(name)
        if node is None:
            return []
        lost: list[Action] = [
            self._lost(reservation, why) for reservation in list(node.reservations.values())
        ]
        self.cluster.remove(name)
        return lost

    # --- time -----------------------------------------------------------------------------------------------

    def tick(self) -> list[Action]:
        """Do all that depends on the time alone; to be called about once a second."""
        now = self._clock()
        self._queue.forget_absent()
        self._dedicated.update(self._queue)
        while self._ended and next(iter(self._ended.values())) < now:
            del self._ended[next(iter(self._ended))]
        actions: list[Action] = []
        for node in [node for node in self.cluster if node.heard_at < now - SILENT_S]:
            actions += self.lose(node.name, f"its node {node.name} is silent")
        actions += self._end_late_starts(now)
        actions += self._end_expired(now)
        return actions + self._make_room(now) + self._fill_pools()

    def _make_room(self, now: float) -> list[Action]:
        """End warm sandboxes while clients wait for room: all on dedicated nodes, else one."""
        unclaimed = self._dedicated.unclaimed()
        at, reason = self._last_refusal
        if self._queue and reason is RefusalReason.FULL and now - at < LATEST_S and not unclaimed:
            spare = self._pools.spare()
            unclaimed = [] if spare is None else [self._reservations[spare]]
        return [self._kill(reservation, "others wait for its room") for reservation in unclaimed]

    def _end_late_starts(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for sandbox in [sandbox for sandbox, since in self._starting.items() if since < now - START_S]:
            node = self._reservations[sandbox].node
            self.failed(sandbox)
            self._ended[sandbox] = now + REMEMBER_S
            actions.append(Kill(sandbox=sandbox, node=node, why=f"it did not start within {START_S:g} s"))
        return actions

    def _end_expired(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._expiries and self._expiries[0][0] <= now:
            at, sandbox = heapq.heappop(self._expiries)
            known = self._reservations.get(sandbox)
            if known is not None and known.expires_at == at:
                actions.append(self._kill(known, "its time is over"))
        return actions

    def _fill_pools(self) -> list[Action]:
        """Start the sandboxes that the pools lack, while no client waits for a place."""
        actions: list[Action] = []
        for request in self._pools.missing() if not self._queue else ():
            if self._health.of(request.template).wait_s():
                continue
            choice = self._choose_node(request)
            if isinstance(choice, RefusalReason):
                continue
            reservation = self._start(request, *choice)
            reservation.pooled = True
            self._pools.record_start(request)
            actions.append(StartWarm(sandbox=request.id, node=reservation.node, template=request.template))
        return actions

    # --- reservations ---------------------------------------------------------------------------------------

    def _reservation(
        self, request: PlacementRequest, node: FleetNode, kind: StartKind, source: str
    ) -> Reservation:
        return Reservation(
            request=request,
            node=node.name,
            kind=kind,
            source=source,
            held=request.template in node.templates,
            expires_at=self._clock() + request.ttl_s,
        )

    def _hold(self, reservation: Reservation, node: FleetNode, cost_s: float) -> None:
        self._queue.leave(reservation.request.id)
        self._book(reservation)
        self._expire_at(reservation, reservation.expires_at)
        node.take(reservation, self.cluster.overcommit.expected(reservation.request.size), cost_s)
        self.cluster.update(node)

    def _book(self, reservation: Reservation) -> None:
        self._reservations[reservation.request.id] = reservation
        self._ttl_sum += reservation.request.ttl_s

    def _expire_at(self, reservation: Reservation, at: float) -> None:
        reservation.expires_at = at
        heapq.heappush(self._expiries, (at, reservation.request.id))

    def _release(self, sandbox: str) -> None:
        known = self._reservations.pop(sandbox)
        self._ttl_sum -= known.request.ttl_s
        self._starting.pop(sandbox, None)
        node = self.cluster.nodes[known.node]
        node.drop(sandbox)
        self.cluster.update(node)
        if known.pooled:
            self._pools.remove(known.request)

    def _kill(self, reservation: Reservation, why: str) -> Kill:
        self.ended(reservation.request.id)
        return Kill(sandbox=reservation.request.id, node=reservation.node, why=why)

    def _lost(self, reservation: Reservation, why: str) -> Lost:
        if reservation.running_since is None:
            self._health.of(reservation.request.template).record_no_result()
        self.ended(reservation.request.id)
        return Lost(sandbox=reservation.request.id, node=reservation.node, why=why)
