"""The nodes of a Ray cluster, each asked once about itself before anything starts there.

The question travels with its code and is answered in plain values, so it can be put to a node that has
another version of ostinato, or none.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ostinato.loop.placement.base import PlacementError

log = logging.getLogger(__name__)
HELLO_S = 120.0
"""The longest time that a process of a node may take to start: Python, and the packages of the node."""


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


class KnownNodes:
    """The nodes that were asked, for the run in `directory`; `local_store` says that one machine alone can
    open its record."""

    def __init__(self, directory: Path, *, local_store: bool) -> None:
        self._directory = str(directory.resolve())
        self._local_store = local_store
        self._own = Hello(**question()(self._directory))
        self._known: dict[str, Hello] = {}

    @property
    def host(self) -> str:
        """The address at which nodes reach this process."""
        return self._own.host

    async def meet(self, ids: Iterable[str]) -> None:
        """Ask those of these nodes that are not known yet.

        Raises PlacementError for one on which no service of this run could work. A node that does not answer
        is left out: it may be about to die.
        """
        new = [id for id in dict.fromkeys(ids) if id not in self._known]
        answers = await asyncio.gather(*map(self._ask, new), return_exceptions=True)
        for id, answer in zip(new, answers, strict=True):
            if isinstance(answer, (RayError, TimeoutError)):
                log.warning("node %s does not say what it is: %s", id[:8], answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._refuse_stranger(answer)
                self._known[id] = answer

    async def known(self, id: str) -> Hello:
        """Return what a node said of itself. Raises PlacementError for a stranger and a silent one."""
        await self.meet([id])
        if id not in self._known:
            raise PlacementError(f"node {id[:8]} did not say within {HELLO_S:.0f} s what it is")
        return self._known[id]

    async def _ask(self, id: str) -> Hello:
        asked = ray.remote(question()).options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False)
        )
        return Hello(**await asyncio.wait_for(asked.remote(self._directory), HELLO_S))

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


def question() -> Callable[[str], Mapping[str, Any]]:
    """Return the function that a node answers for itself, as the fields of `Hello`.

    It is a function within a function, because Ray sends the code of those and of others only the name.
    """

    def answer(directory: str) -> Mapping[str, Any]:
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

    return answer
