"""A connection that gives a server up which hangs.

TCP notices a network that is split, and a machine that died. It does not notice a server that is suspended:
its kernel goes on to acknowledge what arrives. So whoever waits for an answer for SILENT_S asks the server
for a new connection. A server that gives none hangs, and the wait ends; one that does is busy, and the wait
goes on for as long as the server allows a statement to take.

Only `postgres.py` imports this, once the driver is known to be there.
"""

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any, Self

import psycopg

SILENT_S = 5.0
"""The time without an answer after which the server is asked whether it still works, seconds."""


class NoAnswerError(psycopg.OperationalError):
    """The server, or the network to it, hangs; the connection was closed."""


class WatchedConnection(psycopg.Connection[Any]):
    """A connection whose statements end, by an answer or by an error."""

    address: Mapping[str, Any] | None = None
    """The arguments of another connection to the server; without them a silent server is not asked."""
    longest_s: float | None = None
    """The time that the server allows a statement to take; None for any time."""
    incarnation: str | None = None
    """Another text after each crash of the server, which ends all connections."""

    @classmethod
    def to(cls, address: Mapping[str, Any]) -> Self:
        """Connect with these arguments of `psycopg.connect`. Raises psycopg.OperationalError."""
        connection = cls.connect(**address)
        connection.address = address
        return connection

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass the driver's steps on, each of which waits for the socket; the driver sends 0 every 0.1 s."""
        silent_since = asked_at = 0.0
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                now = time.monotonic() if not ready else 0.0
                if ready or not silent_since:
                    silent_since = asked_at = now
                elif now - asked_at > SILENT_S:
                    self._refuse_hung(now - silent_since)
                    asked_at = time.monotonic()
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value

    def _refuse_hung(self, silent_s: float) -> None:
        too_long = self.longest_s is not None and silent_s > self.longest_s + SILENT_S
        if too_long or not self._responds():
            self.pgconn.finish()
            raise NoAnswerError(f"the server has not responded for {silent_s:.0f} s, it or the network hangs")

    def _responds(self) -> bool:
        if self.address is None:
            return False
        try:
            with closing(WatchedConnection.connect(**self.address)) as other:
                other.execute("SELECT 1")
        except (psycopg.errors.ConnectionTimeout, NoAnswerError):
            return False
        except psycopg.OperationalError:
            return True  # it has no connection left, or ends: what it does to this one is seen here
        return True
