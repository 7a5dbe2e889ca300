"""An engine whose tokens come from a function: the teacher, and a fake model in tests. Torch-free."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from ostinato.engine.base import EngineError, Token
from ostinato.engine.http import Running, create_app, serve
from ostinato.engine.limits import check_sampling
from ostinato.types import TEACHER_VERSION, Abilities, Completion, Distribution, FinishReason, GenerateRequest

Policy = Callable[[GenerateRequest], Awaitable[tuple[int, ...]]]
"""A function that returns the ids of a completion, with the stop token."""


class ScriptedEngine:
    """Returns the ids of `policy`, cut to `max_tokens`; logprobs are 0.0 and versions TEACHER_VERSION.

    Its script reads a request as it likes, so `abilities` are only what it says of itself. A streamed answer
    comes at `tokens_a_second`, by default all at once.
    """

    def __init__(
        self, policy: Policy, abilities: Abilities | None = None, *, tokens_a_second: float = math.inf
    ) -> None:
        self._pace_s = 1 / tokens_a_second
        self._abilities = Abilities() if abilities is None else abilities
        self._policy = policy
        self._counts = {"requests": 0, "tokens": 0, "failed": 0, "swaps": 0}
        self._open = asyncio.Event()
        self._open.set()

    @property
    def version(self) -> int:
        return TEACHER_VERSION

    @property
    def abilities(self) -> Abilities:
        return self._abilities

    async def generate(self, request: GenerateRequest) -> Completion:
        check_sampling(request, self._abilities)
        self._counts["requests"] += 1
        await self._open.wait()
        try:
            ids = (await self._policy(request))[: request.max_tokens]
        except BaseException:
            self._counts["failed"] += 1
            raise
        self._counts["tokens"] += len(ids)
        stopped = bool(ids) and ids[-1] in request.stop_ids
        return Completion(
            ids=ids,
            logprobs=(0.0,) * len(ids),
            versions=(TEACHER_VERSION,) * len(ids),
            finish=FinishReason.STOP if stopped else FinishReason.LENGTH,
            distribution=self._distribution(request),
        )

    def _distribution(self, request: GenerateRequest) -> Distribution:
        return request.sampling.drawn_from if self._abilities.logprobs else Distribution.UNKNOWN

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        completion = await self.generate(request)
        began = time.monotonic()
        for number, id_ in enumerate(completion.ids):
            if self._pace_s:
                await asyncio.sleep(max(0.0, began + number * self._pace_s - time.monotonic()))
            yield Token(
                id=id_,
                logprob=0.0,
                version=TEACHER_VERSION,
                distribution=completion.distribution,
            )
        yield completion

    async def swap(self, version: int, tensors: Mapping[str, Any]) -> None:
        raise EngineError(f"a scripted engine has no weights: version {version} cannot be loaded")

    async def pause(self) -> None:
        self._open.clear()

    async def resume(self) -> None:
        self._open.set()

    def stats(self) -> dict[str, float]:
        return dict(self._counts)


async def serve_scripted(
    engine: ScriptedEngine, host: str = "127.0.0.1", port: int = 0, *, secret: str = ""
) -> Running:
    """Serve a scripted engine over the same HTTP as a model; port 0 takes a free one."""
    return await serve(create_app(engine, secret=secret), host, port)
