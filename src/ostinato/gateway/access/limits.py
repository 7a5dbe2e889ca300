"""The limits of a key: requests in a minute and at the same time, counted in this process only."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from ostinato.gateway.errors import ApiError
from ostinato.types import ApiKey

MOST_COUNTED = 10_000
MINUTE_S = 60.0


@dataclass(slots=True)
class _Use:
    """The use of one key: requests it may still send, when that was counted, and requests under way."""

    left: float
    counted_at: float
    under_way: int = 0


class KeyLimits:
    """A token bucket and a counter for each key with a limit; the 10,000 used most recently are
    remembered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uses: OrderedDict[str, _Use] = OrderedDict()

    @contextmanager
    def admitted(self, key: ApiKey) -> Iterator["AdmittedCall"]:
        """Count one request. Raise ApiError 429 with Retry-After when the key has none left.

        The request is over when the block ends. A block that passes its reply to `AdmittedCall.until_sent`
        defers that until the reply is sent.
        """
        if key.requests_per_minute is None and key.concurrent is None:
            yield AdmittedCall(None)
            return
        admission = AdmittedCall(self._enter(key))
        try:
            yield admission
        finally:
            admission.leave_block()

    def _enter(self, key: ApiKey) -> _Use:
        use = self._use(key)
        if key.concurrent is not None and use.under_way >= key.concurrent:
            raise _too_many(f"this API key may have {key.concurrent} requests under way", 1)
        if key.requests_per_minute is not None:
            self._spend(use, key.requests_per_minute)
        use.under_way += 1
        return use

    def _spend(self, use: _Use, per_minute: int) -> None:
        now, rate = self._clock(), per_minute / MINUTE_S
        use.left = min(float(per_minute), use.left + (now - use.counted_at) * rate)
        use.counted_at = now
        if use.left < 1:
            wait = math.ceil((1 - use.left) / rate)
            raise _too_many(f"this API key may make {per_minute} requests a minute", wait)
        use.left -= 1

    def _use(self, key: ApiKey) -> _Use:
        use = self._uses.get(key.hash)
        if use is None:
            use = self._uses[key.hash] = _Use(
                left=float(key.requests_per_minute or 0), counted_at=self._clock()
            )
            self._forget_idle()
        self._uses.move_to_end(key.hash)
        return use

    def _forget_idle(self) -> None:
        while len(self._uses) > MOST_COUNTED:
            oldest = next(iter(self._uses))
            if self._uses[oldest].under_way:
                return
            del self._uses[oldest]


class AdmittedCall:
    """One counted request."""

    def __init__(self, use: _Use | None) -> None:
        self._use = use
        self._handed_on = False

    def until_sent(self, reply: ASGIApp) -> ASGIApp:
        """Return `reply`, wrapped so that the request is over once it is sent."""
        if self._use is None:
            return reply
        self._handed_on = True

        async def sent(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await reply(scope, receive, send)
            finally:
                self._leave()

        return sent

    def leave_block(self) -> None:
        if not self._handed_on:
            self._leave()

    def _leave(self) -> None:
        if self._use is not None:
            self._use.under_way -= 1


def _too_many(message: str, wait_s: int) -> ApiError:
    return ApiError(
        429,
        f"{message}: try again in {wait_s} s",
        code="rate_limit_exceeded",
        headers={"Retry-After": str(wait_s)},
    )
