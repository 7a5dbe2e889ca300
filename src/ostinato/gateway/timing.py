"""The time that the gateway itself adds to a request: on every reply, and in the metrics."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostinato.types import new_id

STATE = "ostinato.timing"
_BORN, _COUNT = new_id()[:16], itertools.count()


def _next_id() -> str:
    """Return a unique id without asking the system for random bytes at each request."""
    return f"{_BORN}{next(_COUNT):016x}"


@dataclass(slots=True)
class Timing:
    """The clock of one request; `engine_s` is the time spent waiting for the engine."""

    request_id: str = field(default_factory=_next_id)
    started: float = field(default_factory=time.perf_counter)
    engine_s: float = 0.0
    _waiting_since: float = 0.0

    def wait_for_engine(self) -> None:
        """Start counting the time as the engine's."""
        self._waiting_since = time.perf_counter()

    def engine_replied(self) -> None:
        """Stop counting the time as the engine's. Without effect when it is not being counted."""
        if self._waiting_since:
            self.engine_s += time.perf_counter() - self._waiting_since
            self._waiting_since = 0.0

    def overhead_s(self) -> float:
        return time.perf_counter() - self.started - self.engine_s


def timing_of(scope: Scope) -> Timing:
    timing: Timing = scope[STATE]
    return timing


class TimingMiddleware:
    """ASGI middleware that adds a clock to each request, `x-request-id` and `x-ostinato-overhead-ms` to
    each reply.

    The overhead is the time until the reply began, without the wait for the engine. In a stream the engine's
    part ends with its first token.
    """

    def __init__(self, app: ASGIApp, replied: Callable[[Scope, int, float], None]) -> None:
        self._app = app
        self._replied = replied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        timing = scope[STATE] = Timing()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                overhead = timing.overhead_s()
                id_ = timing.request_id.encode()
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", id_),
                    (b"request-id", id_),
                    (b"x-ostinato-overhead-ms", b"%.3f" % (1e3 * overhead)),
                ]
                self._replied(scope, message["status"], overhead)
            await send(message)

        await self._app(scope, receive, timed)
