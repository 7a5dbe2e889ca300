"""Sandboxes that a server may still run without a client, because it did not respond."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ostinato.fleet.client.client import GoneError, RefusalError, SandboxClient


class UnconfirmedSandboxes:
    """The ids of the sandboxes that must still be ended."""

    def __init__(self, client: SandboxClient) -> None:
        self._client = client
        self._names: set[str] = set()

    @contextmanager
    def tracking(self, *names: str) -> Iterator[None]:
        """Remember these sandboxes if the call in the body, which starts or ends them, gets no response.

        It may have had its effect then or not. A server that has no room, or no such sandbox, has responded.
        """
        try:
            yield
        except (GoneError, RefusalError):
            raise
        except BaseException:
            self._names.update(names)
            raise

    async def end(self, name: str) -> None:
        """End a sandbox that may be gone already; without a response remember it and raise SandboxError."""
        with self.tracking(name), suppress(GoneError):
            await self._client.call("DELETE", f"/sandboxes/{name}")
        self._names.discard(name)

    async def end_all(self) -> list[BaseException]:
        """End all remembered sandboxes; return the errors of those that could not be ended now."""
        attempts = (self.end(name) for name in tuple(self._names))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        return [error for error in results if error is not None]
