"""Counts what passes and slows it down: one meter for all connections of a sandbox."""

import asyncio
from collections.abc import Callable

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress.policy import Refused

PIECE = 64 * 1024
"""The most that is read at once, bytes."""


class Meter:
    """Bytes sent and received, of all connections together; `pass_on` waits as long as the rate demands.

    The rate is a bucket that holds one second's worth; whoever takes more than is in it waits until the
    rest has run in, and those who come later wait behind.
    """

    def __init__(self, policy: Egress, clock: Callable[[], float] | None = None) -> None:
        self._policy = policy
        self._clock = clock or asyncio.get_running_loop().time
        self._free_at = self._clock()
        self.sent = 0
        self.received = 0

    def check(self) -> None:
        """Raises Refused when a cap is reached."""
        for what, used, most in (
            ("sent", self.sent, self._policy.sent_bytes),
            ("received", self.received, self._policy.received_bytes),
        ):
            if most is not None and used >= most:
                raise Refused(f"{used} bytes {what}, the policy allows {most}")

    async def pass_on(self, size: int, *, up: bool) -> None:
        """Note `size` bytes about to be passed on; raises Refused when a cap is passed."""
        if up:
            self.sent += size
        else:
            self.received += size
        most = self._policy.sent_bytes if up else self._policy.received_bytes
        if most is not None and (self.sent if up else self.received) > most:
            raise Refused(f"more than {most} bytes {'sent' if up else 'received'}: the policy's cap")
        if self._policy.bytes_per_s is not None:
            await asyncio.sleep(self._wait(size, self._policy.bytes_per_s))

    def _wait(self, size: int, rate: int) -> float:
        now = self._clock()
        self._free_at = max(self._free_at, now - 1.0) + size / rate
        return max(0.0, self._free_at - now)
