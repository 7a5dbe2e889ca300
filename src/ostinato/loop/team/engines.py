"""The supervisor's own engine servers: each version that people meet has some, beside those of the cycle.

::

    people ─► gateway ─► pool of an arm ─┬─► engine server of the cycle ─┬─► the team's engine, where adapters
                                         └─► ours ───────────────────────┘   lie beside each other

The cycle puts its servers into an arm, and they end with it. Ours join them, and stand alone once it has
ended, so that nobody waits until it is back. An engine that serves one version at a time is the cycle's.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ostinato.deploy.traffic import put_arm
from ostinato.engine.config import EngineServerConfig
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.resources import engine_settings
from ostinato.loop.services import Service, ServiceError, Services
from ostinato.loop.serving.serve_model import ServedEngine
from ostinato.loop.team.file import Team
from ostinato.store import Store
from ostinato.types import Arm

log = logging.getLogger(__name__)
UNTRAINED = 0
"""The version of the model as it came."""
LOOK_S, AGAIN_S = 0.5, 30.0
"""Seconds between two looks at the arms, and after a version that could not be served."""


class OwnEngines:
    """The engine servers of a team's supervisor, by the version that they serve."""

    def __init__(self, services: Services, store: Store, team: Team, checkpoint: Path) -> None:
        self._services, self._store, self._team, self._checkpoint = services, store, team, checkpoint
        self._of: dict[int, list[Service]] = {}
        self._seen = -1

    async def begin(self) -> list[ServedEngine]:
        """Serve what people meet, the model as it came where they meet nothing yet; return the servers.

        Raises ServiceError for an engine with another tokenizer than the model's.
        """
        if not any(arm.share > 0 for arm in self._store.arms()):
            put_arm(self._store, Arm(name=CHAMPION, version=UNTRAINED, share=1.0, engines=()))
        await self.look()
        self.stand_in()
        return [await ServedEngine.of(service) for some in self._of.values() for service in some]

    async def follow(self) -> None:
        """Serve each version that people come to meet, for ever, beside the cycle."""
        while not self._team.config.engine.in_place:
            await asyncio.sleep(LOOK_S)
            changed = await asyncio.to_thread(self._store.arms_revision) != self._seen
            if changed and not await self.look():
                await asyncio.sleep(AGAIN_S)

    def stand_in(self) -> None:
        """Serve people alone: the cycle has ended, and its servers with it."""
        self._point(alone=True)

    async def look(self) -> bool:
        """Start and stop servers as the arms say, and join the pools of their versions; return whether all
        that people meet is served."""
        seen = self._store.arms_revision()
        met = {arm.version for arm in self._store.arms() if arm.share > 0}
        if self._team.config.engine.in_place:
            met &= {UNTRAINED}
        began = await asyncio.gather(*(self._start(version) for version in met - self._of.keys()))
        for version in self._of.keys() - met:
            for service in self._of.pop(version):
                await self._services.stop(service)
        self._point(alone=False)
        if all(began):
            self._seen = seen
        return all(began)

    async def _start(self, version: int) -> bool:
        """Start the servers of a version; return whether they serve it. Raises ServiceError for the untrained
        one."""
        config, run, started = self._team.config, self._team.run, list[Service]()
        for number, url in enumerate(config.engine.url):
            settings = engine_settings(config, run, version, url)
            if version == UNTRAINED:  # before the first cycle there are neither weights here nor a chain
                settings = EngineServerConfig(
                    checkpoint=self._checkpoint, backend="remote", remote=url, version=version, max_len=1
                )
            name = f"serve-engine-{version}-{number}"
            try:
                started.append(await self._services.start(name, "ostinato.engine.server", settings))
            except ServiceError as error:
                if version == UNTRAINED:
                    raise
                log.warning("version %d is served by the cycle alone: %s", version, error)
                return False
        self._of[version] = started
        return True

    def _point(self, *, alone: bool) -> None:
        """Put our servers into the pools of the arms that people meet."""

        def pooled(arm: Arm) -> Arm:
            ours = tuple(each.url for each in self._of.get(arm.version, ()))
            if not ours or not arm.share:
                return arm
            return replace(arm, engines=ours if alone else tuple(dict.fromkeys((*arm.engines, *ours))))

        def pointed(arms: Sequence[Arm]) -> list[Arm]:
            return [pooled(arm) for arm in arms]

        if pointed(present := self._store.arms()) != present:
            self._store.change_arms(pointed)
