"""The engine of the champion, which outlives cycles and trials."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ostinato.deploy.traffic import split
from ostinato.loop.base import Resources, Site
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.results import Counters
from ostinato.store import Store
from ostinato.types import Arm


class ServedChampion:
    """Serves one version to the champion's users, and another one when that is asked for."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._engines = AsyncExitStack()
        self._site: Site | None = None
        self._counted: dict[str, int | float] = {}
        self.version: int | None = None

    async def serve(self, version: int) -> None:
        """Serve this version; the engine of the one before ends first, so nobody may be sent there now."""
        if version == self.version:
            return
        await self._count()
        await self._engines.aclose()
        arm = Arm(name=CHAMPION, version=version, share=0.0, engines=())
        self._site = await self._engines.enter_async_context(self._resources.serving(arm))
        self.version = version

    async def counters(self) -> Counters:
        """Return what the engines have counted until now, all together."""
        await self._count()
        return self._counted

    async def _count(self) -> None:
        if self._site is not None:
            for name, count in (await self._resources.counters(self._site)).items():
                self._counted[name] = self._counted.get(name, 0) + count
            self._site = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engines.__aexit__(kind, error, trace)


def deploy(store: Store, version: int) -> None:
    """Send everybody to `version`, even if an interrupted run left other shares."""
    engines = next((arm.engines for arm in store.arms() if arm.name == CHAMPION), ())
    split(store, [Arm(name=CHAMPION, version=version, share=1.0, engines=engines)])
