"""Services on the nodes of a Ray cluster: an actor on each, which starts the same children as a laptop does.

Ray finds room and notices the death of a node; whether a service is started again is decided in
`services.py`, as on a laptop. A service that wants a GPU, or another resource with a name, has an actor of
its own, because Ray shows an actor only its share of them. The actors belong to this process: when it ends,
killed or not, Ray ends them, and the next run from the same folder ends those that are left.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ostinato.loop.placement.base import LOST, PlacementError, ServiceCommand
from ostinato.loop.placement.config import Needs, PlacementConfig
from ostinato.loop.placement.nodes import HELLO_S, NAMESPACE, KnownNodes, Node, answered, new_actor

ROOM_S = 60.0
"""The longest wait for room that the cluster has and that is in use."""
GONE_S = 20.0
"""Seconds after a kill in which the actor must say that its child ended; then its host counts as lost."""


class RayPlace:
    """Room on a node for the service `name`: a placement group of one bundle, and the actor that keeps it.

    `own` is the actor of a service that does not share the node's.
    """

    def __init__(self, name: str, node: Node, group: Any, own: Any = None) -> None:
        self._name = name
        self._group = group
        self._own = own
        self._actor = own or node.actor
        self.host = node.about.host
        self._node = node.about.node
        self.pid = 0
        self._ending: asyncio.Future[int] | None = None
        self._waiting: asyncio.Task[None] | None = None

    async def start(self, command: ServiceCommand) -> None:
        try:
            self.pid = await asyncio.wait_for(self._ask("start", command), HELLO_S)
        except (RayError, TimeoutError) as error:
            raise PlacementError(f"{self._node} was lost before a service could start there") from error
        self._ending = asyncio.get_running_loop().create_future()
        self._waiting = asyncio.create_task(self._wait_for_end(self._ending))

    async def line(self) -> bytes:
        try:
            line: bytes = await self._ask("line")
        except RayError:
            return b""
        return line

    async def ended(self) -> int:
        assert self._ending is not None
        return await asyncio.shield(self._ending)

    async def _wait_for_end(self, ending: asyncio.Future[int]) -> None:
        try:
            status: int = await self._ask("ended")
        except RayError:
            status = LOST
        if not ending.done():
            ending.set_result(status)

    async def answers(self, timeout_s: float) -> bool:
        return await answered(self._ask("ping"), timeout_s)

    def kill(self) -> None:
        """Kill the child through the actor; an actor that hangs is killed with it."""
        self._ask("kill")
        asyncio.get_running_loop().call_later(GONE_S, self._give_up, self._ending)

    def _give_up(self, ending: asyncio.Future[int] | None) -> None:
        """Kill the actor unless the child that was killed then has ended; another one may run by now."""
        if ending is not None and not ending.done():
            ray.kill(self._actor)
            ending.set_result(LOST)

    async def stop(self) -> None:
        with contextlib.suppress(RayError, TimeoutError):
            await asyncio.wait_for(self._ask("stop"), GONE_S)

    async def leave(self) -> None:
        """Give the room back without waiting: an actor that hangs ends the child when it wakes."""
        if self._own is None:
            self._ask("leave")
        else:
            ray.kill(self._own)
        remove_placement_group(self._group)

    def _ask(self, call: str, *arguments: Any) -> Awaitable[Any]:
        """Call the ServiceKeeper of this service."""
        answer: Awaitable[Any] = self._actor.ask.remote(self._name, call, *arguments)
        return answer


class RayPlacement:
    """Places on the nodes of one cluster, for the run in `directory`, which all nodes see."""

    def __init__(self, config: PlacementConfig, directory: Path, *, local_store: bool) -> None:
        if not ray.is_initialized():
            _join(config.address)
        self._resources = config.resources
        self._directory = str(directory.resolve())
        self._nodes = KnownNodes(directory, local_store=local_store)
        self.here = self._nodes.host

    async def find(self, name: str, kind: str) -> RayPlace:
        needs = self._resources.get(kind, Needs())
        group = await self._room(kind, needs)
        try:
            (id,) = placement_group_table(group)["bundles_to_node_id"].values()
            if not id:
                raise PlacementError(f"the node that had room for {kind} was lost in that moment")
            node = await self._nodes.known(id)
            own = await self._own_actor(name, needs, group) if needs.gpus or needs.custom else None
        except PlacementError:
            remove_placement_group(group)
            raise
        return RayPlace(name, node, group, own)

    async def _own_actor(self, name: str, needs: Needs, group: Any) -> Any:
        actor = await new_actor(
            f"{self._directory}:{name}",
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            resources=dict(needs.custom),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group),
        )
        try:
            await asyncio.wait_for(actor.hello.remote(), HELLO_S)
        except (RayError, TimeoutError) as error:
            raise PlacementError(f"{name} got no actor within {HELLO_S:.0f} s: {error}") from error
        return actor

    async def reserve(self, kinds: list[str]) -> None:
        wanted = [(kind, self._resources.get(kind, Needs())) for kind in kinds]
        alive = [node for node in ray.nodes() if node["Alive"]]
        if problem := missing(wanted, [(node["Resources"], node["Labels"]) for node in alive]):
            raise PlacementError(problem)
        await self._nodes.meet(
            node["NodeID"] for node in alive if any(_fits(node, needs) for _, needs in wanted)
        )

    async def _room(self, kind: str, needs: Needs) -> Any:
        """Return a placement group of one bundle. Raises PlacementError when there is no room for long."""
        group = placement_group(
            [needs.bundle or {"CPU": 0.001}],
            bundle_label_selector=[dict(needs.labels)] if needs.labels else None,
        )
        if not await asyncio.to_thread(group.wait, ROOM_S):
            remove_placement_group(group)
            raise PlacementError(
                f"the cluster had no room for {kind} within {ROOM_S:.0f} s: it wants {_text(needs)}, and "
                f"{_amounts(ray.available_resources())} are free: end what uses the rest, or ask for less"
            )
        return group

    async def aclose(self) -> None:
        ray.shutdown()


def _join(address: str) -> None:
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise PlacementError(
            f"no Ray cluster answers at {address}: start one with `ray start --head`, or correct "
            f"[placement] address ({error})"
        ) from error


def _fits(node: Mapping[str, Any], needs: Needs) -> bool:
    """Return whether a service with these needs could run on the node, were it empty."""
    enough = all(node["Resources"].get(name, 0) >= amount for name, amount in needs.bundle.items())
    return enough and needs.labels.items() <= node["Labels"].items()


def missing(
    wanted: Sequence[tuple[str, Needs]], nodes: Sequence[tuple[Mapping[str, float], Mapping[str, str]]]
) -> str | None:
    """Return a sentence on what the nodes, each with resources and labels, lack for all services at once.

    None when every service fits on a node and their sums fit into the cluster.

    >>> missing([("engine", Needs(gpus=1.0))], [({"CPU": 8.0}, {})])
    'the cluster lacks what engine wants, 1 CPU and 1 GPU on one node: no node has more than 0 GPU'
    """
    for kind, needs in wanted:
        fit = [resources for resources, labels in nodes if needs.labels.items() <= labels.items()]
        if not fit:
            return f"the cluster lacks what {kind} wants: no node has the labels {dict(needs.labels)}"
        if not any(all(each.get(name, 0) >= most for name, most in needs.bundle.items()) for each in fit):
            most = {name: max(each.get(name, 0.0) for each in fit) for name in needs.bundle}
            short = [name for name, amount in needs.bundle.items() if most[name] < amount]
            what = (
                ", ".join(f"no node has more than {most[name]:g} {name}" for name in short)
                or "no node has all of it"
            )
            return f"the cluster lacks what {kind} wants, {_text(needs)} on one node: {what}"
    total, sums = Counter[str](), Counter[str]()
    for resources, _ in nodes:
        total.update(resources)
    for _, needs in wanted:
        sums.update(needs.bundle)
    short = [name for name, amount in sums.items() if total[name] < amount]
    if short:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(kind for kind, _ in wanted).items())
        what = ", ".join(f"{sums[name]:g} {name} of which it has {total[name]:g}" for name in short)
        return f"the cluster is too small for {kinds} at once: they want {what}"
    return None


def _text(needs: Needs) -> str:
    labels = f" and the labels {dict(needs.labels)}" if needs.labels else ""
    return _amounts(needs.bundle) + labels


def _amounts(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if ":" not in name and "memory" not in name}
    return " and ".join(f"{amount:g} {name}" for name, amount in shown.items()) or "nothing"
