"""The front's `Control`: the scheduler decides, the nodes act. Lost sandboxes are reported, never hidden."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ostinato.fleet.client.client import SandboxClient
from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.scheduler.types import (
    Action,
    Kill,
    Lost,
    Placement,
    Pressure,
    Refusal,
    RefusalReason,
    StartKind,
    StartWarm,
)
from ostinato.fleet.scheduler.warm_pool import LABEL, OLDEST_S, WarmPool
from ostinato.fleet.server.control import ControlError, SandboxInfo, SandboxRequest, now, read_info
from ostinato.fleet.server.migration import migrate
from ostinato.fleet.server.node_client import NodeClient, to_control_error, to_placement_request
from ostinato.fleet.server.templates import Templates
from ostinato.sandbox.base import SandboxError, Snapshot, SnapshotKind

log = logging.getLogger(__name__)
POLL_S = 1.0
DEAD_POLLS = 3
"""Failed reports in a row after which all sandboxes of a node are lost."""
TRIES = 3
"""The number of tries of a start, each on the node that the scheduler then chooses."""
MOST_LOST = 10_000

_WORDS = {
    RefusalReason.QUEUED: (429, "others asked before"),
    RefusalReason.FULL: (429, "every node is full"),
    RefusalReason.STARTS: (429, "every node is busy starting sandboxes"),
    RefusalReason.FAILING: (429, "the last starts of this template failed"),
    RefusalReason.NO_NODES: (503, "no node that could run it responds"),
    RefusalReason.TOO_LARGE: (400, "it asks for more than any node has: lower its limits"),
    RefusalReason.NO_PARENT: (404, "the sandbox to fork from is gone"),
    RefusalReason.ENDED: (409, "a sandbox of this name has ended: take another name"),
}


class Fleet:
    """The nodes and their scheduler. Nothing is on disk: the nodes' reports say which sandboxes run."""

    def __init__(
        self,
        nodes: Sequence[SandboxClient],
        templates: Templates,
        *,
        overcommit: Overcommit,
        busy: Pressure,
        pools: Mapping[str, WarmPool],
    ) -> None:
        self.templates = templates
        self._nodes = [NodeClient(client, templates) for client in nodes]
        self._by_name: dict[str, NodeClient] = {}
        self._boots: dict[str, str] = {}
        self._misses: dict[int, int] = {}
        self._scheduler = Scheduler(
            clock=time.monotonic, chance=random.Random(), overcommit=overcommit, busy=busy, pools=pools
        )
        self._lost: dict[str, str] = {}
        self._snapshots: dict[str, str] = {}
        self._doing: set[asyncio.Task[None]] = set()

    # --- placing --------------------------------------------------------------------------------------------

    async def create(self, request: SandboxRequest) -> SandboxInfo:
        only_on = self._snapshots.get(request.template)
        for _ in range(TRIES):
            start = time.monotonic()
            placed = self._place(request, only_on=only_on)
            decided = time.monotonic()
            try:
                info = await self._make(placed, request)
            except BaseException as error:
                self._scheduler.failed(request.id)
                if isinstance(error, ControlError) or not isinstance(error, SandboxError):
                    raise
                log.warning("sandbox %s did not start on %s: %s", request.id, placed.node, error)
                failure = error
                continue
            return self._started(info, placed, decided - start, time.monotonic() - decided)
        raise ControlError(503, f"sandbox {request.id} did not start on {TRIES} tries: {failure}", 1.0)

    def _place(
        self, request: SandboxRequest, parent: str | None = None, only_on: str | None = None
    ) -> Placement:
        """Ask the scheduler for a place. Raises ControlError with its refusal."""
        decision = self._scheduler.place(
            to_placement_request(request, deadline_s=request.timeout_s, parent=parent, only_on=only_on)
        )
        if isinstance(decision, Refusal):
            status, words = _WORDS[decision.reason]
            raise ControlError(status, f"no room for sandbox {request.id}: {words}", decision.retry_after_s)
        return decision

    async def _make(self, placed: Placement, request: SandboxRequest) -> SandboxInfo:
        node = self._by_name[placed.node]
        if placed.kind is StartKind.WARM:
            return await node.claim(placed.source, request)
        return await node.create(request)

    def _started(
        self, info: SandboxInfo, placed: Placement, placed_s: float, started_s: float
    ) -> SandboxInfo:
        self._scheduler.started(info.request.id, info.spent.get("cpu_s", 0.0))
        spent = {**info.spent, "placed": placed_s, "started": started_s}
        return replace(info, node=placed.node, spent=spent)

    async def fork(self, sandbox: str, requests: list[SandboxRequest]) -> list[SandboxInfo | ControlError]:
        """Fork on the parent's node as far as it has room, and on other nodes beyond that."""
        home = self.node_of(sandbox)
        results: dict[str, SandboxInfo | ControlError] = {}
        here: list[tuple[SandboxRequest, Placement]] = []
        for request in requests:
            try:
                placed = self._place(request, parent=sandbox)
            except ControlError as error:
                self._scheduler.withdraws(request.id)  # clients do not ask for a fork a second time
                results[request.id] = error
                continue
            if placed.kind is StartKind.FORK:
                here.append((request, placed))
            else:
                results[request.id] = await self._move(home, sandbox, request, placed)
        results |= await self._fork_at_home(home, sandbox, here) if here else {}
        return [results[request.id] for request in requests]

    async def _fork_at_home(
        self, home: NodeClient, sandbox: str, here: list[tuple[SandboxRequest, Placement]]
    ) -> dict[str, SandboxInfo | ControlError]:
        names = [request.id for request, _ in here]
        body = {"count": len(names), "timeout": here[0][0].timeout_s, "ostinato": {"sandboxIDs": names}}
        start = time.monotonic()
        try:
            forks = await home.control("POST", f"/sandboxes/{sandbox}/fork", body)
        except ControlError as error:
            for name in names:
                self._scheduler.failed(name)
            return dict.fromkeys(names, error)
        took = time.monotonic() - start
        return {
            request.id: self._started(read_info(each["sandbox"]), placed, 0.0, took)
            for (request, placed), each in zip(here, forks, strict=True)
        }

    async def _move(
        self, home: NodeClient, sandbox: str, request: SandboxRequest, placed: Placement
    ) -> SandboxInfo | ControlError:
        start = time.monotonic()
        try:
            info = await migrate(home, sandbox, self._by_name[placed.node], request)
        except SandboxError as error:
            self._scheduler.failed(request.id)
            return to_control_error(error)
        return self._started(info, placed, 0.0, time.monotonic() - start)

    # --- everything else ------------------------------------------------------------------------------------

    def node_of(self, sandbox: str) -> NodeClient:
        """Return the node that has a sandbox. Raise ControlError 404, which says so if it was lost."""
        name = self._scheduler.node_of(sandbox)
        if name is None:
            why = self._lost.get(sandbox)
            raise ControlError(
                404, f"sandbox {sandbox} was lost: {why}" if why else f"there is no sandbox {sandbox}"
            )
        return self._by_name[name]

    async def info(self, sandbox: str) -> SandboxInfo:
        node = self.node_of(sandbox)
        return self._named(read_info(await node.control("GET", f"/sandboxes/{sandbox}")), node)

    def _named(self, info: SandboxInfo, node: NodeClient) -> SandboxInfo:
        return replace(info, node=node.name)

    async def every(self) -> list[SandboxInfo]:
        """Return the sandboxes of all nodes that respond, without those of the warm pools."""
        infos: list[SandboxInfo] = []
        for node in list(self._by_name.values()):
            try:
                listed = await node.control("GET", "/sandboxes")
            except ControlError as error:
                log.warning("%s does not list its sandboxes: %s", node.name, error)
                continue
            infos += [self._named(read_info(each), node) for each in listed]
        return [info for info in infos if LABEL not in info.request.metadata]

    def lost(self) -> dict[str, str]:
        """Return the sandboxes that were lost lately, and why."""
        return dict(self._lost)

    async def kill(self, sandbox: str) -> None:
        """End a sandbox. Its place is free at once, even if the node ends it only after its next report."""
        try:
            node = self.node_of(sandbox)
        finally:
            self._scheduler.ended(sandbox)
        await node.end(sandbox)

    async def pause(self, sandbox: str) -> None:
        await self.node_of(sandbox).control("POST", f"/sandboxes/{sandbox}/pause", {})

    async def resume(self, sandbox: str, timeout_s: float | None) -> SandboxInfo:
        node = self.node_of(sandbox)
        body = {} if timeout_s is None else {"timeout": timeout_s}
        resumed = await node.control("POST", f"/sandboxes/{sandbox}/resume", body)
        if timeout_s is not None:
            self._scheduler.extend(sandbox, timeout_s)
        return self._named(read_info(resumed), node)

    async def extend(self, sandbox: str, timeout_s: float) -> None:
        node = self.node_of(sandbox)
        await node.control("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": timeout_s})
        self._scheduler.extend(sandbox, timeout_s)

    async def snapshot(self, sandbox: str, kind: SnapshotKind) -> Snapshot:
        node = self.node_of(sandbox)
        body = {"memory": kind is SnapshotKind.FULL}
        snapshot = read_snapshot(await node.control("POST", f"/sandboxes/{sandbox}/snapshots", body))
        self._snapshots[snapshot.id] = node.name
        return snapshot

    async def forget(self, template: str) -> None:
        node = self._snapshots.pop(template, None)
        if node in self._by_name:
            await self._by_name[node].control("DELETE", f"/templates/{template}")
        elif node is None and not await self.templates.remove(template):
            raise ControlError(404, f"there is no template {template}")

    async def logs(self, sandbox: str) -> list[tuple[float, str]]:
        body = await self.node_of(sandbox).control("GET", f"/sandboxes/{sandbox}/logs")
        return [(each["at"], each["line"]) for each in body["logs"]]

    async def sweep(self, label: str, value: str) -> list[str]:
        kills = self._scheduler.sweep(label, value)
        await asyncio.gather(*(self._by_name[kill.node].end(kill.sandbox) for kill in kills))
        return [kill.sandbox for kill in kills]

    def some_node(self) -> NodeClient:
        """Return any node that responds; raise ControlError 503 when none does."""
        for node in self._by_name.values():
            return node
        raise ControlError(503, "no node responds", 1.0)

    # --- nodes come and go ----------------------------------------------------------------------------------

    async def watch_nodes(self) -> None:
        """Poll all nodes and carry out the scheduler's actions, for as long as the front runs."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_S)

    async def poll(self) -> None:
        """Poll all nodes once and carry out the scheduler's actions."""
        await asyncio.gather(*(self._update(index, node) for index, node in enumerate(self._nodes)))
        self._do(self._scheduler.tick())

    async def _update(self, index: int, node: NodeClient) -> None:
        try:
            report = await node.fetch_report()
        except SandboxError as error:
            self._misses[index] = self._misses.get(index, 0) + 1
            if self._misses[index] == DEAD_POLLS and node.report:
                self._lose(node, f"its node does not respond: {error}")
            return
        self._misses[index] = 0
        name = node.name
        if self._boots.get(name) != report["boot"]:
            self._lose(node, "its node was started anew")
            self._boots[name] = report["boot"]
        self._by_name[name] = node
        self._do(self._scheduler.join(name, node.capacity))
        self._scheduler.measure(name, node.pressure)
        self._do(self._scheduler.reconcile(name, node.running()))
        for each in report["snapshots"]:
            self._snapshots[each["snapshotID"]] = name

    def _lose(self, node: NodeClient, why: str) -> None:
        self._do(self._scheduler.lose(node.name, why))
        self._by_name.pop(node.name, None)
        self._snapshots = {each: name for each, name in self._snapshots.items() if name != node.name}

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Lost():
                    log.error("sandbox %s was lost: %s", action.sandbox, action.why)
                    self._lost[action.sandbox] = action.why
                    while len(self._lost) > MOST_LOST:
                        del self._lost[next(iter(self._lost))]
                case Kill():
                    self._later(self._by_name[action.node].end(action.sandbox))
                case StartWarm():
                    self._later(self._warm(action))

    async def _warm(self, start: StartWarm) -> None:
        """Start a sandbox for a warm pool."""
        request = SandboxRequest(
            id=start.sandbox, template=start.template, timeout_s=OLDEST_S, metadata={LABEL: start.template}
        )
        try:
            info = await self._by_name[start.node].create(request)
        except SandboxError as error:
            log.warning("a warm sandbox of %s did not start on %s: %s", start.template, start.node, error)
            self._scheduler.failed(start.sandbox)
        else:
            self._scheduler.started(start.sandbox, info.spent.get("cpu_s", 0.0))

    def _later(self, doing: Any) -> None:
        task = asyncio.create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    async def aclose(self) -> None:
        for task in tuple(self._doing):
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)
        for node in self._nodes:
            await node.client.aclose()


def read_snapshot(body: Mapping[str, Any]) -> Snapshot:
    """Read a snapshot from a node's response; its directory is on that node."""
    extra = body["ostinato"]
    return Snapshot(
        id=body["snapshotID"],
        kind=SnapshotKind(extra["kind"]),
        backend=extra["backend"],
        template=extra["template"],
        path=Path(body["snapshotID"]),
        bytes=extra["bytes"],
        created=extra["created"] or now(),
    )
