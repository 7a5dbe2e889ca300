"""New versions from the object store into an engine that is serving."""

import asyncio
import logging
import time
from contextlib import closing

from ostinato.engine.base import Engine, EngineError, LoadRefusedError
from ostinato.store import ObjectsError
from ostinato.sync import Subscriber, SyncError

log = logging.getLogger(__name__)
POLL_S = 0.1
"""Between two looks at a store that cannot say when a version is there; a folder says so at once."""
AHEAD_S = 0.5
"""Between two looks for parts of a version that is not there yet: each lists them, for which buckets charge.
"""
RETRY_S = 1.0
"""Between two tries of a version that was refused."""


class SyncLoader:
    """Fetches in a thread, so that sampling goes on, and swaps when everything is verified."""

    def __init__(self, engine: Engine, subscriber: Subscriber) -> None:
        self._engine = engine
        self._subscriber = subscriber
        self._one_at_a_time = asyncio.Lock()
        self._loaded = -1
        """The version that came from the store; what the engine started with may carry any number."""
        self._look_ahead_at = 0.0
        self.refused = 0

    async def load(self, version: int) -> None:
        """Swap to `version`; raises LoadRefusedError with the old one still served."""
        async with self._one_at_a_time:
            if version == self._loaded:
                return
            try:
                tensors = await asyncio.to_thread(self._subscriber.fetch, version)
                await self._engine.swap(version, tensors)
                self._loaded = version
            except (SyncError, ObjectsError, EngineError) as error:
                self.refused += 1
                raise LoadRefusedError(f"version {version} was refused: {error}") from error

    async def catch_up(self) -> None:
        """Load the newest version if there is one; raises LoadRefusedError, SyncError, ObjectsError."""
        head = await asyncio.to_thread(self._subscriber.head)
        if head is not None and head > self._loaded:
            await self.load(head)

    async def follow(self) -> None:
        """Load every new head until cancelled; one that is refused is tried again, never skipped."""
        with closing(self._subscriber.watch()) as watch:
            while True:
                followed = await self._followed()
                if followed:
                    await self._look_ahead()
                await watch.wait(POLL_S if followed else RETRY_S)

    def stats(self) -> dict[str, float]:
        return {"refused": self.refused, "mismatches": self._subscriber.mismatches}

    async def _followed(self) -> bool:
        """False if there is a newer version that could not be taken."""
        try:
            await self.catch_up()
        except (LoadRefusedError, SyncError, ObjectsError) as error:
            log.warning("serving version %d, cannot follow: %s", self._engine.version, error)
            return False
        return True

    async def _look_ahead(self) -> None:
        """Fetch what is there of the next version; at each look once it has begun to come."""
        if time.monotonic() < self._look_ahead_at or self._one_at_a_time.locked():
            return
        self._look_ahead_at = time.monotonic() + AHEAD_S
        async with self._one_at_a_time:
            try:
                if await asyncio.to_thread(self._subscriber.prefetch):
                    self._look_ahead_at = 0.0
            except (SyncError, ObjectsError) as error:
                log.info("nothing was fetched ahead: %s", error)
