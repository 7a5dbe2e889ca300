"""Warm pools: sandboxes that are started before a client asks, for templates that are often requested."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ostinato.fleet.scheduler.types import PlacementRequest, Size

AT_ONCE = 0.25
"""Share of a pool that may be starting: a drained pool fills in steps and leaves starts to clients."""
OLDEST_S = 3600.0
"""The longest wait of a sandbox in its pool."""
LABEL = "ostinato-pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPool:
    """The size of a template's pool, and of the sandboxes in it.

    >>> WarmPool(size=Size(500, 512, 64), ready=8).most_starting
    2
    """

    size: Size
    ready: int

    @property
    def most_starting(self) -> int:
        return max(1, math.ceil(self.ready * AT_ONCE))


class WarmPools:
    """The sandboxes that are ready or starting, for each template with a pool."""

    def __init__(self, pools: Mapping[str, WarmPool], prefix: str) -> None:
        self._pools = dict(pools)
        self._ready: dict[str, dict[str, int]] = {template: {} for template in pools}
        self._starting: dict[str, set[str]] = {template: set() for template in pools}
        self._order = itertools.count()
        self._names = (f"warm-{prefix}-{number}" for number in itertools.count())

    def take(self, template: str, size: Size) -> str | None:
        """Take the oldest ready sandbox of at least this size out of the pool."""
        pool, ready = self._pools.get(template), self._ready.get(template)
        if pool is None or not ready or not size.within(pool.size):
            return None
        sandbox = next(iter(ready))
        del ready[sandbox]
        return sandbox

    def spare(self) -> str | None:
        """Return the sandbox that has been ready for longest, of any template."""
        oldest = (next(iter(ready.items())) for ready in self._ready.values() if ready)
        return min(oldest, key=lambda item: item[1], default=(None, 0))[0]

    def missing(self) -> Iterator[PlacementRequest]:
        """Yield a request for each sandbox that is missing and may be started now."""
        for template, pool in self._pools.items():
            starting = len(self._starting[template])
            missing = pool.ready - len(self._ready[template]) - starting
            for _ in range(min(missing, pool.most_starting - starting)):
                yield PlacementRequest(
                    id=next(self._names),
                    template=template,
                    size=pool.size,
                    deadline_s=OLDEST_S,
                    labels={LABEL: template},
                )

    def record_start(self, request: PlacementRequest) -> None:
        self._starting.setdefault(request.template, set()).add(request.id)

    def record_ready(self, request: PlacementRequest) -> None:
        self._starting[request.template].discard(request.id)
        self._ready[request.template][request.id] = next(self._order)

    def adopt(self, request: PlacementRequest) -> None:
        """Add a sandbox that an earlier scheduler started for the pool."""
        self._ready.setdefault(request.template, {})[request.id] = next(self._order)

    def remove(self, request: PlacementRequest) -> None:
        self._starting.get(request.template, set()).discard(request.id)
        self._ready.get(request.template, {}).pop(request.id, None)
