"""The loading of new versions from the object store into an engine that is serving."""

import asyncio
import logging
import time
from contextlib import closing

from ostinato.engine.base import Engine, EngineError, LoadRefusedError
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import without_draft
from ostinato.store import ObjectsError
from ostinato.sync import Subscriber, SyncError

log = logging.getLogger(__name__)
POLL_S = 0.1
"""The time between two polls of a store that cannot report new versions; a folder reports them at once."""
AHEAD_S = 0.5
"""The time between two looks for parts of the next version: each lists them, and buckets charge for that."""
RETRY_S = 1.0
"""The time between two attempts at a version that was refused."""


class SyncLoader:
    """Fetches in a thread, so that sampling goes on, and swaps when everything is verified.

    `shape` is that of a model whose engine takes no MTP layer: those of the versions are left out.
    """

    def __init__(self, engine: Engine, subscriber: Subscriber, *, shape: ModelConfig | None = None) -> None:
        self._engine = engine
        self._subscriber = subscriber
        self._shape = shape
        self._one_at_a_time = asyncio.Lock()
        self._loaded = -1
        """The version that came from the store; the weights the engine started with may have any number."""
        self._look_ahead_at = 0.0
        self.refused = 0

    async def load(self, version: int) -> None:
        """Swap to `version`. Raises LoadRefusedError, with the old version still served."""
        async with self._one_at_a_time:
            if version == self._loaded:
                return
            try:
                fetched = await asyncio.to_thread(self._subscriber.fetch, version)
                taken = fetched if self._shape is None else without_draft(self._shape, fetched)
                await self._engine.swap(version, taken)
                self._loaded = version
            except (SyncError, ObjectsError, EngineError) as error:
                self.refused += 1
                raise LoadRefusedError(f"version {version} was refused: {error}") from error

    async def catch_up(self) -> None:
        """Load the newest version if there is a new one. Raises LoadRefusedError, SyncError, ObjectsError."""
        head = await asyncio.to_thread(self._subscriber.head)
        if head is not None and head > self._loaded:
            await self.load(head)

    async def follow(self) -> None:
        """Load every new head until cancelled; a refused version is tried again, never skipped."""
        with closing(self._subscriber.watch()) as watch:
            while True:
                caught_up = await self._try_to_catch_up()
                if caught_up:
                    await self._look_ahead()
                await watch.wait(POLL_S if caught_up else RETRY_S)

    def stats(self) -> dict[str, float]:
        return {"refused": self.refused, "mismatches": self._subscriber.mismatches}

    async def _try_to_catch_up(self) -> bool:
        """Return False if there is a newer version that could not be loaded."""
        try:
            await self.catch_up()
        except (LoadRefusedError, SyncError, ObjectsError) as error:
            log.warning("serving version %d, cannot follow: %s", self._engine.version, error)
            return False
        return True

    async def _look_ahead(self) -> None:
        """Fetch the parts of the next version that exist so far, without a delay once its parts appear."""
        if time.monotonic() < self._look_ahead_at or self._one_at_a_time.locked():
            return
        self._look_ahead_at = time.monotonic() + AHEAD_S
        async with self._one_at_a_time:
            try:
                if await asyncio.to_thread(self._subscriber.prefetch):
                    self._look_ahead_at = 0.0
            except (SyncError, ObjectsError) as error:
                log.info("nothing was fetched ahead: %s", error)
