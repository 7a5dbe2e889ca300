"""The scheduler: events in, decisions out. It does nothing itself and waits for nothing.

    place ─────► Placed (a place is held from now on) or Refused (come back then)
    started, failed, ended, withdraws ─────► the place is confirmed, or free again
    join, hear, lose ─────► nodes come, speak, go; what was on them is Lost
    tick ─────► Kill what is over its time, Start what the warm pools lack

A pod has at most one reservation at any time, however often it is asked for; one that ended stays ended.
Nothing is on disk: a new scheduler learns from the nodes what runs (`hear`).
"""

import heapq
import random
from collections.abc import Callable, Iterable, Mapping

from ostinato.fleet.scheduler.aside import KEPT_S, Aside
from ostinato.fleet.scheduler.breaker import Breaker
from ostinato.fleet.scheduler.cluster import Cluster
from ostinato.fleet.scheduler.cost import StartCosts
from ostinato.fleet.scheduler.line import LATEST_S, Flow, Line
from ostinato.fleet.scheduler.node import BUSY, Node, Overcommit, Reservation
from ostinato.fleet.scheduler.pod import (
    Action,
    How,
    Kill,
    Lost,
    Placed,
    Pressure,
    Reason,
    Refused,
    Request,
    Running,
    Size,
    Start,
)
from ostinato.fleet.scheduler.pool import Pool, Pools
from ostinato.fleet.scheduler.trust import Trust

SILENT_S = 10.0
"""A node not heard of for this long is lost."""
START_S = 60.0
"""A start that neither succeeded nor failed by then has failed."""
LATE_S = 3.0
"""How old a node's report may be when it arrives."""
REMEMBER_S = 3600.0
"""How long it is known that a pod has ended."""
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
        pools: Mapping[str, Pool] | None = None,
    ) -> None:
        self._clock = clock
        self._busy = busy
        self._chance = chance
        self._costs = StartCosts()
        self.cluster = Cluster(self._costs, overcommit or Overcommit())
        self._line = Line(clock, chance)
        self._aside = Aside(clock, self.cluster)
        self._pools = Pools(pools or {}, f"{chance.getrandbits(32):08x}")
        self._pods: dict[str, Reservation] = {}
        self._over: dict[str, float] = {}
        self._expiries: list[tuple[float, str]] = []
        self._starting: dict[str, float] = {}
        self._trust = Trust(clock, chance)
        self._ends = Flow(clock)
        self._ttl_sum = 0.0
        self._short = (-RECENT_S, Reason.FULL)

    # --- pods -----------------------------------------------------------------------------------------------

    def place(self, request: Request) -> Placed | Refused:
        """Holds a place for a pod, or says when to come back. The same id again gives the same answer."""
        known = self._pods.get(request.id)
        if known is not None:
            return _placed(known)
        refusal = self._refuses_for_good(request)
        if refusal is not None:
            return Refused(pod=request.id, reason=refusal, retry_after_s=None)
        per_s = self._serves_per_s(request.template) if self._line else 0.0
        room_for = self._room_for(request.size)
        must_wait = self._line.must_wait(request.id, per_s, room_for)
        if must_wait and self._aside.node_of(request.id) is None:
            wait = self._line.wait(request.id, per_s, room_for)
            return Refused(pod=request.id, reason=Reason.LINE, retry_after_s=wait)
        return self._take_warm(request) or self._reserve(request)

    def _refuses_for_good(self, request: Request) -> Reason | None:
        if request.id in self._over:
            return Reason.OVER
        if request.parent is not None and request.parent not in self._pods:
            return Reason.NO_PARENT
        if self.cluster.nodes and not self.cluster.could_ever(request.size):
            return Reason.TOO_LARGE
        return None

    def _take_warm(self, request: Request) -> Placed | None:
        """A pod of the pool changes hands: its place becomes the request's, nothing is started."""
        source = (
            None if request.parent or request.only_on else self._pools.take(request.template, request.size)
        )
        if source is None:
            return None
        node = self.cluster.nodes[self._pods[source].node]
        self._release(source)
        pod = self._reservation(request, node, How.WARM, source)
        pod.running_since = self._clock()
        self._hold(pod, node, cost_s=0.0)
        return _placed(pod)

    def _reserve(self, request: Request) -> Placed | Refused:
        wait = self._trust.of(request.template).wait_s()
        if wait:
            return Refused(pod=request.id, reason=Reason.FAILING, retry_after_s=wait)
        found = self._find(request)
        if isinstance(found, Reason):
            return self._refuse(request, found)
        return _placed(self._start(request, *found))

    def _start(self, request: Request, node: Node, how: How) -> Reservation:
        pod = self._reservation(request, node, how, request.parent or "")
        self._hold(pod, node, self._costs.expect_s(request.template, how, held=pod.held))
        self._trust.of(request.template).tries()
        self._starting[request.id] = self._clock()
        return pod

    def _find(self, request: Request) -> tuple[Node, How] | Reason:
        """A fork belongs on its parent's node; only when that has no room does it move."""
        if not self.cluster.nodes or (request.only_on and request.only_on not in self.cluster.nodes):
            return Reason.NO_NODES
        home = request.only_on or (request.parent and self._pods[request.parent].node)
        how = How.FORK if request.parent else How.COLD
        if home:
            node = self.cluster.nodes[home]
            refusal = self.cluster.refuses(node, request, how)
            if refusal is None or request.only_on:
                return refusal or (node, how)
            how = How.MOVE
        kept = self._aside.node_of(request.id)
        if kept is not None and self.cluster.refuses(kept, request, how) is None:
            return kept, how
        found = self.cluster.find(request.template, how, request.size)
        return found if isinstance(found, Reason) else (found, how)

    def _refuse(self, request: Request, reason: Reason) -> Refused:
        self._short = self._clock(), reason
        wait = self._line.again(request.id, self._serves_per_s(request.template))
        if reason is not Reason.NO_NODES and self._aside.finds_no_room(request):
            wait = min(wait, KEPT_S)
        return Refused(pod=request.id, reason=reason, retry_after_s=wait)

    def _serves_per_s(self, template: str) -> float:
        """How many pods a second will get a place: as many as can be started, or as many as end.

        Before any has ended, pods are taken to live as long as they may.
        """
        if self._short[1] is Reason.STARTS:
            cost_s = self._costs.expect_s(template, How.COLD, held=True)
            return self.cluster.starts_per_s() / max(cost_s, 1e-6)
        ends = self._ends.per_s()
        return max(ends, len(self._pods) ** 2 / self._ttl_sum) if self._pods else ends

    def _room_for(self, size: Size) -> float:
        """How many pods of this size there is room for; for none when one was just refused."""
        return 0.0 if self._clock() - self._short[0] < RECENT_S else self.cluster.room_for(size)

    def started(self, pod: str, cpu_s: float) -> None:
        """The pod runs; its start took this many CPU seconds. Nothing happens if it is unknown."""
        known = self._pods.get(pod)
        if known is None or known.running_since is not None:
            return
        request, node = known.request, self.cluster.nodes[known.node]
        self._starting.pop(pod, None)
        known.running_since = self._clock()
        self._trust.praise(request.template, node)
        node.learn(request.template)
        self._costs.learn(request.template, known.how, cpu_s, held=known.held)
        if known.pooled:
            self._pools.becomes_ready(request)

    def failed(self, pod: str) -> None:
        """The pod did not start. Its place is free, and it may be asked for again."""
        known = self._pods.get(pod)
        if known is None:
            return
        self._release(pod)
        self._trust.blame(known.request.template, self.cluster.nodes[known.node])

    def ended(self, pod: str) -> None:
        """The pod is gone, by whatever means. An id is never used again, known or not."""
        self._line.leave(pod)
        if pod in self._pods:
            self._ends.add()
            self._release(pod)
        self._over[pod] = self._clock() + REMEMBER_S

    def withdraws(self, pod: str) -> None:
        """Whoever was refused will not come back: others move up."""
        self._line.leave(pod)

    def where(self, pod: str) -> str | None:
        """The node that holds a pod's place."""
        known = self._pods.get(pod)
        return None if known is None else known.node

    def extend(self, pod: str, deadline_s: float) -> bool:
        """Sets the deadline to so many seconds from now; False when there is no such pod."""
        known = self._pods.get(pod)
        if known is None:
            return False
        self._expire_at(known, self._clock() + deadline_s + known.request.ttl_s - known.request.deadline_s)
        return True

    def sweep(self, label: str, value: str) -> list[Kill]:
        """Ends every pod that carries the label: what a run that crashed has left behind."""
        left = [pod for pod in self._pods.values() if pod.request.labels.get(label) == value]
        return [self._kill(pod, f"swept: {label}={value}") for pod in left]

    # --- nodes ----------------------------------------------------------------------------------------------

    def join(self, name: str, capacity: Size) -> list[Action]:
        """A node (again) offers its room. What it ran before is lost unless it says otherwise (`hear`)."""
        known = self.cluster.nodes.get(name)
        if known is not None and known.capacity == capacity:
            return []
        actions = self.lose(name, "the node came back different") if known is not None else []
        node = Node(
            name,
            capacity=capacity,
            room=self.cluster.overcommit.room(capacity),
            busy=self._busy,
            breaker=Breaker(self._clock, self._chance),
            clock=self._clock,
        )
        self.cluster.add(node)
        return actions

    def measure(self, name: str, pressure: Pressure) -> None:
        """A node says how busy it is."""
        self.cluster.nodes[name].measure(pressure)

    def hear(self, name: str, running: Iterable[Running]) -> list[Action]:
        """A node says all that runs on it: the difference to what was promised is settled.

        Unknown pods are taken over, those that ended are killed, those that are missing are Lost.
        """
        node = self.cluster.nodes[name]
        actions: list[Action] = []
        seen = set()
        for each in running:
            seen.add(each.request.id)
            known = self._pods.get(each.request.id)
            if each.request.id in self._over or (known is not None and known.node != name):
                actions.append(Kill(pod=each.request.id, node=name, why="nobody has it any more"))
            elif known is None:
                self._adopt(each, node)
        settled = self._clock() - LATE_S
        for pod in [p for p in node.pods.values() if p.request.id not in seen]:
            if pod.running_since is not None and pod.running_since < settled:
                actions.append(self._lost(pod, "it died, or its node was started anew"))
        return actions

    def _adopt(self, found: Running, node: Node) -> None:
        pod = self._reservation(found.request, node, How.COLD, "")
        pod.running_since = self._clock() - found.age_s
        pod.pooled = found.pooled
        self._expire_at(pod, pod.running_since + found.request.ttl_s)
        self._book(pod)
        node.hold(pod)
        self.cluster.moved(node)
        if found.pooled:
            self._pools.adopts(found.request)

    def lose(self, name: str, why: str) -> list[Action]:
        """A node is gone, and all that was on it."""
        node = self.cluster.nodes.get(name)
        if node is None:
            return []
        lost: list[Action] = [self._lost(pod, why) for pod in list(node.pods.values())]
        self.cluster.remove(name)
        return lost

    # --- time -----------------------------------------------------------------------------------------------

    def tick(self) -> list[Action]:
        """What time alone brings; call it about once a second."""
        now = self._clock()
        self._line.forget_absent()
        self._aside.settle(self._line)
        while self._over and next(iter(self._over.values())) < now:
            del self._over[next(iter(self._over))]
        actions: list[Action] = []
        for node in [node for node in self.cluster if node.heard_at < now - SILENT_S]:
            actions += self.lose(node.name, f"its node {node.name} is silent")
        actions += self._end_late_starts(now)
        actions += self._end_expired(now)
        return actions + self._make_room(now) + self._refill()

    def _make_room(self, now: float) -> list[Action]:
        """Pods that nobody has taken go while somebody waits for room: all on nodes set aside, else one."""
        untaken = self._aside.untaken()
        at, why = self._short
        if self._line and why is Reason.FULL and now - at < LATEST_S and not untaken:
            spare = self._pools.spare()
            untaken = [] if spare is None else [self._pods[spare]]
        return [self._kill(pod, "others wait for its room") for pod in untaken]

    def _end_late_starts(self, now: float) -> list[Action]:
        late = [pod for pod, since in self._starting.items() if since < now - START_S]
        actions: list[Action] = []
        for pod in late:
            node = self._pods[pod].node
            self.failed(pod)
            self._over[pod] = now + REMEMBER_S
            actions.append(Kill(pod=pod, node=node, why=f"it did not start within {START_S:g} s"))
        return actions

    def _end_expired(self, now: float) -> list[Action]:
        actions: list[Action] = []
        while self._expiries and self._expiries[0][0] <= now:
            at, name = heapq.heappop(self._expiries)
            pod = self._pods.get(name)
            if pod is not None and pod.expires_at == at:
                actions.append(self._kill(pod, "its time is over"))
        return actions

    def _refill(self) -> list[Action]:
        """Starts what the pools lack, while nobody waits for a place."""
        actions: list[Action] = []
        for request in self._pools.wanted() if not self._line else ():
            found = Reason.FAILING if self._trust.of(request.template).wait_s() else self._find(request)
            if isinstance(found, Reason):
                continue
            pod = self._start(request, *found)
            pod.pooled = True
            self._pools.starts(request)
            actions.append(Start(pod=request.id, node=pod.node, template=request.template))
        return actions

    # --- the books ------------------------------------------------------------------------------------------

    def _reservation(self, request: Request, node: Node, how: How, source: str) -> Reservation:
        now = self._clock()
        return Reservation(
            request=request,
            node=node.name,
            how=how,
            source=source,
            held=request.template in node.templates,
            placed_at=now,
            expires_at=now + request.ttl_s,
        )

    def _hold(self, pod: Reservation, node: Node, cost_s: float) -> None:
        self._line.leave(pod.request.id)
        self._book(pod)
        self._expire_at(pod, pod.expires_at)
        node.take(pod, self.cluster.overcommit.expected(pod.request.size), cost_s)
        self.cluster.moved(node)

    def _book(self, pod: Reservation) -> None:
        self._pods[pod.request.id] = pod
        self._ttl_sum += pod.request.ttl_s

    def _expire_at(self, pod: Reservation, at: float) -> None:
        pod.expires_at = at
        heapq.heappush(self._expiries, (at, pod.request.id))

    def _release(self, pod: str) -> None:
        known = self._pods.pop(pod)
        self._ttl_sum -= known.request.ttl_s
        self._starting.pop(pod, None)
        node = self.cluster.nodes[known.node]
        node.drop(pod)
        self.cluster.moved(node)
        if known.pooled:
            self._pools.loses(known.request)

    def _kill(self, pod: Reservation, why: str) -> Kill:
        self.ended(pod.request.id)
        return Kill(pod=pod.request.id, node=pod.node, why=why)

    def _lost(self, pod: Reservation, why: str) -> Lost:
        if pod.running_since is None:
            self._trust.of(pod.request.template).abandons()
        self.ended(pod.request.id)
        return Lost(pod=pod.request.id, node=pod.node, why=why)


def _placed(pod: Reservation) -> Placed:
    return Placed(pod=pod.request.id, node=pod.node, how=pod.how, source=pod.source)
