"""The supervisor's own engine servers: each version that people meet has some, beside those of the cycle.

::

    people ─► gateway ─► pool of an arm ─┬─► engine server of the cycle ─┬─► the team's engine, where adapters
                                         └─► ours ───────────────────────┘   lie beside each other

The cycle puts its servers into an arm, and they end with it. Ours join them, and stand alone once it has
ended, so that nobody waits until it is back. An engine that serves one version at a time is the cycle's.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ostinato.loop.resources import engine_settings
from ostinato.loop.services import Service, ServiceError, Services
from ostinato.loop.serving.serve_model import ServedEngine, ServeModelConfig, point_arms, start_engines
from ostinato.loop.team.file import Team
from ostinato.store import Store
from ostinato.types import Arm

log = logging.getLogger(__name__)
LOOK_S, AGAIN_S = 0.5, 30.0
"""Seconds between two looks at the arms, and after a version that could not be served."""


class OwnEngines:
    """The engine servers of a team's supervisor."""

    def __init__(self, services: Services, store: Store, team: Team, checkpoint: Path) -> None:
        self._services, self._store, self._team, self._checkpoint = services, store, team, checkpoint
        self._first: tuple[ServedEngine, ...] = ()
        self._trained: dict[int, list[Service]] = {}
        self._seen = -1

    async def begin(self) -> Sequence[ServedEngine]:
        """Serve what people meet; return the servers of the model as it came.

        Raises ServiceError for an engine with another tokenizer than the model's.
        """
        config = self._team.config
        there = ServeModelConfig(model=str(config.model.path), engines=config.engine.url)
        self._first = tuple(await start_engines(self._services, there, self._checkpoint))
        if not any(arm.share > 0 for arm in self._store.arms()):
            point_arms(self._store, self._first)
        await self._look()
        self.stand_in()
        return self._first

    async def follow(self) -> None:
        """Serve each version that people come to meet, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self._store.arms_revision) != self._seen:
                await self._look()

    def stand_in(self) -> None:
        """Serve people alone: the cycle has ended, and its servers with it."""
        self._point(alone=True)

    async def _look(self) -> None:
        """Start and stop servers as the arms say, and join the pools of their versions."""
        config, run = self._team.config, self._team.run
        if config.engine.in_place:
            return
        seen = self._store.arms_revision()
        met = {arm.version for arm in self._store.arms() if arm.share > 0}
        for version in sorted(met - self._urls().keys()):
            try:
                self._trained[version] = [
                    await self._services.start(
                        f"serve-engine-{version}-{number}",
                        "ostinato.engine.server",
                        engine_settings(config, run, version, url),
                    )
                    for number, url in enumerate(config.engine.url)
                ]
            except ServiceError as error:
                log.warning("version %d is served by the cycle alone: %s", version, error)
                await asyncio.sleep(AGAIN_S)
                return
        for version in self._trained.keys() - met:
            for service in self._trained.pop(version):
                await self._services.stop(service)
        self._point(alone=False)
        self._seen = seen

    def _urls(self) -> Mapping[int, tuple[str, ...]]:
        """Return the addresses of our servers by their version."""
        trained = {version: tuple(each.url for each in some) for version, some in self._trained.items()}
        return {self._first[0].version: tuple(each.url for each in self._first), **trained}

    def _point(self, *, alone: bool) -> None:
        """Put our servers into the pools of the arms that people meet."""
        urls = self._urls()

        def pointed(arms: Sequence[Arm]) -> list[Arm]:
            return [
                replace(arm, engines=ours if alone else tuple(dict.fromkeys((*arm.engines, *ours))))
                if arm.share > 0 and (ours := urls.get(arm.version, ()))
                else arm
                for arm in arms
            ]

        present = self._store.arms()
        if pointed(present) != present:
            self._store.change_arms(pointed)
