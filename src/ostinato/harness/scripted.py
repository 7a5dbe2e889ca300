"""A shipped fake: a gateway client with prepared replies, for tests that need an agent but no model."""

from collections import deque
from collections.abc import Callable, Iterable

from ostinato.harness.client import Ask, GatewayUnavailable, Reply
from ostinato.types import Signal


class ScriptedClient:
    """A client that returns prepared replies in order and keeps requests and signals; unavailable when they
    run out.
    """

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._replies = deque(replies)
        self.asked: list[Ask] = []
        self.signals: list[Signal] = []

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply:
        self.asked.append(ask)
        if not self._replies:
            raise GatewayUnavailable("the script is over")
        reply = self._replies.popleft()
        if on_text is not None and reply.message["content"]:
            on_text(reply.message["content"])
        return reply

    async def signal(self, signal: Signal) -> None:
        self.signals.append(signal)
