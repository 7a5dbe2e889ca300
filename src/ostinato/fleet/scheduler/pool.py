"""Warm pools: pods that are started before anybody asks, for templates that are asked for often."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ostinato.fleet.scheduler.pod import Request, Size

AT_ONCE = 0.25
"""How much of a pool may be starting: a drained pool fills in steps and leaves starts to those who wait."""
OLDEST_S = 3600.0
"""How long a pod may wait to be taken."""
LABEL = "ostinato-pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """How many pods of a template are kept ready.

    >>> Pool(size=Size(500, 512, 64), ready=8).most_starting
    2
    """

    size: Size
    ready: int

    @property
    def most_starting(self) -> int:
        return max(1, math.ceil(self.ready * AT_ONCE))


class Pools:
    """What is ready and what is starting, for each template with a pool."""

    def __init__(self, pools: Mapping[str, Pool], prefix: str) -> None:
        self._pools = dict(pools)
        self._ready: dict[str, dict[str, None]] = {template: {} for template in pools}
        self._starting: dict[str, set[str]] = {template: set() for template in pools}
        self._names = (f"warm-{prefix}-{number}" for number in itertools.count())

    def take(self, template: str, size: Size) -> str | None:
        """A ready pod of at least this size, oldest first; it is no longer the pool's."""
        pool, ready = self._pools.get(template), self._ready.get(template)
        if pool is None or not ready or not size.within(pool.size):
            return None
        pod = next(iter(ready))
        del ready[pod]
        return pod

    def spare(self) -> str | None:
        """The pod that has been ready for longest, of any template."""
        ready = (pod for pods in self._ready.values() for pod in pods)
        return next(ready, None)

    def wanted(self) -> Iterator[Request]:
        """A pod for each that is missing and may be starting now."""
        for template, pool in self._pools.items():
            starting = len(self._starting[template])
            missing = pool.ready - len(self._ready[template]) - starting
            for _ in range(min(missing, pool.most_starting - starting)):
                yield Request(
                    id=next(self._names),
                    template=template,
                    size=pool.size,
                    deadline_s=OLDEST_S,
                    labels={LABEL: template},
                )

    def starts(self, pod: Request) -> None:
        self._starting.setdefault(pod.template, set()).add(pod.id)

    def becomes_ready(self, pod: Request) -> None:
        self._starting[pod.template].discard(pod.id)
        self._ready[pod.template][pod.id] = None

    def adopts(self, pod: Request) -> None:
        """A pod of the pool that was started by a scheduler before this one."""
        self._ready.setdefault(pod.template, {})[pod.id] = None

    def loses(self, pod: Request) -> None:
        self._starting.get(pod.template, set()).discard(pod.id)
        self._ready.get(pod.template, {}).pop(pod.id, None)
