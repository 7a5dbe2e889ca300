"""The front's side of `Control`: the scheduler decides, nodes do. What is lost is told, never hidden."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ostinato.fleet.client.client import Client
from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.pod import Action, How, Kill, Lost, Placed, Pressure, Reason, Refused, Start
from ostinato.fleet.scheduler.pool import LABEL, OLDEST_S, Pool
from ostinato.fleet.scheduler.scheduler import Scheduler
from ostinato.fleet.server.link import Link, passed_on, to_request
from ostinato.fleet.server.moving import move
from ostinato.fleet.server.templates import Templates
from ostinato.fleet.server.wishes import ControlError, Info, Wish, now, read_info
from ostinato.sandbox.base import SandboxError, Snapshot, SnapshotKind

log = logging.getLogger(__name__)
POLL_S = 1.0
DEAD_POLLS = 3
"""Reports in a row that a node fails to give until all on it is lost."""
TRIES = 3
"""Nodes that a start is tried on."""
MOST_LOST = 10_000

_WORDS = {
    Reason.LINE: (429, "others asked before"),
    Reason.FULL: (429, "every node is full"),
    Reason.STARTS: (429, "every node is busy starting sandboxes"),
    Reason.FAILING: (429, "the last starts of this template failed"),
    Reason.NO_NODES: (503, "no node that could run it answers"),
    Reason.TOO_LARGE: (400, "it asks for more than any node has: lower its limits"),
    Reason.NO_PARENT: (404, "the sandbox to fork from is gone"),
    Reason.OVER: (409, "a sandbox of this name has ended: take another name"),
}


class Fleet:
    """Nodes and one scheduler. Nothing is kept on disk: what runs is learnt from the nodes."""

    def __init__(
        self,
        nodes: Sequence[Client],
        templates: Templates,
        *,
        overcommit: Overcommit,
        busy: Pressure,
        pools: Mapping[str, Pool],
    ) -> None:
        self.templates = templates
        self._links = [Link(client, templates) for client in nodes]
        self._by_name: dict[str, Link] = {}
        self._boots: dict[str, str] = {}
        self._misses: dict[int, int] = {}
        self._scheduler = Scheduler(
            clock=time.monotonic, chance=random.Random(), overcommit=overcommit, busy=busy, pools=pools
        )
        self._lost: dict[str, str] = {}
        self._snapshots: dict[str, str] = {}
        self._doing: set[asyncio.Task[None]] = set()

    # --- placing --------------------------------------------------------------------------------------------

    async def create(self, wish: Wish) -> Info:
        only_on = self._snapshots.get(wish.template)
        for _ in range(TRIES):
            start = time.monotonic()
            placed = self._place(wish, only_on=only_on)
            decided = time.monotonic()
            try:
                info = await self._make(placed, wish)
            except ControlError:
                self._scheduler.failed(wish.id)
                raise
            except SandboxError as error:
                log.warning("sandbox %s did not start on %s: %s", wish.id, placed.node, error)
                self._scheduler.failed(wish.id)
                failure = error
                continue
            except BaseException:
                self._scheduler.failed(wish.id)
                raise
            return self._started(info, placed, decided - start, time.monotonic() - decided)
        raise ControlError(503, f"sandbox {wish.id} did not start on {TRIES} tries: {failure}", 1.0)

    def _place(self, wish: Wish, parent: str | None = None, only_on: str | None = None) -> Placed:
        """Raises ControlError with the scheduler's refusal."""
        request = to_request(wish, deadline_s=wish.timeout_s, parent=parent, only_on=only_on)
        answer = self._scheduler.place(request)
        if isinstance(answer, Refused):
            status, words = _WORDS[answer.reason]
            raise ControlError(status, f"no room for sandbox {wish.id}: {words}", answer.retry_after_s)
        return answer

    async def _make(self, placed: Placed, wish: Wish) -> Info:
        link = self._by_name[placed.node]
        if placed.how is How.WARM:
            return await link.claim(placed.source, wish)
        return await link.create(wish)

    def _started(self, info: Info, placed: Placed, placed_s: float, started_s: float) -> Info:
        self._scheduler.started(info.wish.id, info.spent.get("cpu_s", 0.0))
        spent = {**info.spent, "placed": placed_s, "started": started_s}
        return replace(info, node=placed.node, spent=spent)

    async def fork(self, pod: str, wishes: list[Wish]) -> list[Info | ControlError]:
        """On the parent's node as far as it has room, the others on other nodes."""
        home = self.link_of(pod)
        answers: dict[str, Info | ControlError] = {}
        here: list[tuple[Wish, Placed]] = []
        for wish in wishes:
            try:
                placed = self._place(wish, parent=pod)
            except ControlError as error:
                self._scheduler.withdraws(wish.id)  # nobody asks for a fork a second time
                answers[wish.id] = error
                continue
            if placed.how is How.FORK:
                here.append((wish, placed))
            else:
                answers[wish.id] = await self._move(home, pod, wish, placed)
        answers |= await self._fork_at_home(home, pod, here) if here else {}
        return [answers[wish.id] for wish in wishes]

    async def _fork_at_home(
        self, home: Link, pod: str, here: list[tuple[Wish, Placed]]
    ) -> dict[str, Info | ControlError]:
        names = [wish.id for wish, _ in here]
        body = {"count": len(names), "timeout": here[0][0].timeout_s, "ostinato": {"sandboxIDs": names}}
        start = time.monotonic()
        try:
            told = await home.control("POST", f"/sandboxes/{pod}/fork", body)
        except ControlError as error:
            for name in names:
                self._scheduler.failed(name)
            return dict.fromkeys(names, error)
        took = time.monotonic() - start
        return {
            wish.id: self._started(read_info(each["sandbox"]), placed, 0.0, took)
            for (wish, placed), each in zip(here, told, strict=True)
        }

    async def _move(self, home: Link, pod: str, wish: Wish, placed: Placed) -> Info | ControlError:
        start = time.monotonic()
        try:
            info = await move(home, pod, self._by_name[placed.node], wish)
        except SandboxError as error:
            self._scheduler.failed(wish.id)
            return passed_on(error)
        return self._started(info, placed, 0.0, time.monotonic() - start)

    # --- everything else ------------------------------------------------------------------------------------

    def link_of(self, pod: str) -> Link:
        """The node that has a sandbox. ControlError 404 that says if it was lost."""
        name = self._scheduler.where(pod)
        if name is None:
            why = self._lost.get(pod)
            raise ControlError(404, f"sandbox {pod} was lost: {why}" if why else f"there is no sandbox {pod}")
        return self._by_name[name]

    async def info(self, pod: str) -> Info:
        link = self.link_of(pod)
        return self._named(read_info(await link.control("GET", f"/sandboxes/{pod}")), link)

    def _named(self, info: Info, link: Link) -> Info:
        return replace(info, node=link.name)

    async def every(self) -> list[Info]:
        """From all nodes that answer; a node that does not is left out until it is lost."""
        found: list[Info] = []
        for link in list(self._by_name.values()):
            try:
                told = await link.control("GET", "/sandboxes")
            except ControlError as error:
                log.warning("%s does not say what runs on it: %s", link.name, error)
                continue
            found += [self._named(read_info(each), link) for each in told]
        return [info for info in found if LABEL not in info.wish.metadata]

    def lost(self) -> dict[str, str]:
        """Sandboxes that were lost lately, and why."""
        return dict(self._lost)

    async def kill(self, pod: str) -> None:
        """Its place is free at once; what a node still starts, or does not end now, it ends once it told."""
        try:
            link = self.link_of(pod)
        finally:
            self._scheduler.ended(pod)
        await link.end(pod)

    async def pause(self, pod: str) -> None:
        await self.link_of(pod).control("POST", f"/sandboxes/{pod}/pause", {})

    async def resume(self, pod: str, timeout_s: float | None) -> Info:
        link = self.link_of(pod)
        body = {} if timeout_s is None else {"timeout": timeout_s}
        told = await link.control("POST", f"/sandboxes/{pod}/resume", body)
        if timeout_s is not None:
            self._scheduler.extend(pod, timeout_s)
        return self._named(read_info(told), link)

    async def extend(self, pod: str, timeout_s: float) -> None:
        link = self.link_of(pod)
        await link.control("POST", f"/sandboxes/{pod}/timeout", {"timeout": timeout_s})
        self._scheduler.extend(pod, timeout_s)

    async def snapshot(self, pod: str, kind: SnapshotKind) -> Snapshot:
        link = self.link_of(pod)
        body = {"memory": kind is SnapshotKind.FULL}
        snapshot = read_snapshot(await link.control("POST", f"/sandboxes/{pod}/snapshots", body))
        self._snapshots[snapshot.id] = link.name
        return snapshot

    async def forget(self, template: str) -> None:
        node = self._snapshots.pop(template, None)
        if node in self._by_name:
            await self._by_name[node].control("DELETE", f"/templates/{template}")
        elif node is None and not await self.templates.remove(template):
            raise ControlError(404, f"there is no template {template}")

    async def logs(self, pod: str) -> list[tuple[float, str]]:
        told = await self.link_of(pod).control("GET", f"/sandboxes/{pod}/logs")
        return [(each["at"], each["line"]) for each in told["logs"]]

    async def sweep(self, label: str, value: str) -> list[str]:
        kills = self._scheduler.sweep(label, value)
        await asyncio.gather(*(self._by_name[kill.node].end(kill.pod) for kill in kills))
        return [kill.pod for kill in kills]

    def some_node(self) -> Link:
        """Any that answers; ControlError 503 when none does."""
        for link in self._by_name.values():
            return link
        raise ControlError(503, "no node answers", 1.0)

    # --- nodes come and go ----------------------------------------------------------------------------------

    async def watch_nodes(self) -> None:
        """Hears all nodes and does what the scheduler wants; for as long as the front runs."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_S)

    async def poll(self) -> None:
        """One round."""
        await asyncio.gather(*(self._hear(index, link) for index, link in enumerate(self._links)))
        self._do(self._scheduler.tick())

    async def _hear(self, index: int, link: Link) -> None:
        try:
            report = await link.ask()
        except SandboxError as error:
            self._misses[index] = self._misses.get(index, 0) + 1
            if self._misses[index] == DEAD_POLLS and link.report:
                self._lose(link, f"its node does not answer: {error}")
            return
        self._misses[index] = 0
        name = link.name
        if self._boots.get(name) != report["boot"]:
            self._lose(link, "its node was started anew")
            self._boots[name] = report["boot"]
        self._by_name[name] = link
        self._do(self._scheduler.join(name, link.capacity))
        self._scheduler.measure(name, link.pressure)
        self._do(self._scheduler.hear(name, link.running()))
        for each in report["snapshots"]:
            self._snapshots[each["snapshotID"]] = name

    def _lose(self, link: Link, why: str) -> None:
        self._do(self._scheduler.lose(link.name, why))
        self._by_name.pop(link.name, None)
        self._snapshots = {each: node for each, node in self._snapshots.items() if node != link.name}

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Lost():
                    log.error("sandbox %s was lost: %s", action.pod, action.why)
                    self._lost[action.pod] = action.why
                    while len(self._lost) > MOST_LOST:
                        del self._lost[next(iter(self._lost))]
                case Kill():
                    self._later(self._by_name[action.node].end(action.pod))
                case Start():
                    self._later(self._warm(action))

    async def _warm(self, start: Start) -> None:
        """A sandbox for the pool."""
        wish = Wish(
            id=start.pod, template=start.template, timeout_s=OLDEST_S, metadata={LABEL: start.template}
        )
        try:
            info = await self._by_name[start.node].create(wish)
        except SandboxError as error:
            log.warning("a warm sandbox of %s did not start on %s: %s", start.template, start.node, error)
            self._scheduler.failed(start.pod)
        else:
            self._scheduler.started(start.pod, info.spent.get("cpu_s", 0.0))

    def _later(self, doing: Any) -> None:
        task = asyncio.create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    async def aclose(self) -> None:
        for task in tuple(self._doing):
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)
        for link in self._links:
            await link.client.aclose()


def read_snapshot(told: Mapping[str, Any]) -> Snapshot:
    """A snapshot as a node told of it; its directory is the node's."""
    extra = told["ostinato"]
    return Snapshot(
        id=told["snapshotID"],
        kind=SnapshotKind(extra["kind"]),
        backend=extra["backend"],
        template=extra["template"],
        path=Path(told["snapshotID"]),
        bytes=extra["bytes"],
        created=extra["created"] or now(),
    )
