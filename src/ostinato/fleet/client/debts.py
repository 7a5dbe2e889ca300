"""Sandboxes that a server may still have and nobody holds: the connection broke before it answered."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ostinato.fleet.client.client import Client, GoneError, RefusalError


class Debts:
    """What must be ended yet, by name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: set[str] = set()

    @contextmanager
    def owing(self, *names: str) -> Iterator[None]:
        """Around a call that starts or ends sandboxes of these names: without an answer, it may have or not.

        A server that has no room, or no such sandbox, has answered.
        """
        try:
            yield
        except (GoneError, RefusalError):
            raise
        except BaseException:
            self._names.update(names)
            raise

    async def end(self, name: str) -> None:
        """Ends one that may be gone already. Raises SandboxError, and owes it, when there is no answer."""
        with self.owing(name), suppress(GoneError):
            await self._client.call("DELETE", f"/sandboxes/{name}")
        self._names.discard(name)

    async def settle(self) -> list[BaseException]:
        """Ends all that can be ended now; returns why others could not."""
        tried = (self.end(name) for name in tuple(self._names))
        ends = await asyncio.gather(*tried, return_exceptions=True)
        return [error for error in ends if error is not None]
