"""New versions from the object store into an engine that is serving."""

import asyncio
import logging

from ostinato.engine.base import Engine, EngineError, LoadRefusedError
from ostinato.store import ObjectsError
from ostinato.sync import Subscriber, SyncError

log = logging.getLogger(__name__)
POLL_S = 0.1
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
        while True:  # noqa: ASYNC110  (the object store cannot call us)
            await asyncio.sleep(POLL_S if await self._followed() else RETRY_S)

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
