"""Scripted developers who ask a gateway over HTTP, each with the key that `ostinato join` kept at their home.

They keep an answer in which a letter comes, and throw every other one away: a wish that the weights of a tiny
model can learn. What fails is tried again, as clients do.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp

from ostinato.types import SignalKind

T = TypeVar("T")
LIKED, PAUSE_S = "e", 0.5


@dataclass(slots=True, kw_only=True)
class Developer:
    """A person's machine, and each answer that came there: its turn, and when it was asked for and came."""

    name: str
    home: Path
    url: str
    rng: Random
    turns: list[tuple[str, int]] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    kept: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Answers by their version, and by whether they were liked."""
    failed: Counter[str] = field(default_factory=Counter)

    async def work(self) -> None:
        """Ask on and on, and again where no whole answer came."""
        key = (self.home / ".config/ostinato/gateway.toml").read_text().split('key = "')[1].split('"')[0]
        timeout = aiohttp.ClientTimeout(total=60)
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(self.url, headers=headers, timeout=timeout) as http:
            for number in range(1_000_000):
                session = f"{self.name}-{number}"
                said = await self._patiently(lambda session=session: self._ask(http, session))
                kind = SignalKind.EDIT_KEPT if LIKED in said else SignalKind.EDIT_REVERTED
                for fact, value in ((kind, 1.0), (SignalKind.ENDING, "finished")):
                    body = {"session_id": session, "kind": fact.value, "value": value}
                    await self._patiently(lambda body=body: self._tell(http, body))
                await asyncio.sleep(self.rng.random() * PAUSE_S)

    async def _patiently(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await attempt()
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                self.failed[type(error).__name__] += 1
                await asyncio.sleep(0.1)

    async def _ask(self, http: aiohttp.ClientSession, session: str) -> str:
        began = time.monotonic()
        messages = [{"role": "user", "content": f"what next, {self.name}?"}]
        body = {"model": "ostinato", "messages": messages, "max_tokens": 6, "temperature": 1.0}
        asked = http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": session})
        async with asked as response:
            response.raise_for_status()
            said = str((await response.json())["choices"][0]["message"]["content"] or "")
            of = response.headers
        self.turns.append((of["x-ostinato-session"], int(of["x-ostinato-turn"])))
        self.times.append((began, time.monotonic()))
        self.kept[int(of["x-ostinato-version"]), LIKED in said] += 1
        return said

    async def _tell(self, http: aiohttp.ClientSession, body: Mapping[str, Any]) -> None:
        async with http.post("/feedback", json={**body, "observed_at": time.time()}) as response:
            response.raise_for_status()

    def served_after(self, moment: float) -> float | None:
        """Return the seconds from a moment to the answer of a question that was asked later."""
        later = (done - moment for began, done in reversed(self.times) if began >= moment)
        return min(later, default=None)
