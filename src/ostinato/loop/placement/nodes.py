"""The nodes of a Ray cluster, each with an actor that says what the node is and then keeps its services.

The actor's class travels with its code and describes the node in plain values, so it can be put on a node
that has another version of ostinato, or none.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ostinato.loop.placement.base import PlacementError

log = logging.getLogger(__name__)
NAMESPACE = "ostinato"
HELLO_S = 120.0
"""The longest time that a process of a node may take to start: Python, and the packages of the node."""
ANSWER_S = 20.0
"""The longest time that an actor may take to answer."""
SILENT_S = 120.0
"""Seconds without a question after which an actor ends a child. The conductor asks at least every 70, and
gives a silent service up after 160."""
END_S = 60
"""The longest wait for the end of an actor of an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The facts that a node tells of itself."""

    node: str
    """The node's host name."""
    host: str
    """The address at which other nodes reach it."""
    machine: str
    """The same on all nodes of one running kernel."""
    release: str
    """The version of ostinato there, with a digest of its code."""
    sees_folder: bool
    """True when the run's folder is there."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of which we know what it is, and the actor that keeps its services."""

    about: Hello
    actor: Any


class KnownNodes:
    """The nodes that were asked, for the run in `directory`; `local_store` says that one machine alone can
    open its record."""

    def __init__(self, directory: Path, *, local_store: bool) -> None:
        self._directory = str(directory.resolve())
        self._local_store = local_store
        self._own = Hello(**service_actor()(SILENT_S).about(self._directory))
        self._known: dict[str, Node] = {}
        self._asking = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """One actor at a time is started on a node, though several services look for it at once."""

    @property
    def host(self) -> str:
        """The address at which nodes reach this process."""
        return self._own.host

    async def meet(self, ids: Iterable[str]) -> None:
        """Put an actor on those of these nodes that are not known yet, and ask it what the node is.

        Raises PlacementError for one on which no service of this run could work. A node that does not answer
        is left out: it may be about to die.
        """
        new = [id for id in dict.fromkeys(ids) if id not in self._known]
        answers = await asyncio.gather(*map(self._node, new), return_exceptions=True)
        for id, answer in zip(new, answers, strict=True):
            if isinstance(answer, (RayError, TimeoutError)):
                log.warning("node %s does not say what it is: %s", id[:8], answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def known(self, id: str) -> Node:
        """Return a node whose actor answers. Raises PlacementError for a stranger and a silent node."""
        try:
            return await self._node(id)
        except (RayError, TimeoutError) as error:
            problem = f"node {id[:8]} did not say within {HELLO_S:.0f} s what it is: {error}"
            raise PlacementError(problem) from error

    async def _node(self, id: str) -> Node:
        """Return a node with its actor, or with another one when that died or hangs."""
        async with self._asking[id]:
            if id in self._known:
                if await answered(self._known[id].actor.hello.remote(), ANSWER_S):
                    return self._known[id]
                ray.kill(self._known[id].actor)
            self._known[id] = await self._ask(id)
            return self._known[id]

    async def _ask(self, id: str) -> Node:
        actor = await new_actor(
            f"{self._directory}:{id}",
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False),
        )
        try:
            about = Hello(**await asyncio.wait_for(actor.about.remote(self._directory), HELLO_S))
            self._refuse_stranger(about)
        except (TimeoutError, PlacementError):
            ray.kill(actor)
            raise
        return Node(about, actor)

    def _refuse_stranger(self, about: Hello) -> None:
        """Raise PlacementError for a node on which a service could not work."""
        if about.release != self._own.release:
            raise PlacementError(
                f"ostinato is {about.release} on {about.node} ({about.host}) and {self._own.release} on "
                f"{self._own.node}: install the same on every node"
            )
        if not about.sees_folder:
            raise PlacementError(
                f"{about.node} ({about.host}) does not see the run folder {self._directory}: put it on a "
                "file system that all nodes share, and name it with --directory"
            )
        if self._local_store and about.machine != self._own.machine:
            raise PlacementError(
                f"{about.node} ({about.host}) is another machine than {self._own.node}, which alone reaches "
                "the record, a SQLite file or a server on its loopback: name a PostgreSQL for both with "
                "[store] url"
            )


async def answered(call: Awaitable[Any], within_s: float) -> bool:
    """Return whether a call of an actor is answered in time."""
    try:
        await asyncio.wait_for(call, within_s)
    except (RayError, TimeoutError):
        return False
    return True


async def new_actor(label: str, **options: Any) -> Any:
    """Start an actor for services, after the end of one that an earlier conductor of the same folder left."""
    for _ in range(END_S):
        try:
            earlier = ray.get_actor(label, namespace=NAMESPACE)
        except ValueError:
            break
        log.warning("%s is left of an earlier run or of a lost node, and is ended", label)
        with contextlib.suppress(RayError):
            ray.kill(earlier)
        await asyncio.sleep(1.0)
    else:
        raise PlacementError(f"the actor {label} of an earlier run does not end: end it with `ray stop`")
    kept = ray.remote(service_actor()).options(name=label, namespace=NAMESPACE, **options)
    return kept.remote(SILENT_S)


def service_actor() -> Any:
    """Return the class of the actors, for services by name.

    It is a class within a function, because Ray sends the code of those and of others only the name.
    """

    class ServiceActor:
        def __init__(self, silent_s: float) -> None:
            self._silent_s = silent_s
            self._services: dict[str, Any] = {}

        async def hello(self) -> None:
            pass

        def about(self, directory: str) -> Mapping[str, Any]:
            """Return the fields of `Hello`."""
            import hashlib
            import importlib
            import socket
            from pathlib import Path

            from ray.util import get_node_ip_address

            try:
                package = importlib.import_module("ostinato")
            except ImportError:
                release = "not installed"
            else:
                root, digest = Path(str(package.__file__)).parent, hashlib.sha256()
                for path in sorted(root.rglob("*.py")):
                    digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
                release = f"{getattr(package, '__version__', 'unknown')}+{digest.hexdigest()[:8]}"
            node, boot = socket.gethostname(), Path("/proc/sys/kernel/random/boot_id")
            return {
                "node": node,
                "host": get_node_ip_address(),
                "machine": boot.read_text().strip() if boot.exists() else node,
                "release": release,
                "sees_folder": Path(directory).is_dir(),
            }

        async def ask(self, service: str, call: str, *arguments: Any) -> Any:
            """Return what `call` of the ServiceKeeper of a service returns."""
            if service not in self._services:
                from ostinato.loop.placement.keeper import ServiceKeeper

                self._services[service] = ServiceKeeper(self._silent_s)
            keeper = self._services[service]
            if call == "leave":
                del self._services[service]
            return await getattr(keeper, call)(*arguments)

    return ServiceActor
