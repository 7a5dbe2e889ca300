"""The patience of a client with a server that is away for a moment, as one that restarts."""

import asyncio
import time

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0


class Patience:
    """The waits between attempts: twice as long each time, until the time is up."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._next = FIRST_WAIT_S

    async def lasts(self) -> bool:
        """Wait before the next attempt, and return True; return False at once when the time is up."""
        if time.monotonic() + self._next > self._deadline:
            return False
        await asyncio.sleep(self._next)
        self._next = min(2 * self._next, LONGEST_WAIT_S)
        return True
