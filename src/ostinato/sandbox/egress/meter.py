"""The meter of a sandbox: it counts the bytes of all connections together and slows them down."""

import asyncio
from collections.abc import Callable

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress.policy import PolicyRefusal

PIECE = 64 * 1024
"""Bytes that are read at once, at most."""


class Meter:
    """A count of bytes sent and received; `pass_on` waits as long as the rate demands.

    The rate is a bucket that holds the bytes of one second. A connection that takes more than the bucket
    holds waits until the rest has run in, and later ones wait behind it.
    """

    def __init__(self, policy: Egress, clock: Callable[[], float] | None = None) -> None:
        self._policy = policy
        self._clock = clock or asyncio.get_running_loop().time
        self._free_at = self._clock()
        self.sent = 0
        self.received = 0

    def check(self) -> None:
        """Raise PolicyRefusal when a cap is reached."""
        for what, used, most in (
            ("sent", self.sent, self._policy.sent_bytes),
            ("received", self.received, self._policy.received_bytes),
        ):
            if most is not None and used >= most:
                raise PolicyRefusal(f"{used} bytes {what}, the policy allows {most}")

    async def pass_on(self, size: int, *, up: bool) -> None:
        """Count `size` bytes that are about to be passed on. Raises PolicyRefusal beyond a cap."""
        if up:
            self.sent += size
        else:
            self.received += size
        most = self._policy.sent_bytes if up else self._policy.received_bytes
        if most is not None and (self.sent if up else self.received) > most:
            raise PolicyRefusal(f"more than {most} bytes {'sent' if up else 'received'}: the policy's cap")
        if self._policy.bytes_per_s is not None:
            await asyncio.sleep(self._wait(size, self._policy.bytes_per_s))

    def _wait(self, size: int, rate: int) -> float:
        now = self._clock()
        self._free_at = max(self._free_at, now - 1.0) + size / rate
        return max(0.0, self._free_at - now)
