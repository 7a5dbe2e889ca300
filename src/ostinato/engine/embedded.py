"""An engine in this process: continuous batching over static slots, weights swapped between two decode steps.

    pending ──► slot (longest known prefix) ──► prefill ──► step, step, … ──► Completion
                                                             ▲
                                                    swap ────┘ between two steps

All of it runs on one event loop, one step at a time; between steps others get their turn.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError, PromptTooLongError, Token
from ostinato.engine.batch import Forward
from ostinato.engine.cache import SlotCache
from ostinato.engine.sampling import sample
from ostinato.engine.slots import SlotTable
from ostinato.model.decoder import Decoder, WeightsError
from ostinato.types import Completion, GenerateRequest

log = logging.getLogger(__name__)
PREFILL_TOKENS = 4096
"""Of new prompts computed between two decode steps: bounds how long the others wait."""


@dataclass(slots=True, eq=False)
class _Job:
    """One request on its way; `tokens` only if someone listens to them."""

    request: GenerateRequest
    done: asyncio.Future[Completion]
    tokens: asyncio.Queue[Token | None] | None = None
    slot: int | None = None


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    failed: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    steps: int = 0
    swaps: int = 0
    busy_s: float = 0.0


class EmbeddedEngine:
    """Serves a copy of `decoder`. Make and use it on one event loop."""

    def __init__(self, decoder: Decoder, *, version: int, slots: int = 96, max_len: int = 512) -> None:
        config = decoder.config
        if max_len > config.max_positions:
            raise EngineError(
                f"max_len {max_len} exceeds the model's {config.max_positions} positions: lower it"
            )
        self._decoder = Decoder(config)
        self._decoder.load_state_dict(decoder.state_dict())
        self._table = SlotTable(config, slots, max_len)
        self._cache = SlotCache(config, slots)
        self._forward = Forward(self._decoder, self._table, self._cache)
        self._version = version
        self._epoch = 0
        self._pending: deque[_Job] = deque()
        self._jobs: dict[int, _Job] = {}
        self._task: asyncio.Task[None] | None = None
        self._counts = _Counts()

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, request: GenerateRequest) -> Completion:
        job = self._enqueue(request, stream=False)
        try:
            return await job.done
        finally:
            self._drop(job)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        job = self._enqueue(request, stream=True)
        assert job.tokens is not None
        try:
            while (token := await job.tokens.get()) is not None:
                yield token
            yield await job.done
        finally:
            self._drop(job)

    async def swap(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        try:
            self._decoder.load_state_dict(tensors)
        except WeightsError as error:
            raise LoadRefusedError(f"version {version} was refused: {error}") from error
        self._version = version
        self._epoch += 1
        self._table.mix()
        self._counts.swaps += 1

    def stats(self) -> dict[str, float]:
        now = {"version": self._version, "running": len(self._jobs), "waiting": len(self._pending)}
        return asdict(self._counts) | now

    async def aclose(self) -> None:
        """Stop; requests in flight fail with EngineError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_all(EngineError("the engine was closed"))

    def _enqueue(self, request: GenerateRequest, *, stream: bool) -> _Job:
        self._check(request)
        queue: asyncio.Queue[Token | None] | None = asyncio.Queue() if stream else None
        job = _Job(request, asyncio.get_running_loop().create_future(), queue)
        self._counts.requests += 1
        self._pending.append(job)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return job

    def _check(self, request: GenerateRequest) -> None:
        vocabulary, count = self._decoder.config.vocab_size, len(request.prompt_ids)
        if not count or request.max_tokens < 1 or request.temperature < 0:
            raise InvalidRequestError(
                f"{request.request_id}: {count} prompt tokens, max_tokens {request.max_tokens}, temperature "
                f"{request.temperature}: need at least one, at least one, and not below 0"
            )
        strange = [i for i in (*request.prompt_ids, *request.stop_ids) if not 0 <= i < vocabulary]
        if strange:
            raise InvalidRequestError(f"{request.request_id}: ids {strange[:3]} are not below {vocabulary}")
        if count >= self._table.max_len:
            raise PromptTooLongError(
                f"{request.request_id}: a prompt of {count} tokens leaves no room in {self._table.max_len}: "
                "shorten it or start the engine with a larger --max-len"
            )

    async def _run(self) -> None:
        """Step while there is work. A failing step fails its requests, never the engine."""
        while self._pending or self._jobs:
            started = time.perf_counter()
            try:
                self._step()
            except Exception as error:
                log.exception("a decode step failed")
                self._fail_all(EngineError(f"a decode step failed: {error!r}"))
            self._counts.busy_s += time.perf_counter() - started
            await asyncio.sleep(0)

    @torch.inference_mode()
    def _step(self) -> None:
        running = np.flatnonzero(self._table.busy)
        admitted = self._admit()
        if len(admitted):
            self._advance(admitted, self._forward.prefill(admitted))
        if len(running):
            self._advance(running, self._forward.decode(running))
        self._counts.steps += 1

    def _admit(self) -> NDArray[np.int64]:
        """Give waiting requests free slots, first come first served, as far as the prefill budget goes."""
        admitted: list[int] = []
        budget = PREFILL_TOKENS
        free = len(self._table.busy) - len(self._jobs)
        while self._pending and free and budget > 0:
            job = self._pending.popleft()
            slot, fresh = self._seat(job)
            admitted.append(slot)
            free, budget = free - 1, budget - fresh
        return np.array(admitted, np.int64)

    def _seat(self, job: _Job) -> tuple[int, int]:
        """The slot of a request, and how many of its tokens must be computed."""
        prompt = np.array(job.request.prompt_ids, np.int32)
        reuse = self._table.reusable(prompt, self._epoch)
        slot = self._table.place(reuse)
        if slot != reuse.source:
            self._cache.copy_prefix(reuse.source, slot, reuse.length)
        self._table.admit(slot, job.request, reuse, self._epoch)
        job.slot, self._jobs[slot] = slot, job
        self._counts.prompt_tokens += len(prompt)
        self._counts.reused_tokens += reuse.length
        return slot, len(prompt) - reuse.length

    def _advance(self, slots: NDArray[np.int64], logits: Tensor) -> None:
        """Sample one token for each of these slots."""
        table = self._table
        drawn, scored = sample(
            logits,
            torch.from_numpy(table.temperature[slots]),
            torch.from_numpy(table.uniform[slots, table.length[slots]]),
        )
        tokens, logprobs = drawn.numpy(), scored.numpy()
        finished = table.append(slots, tokens, logprobs, self._version)
        self._counts.tokens += len(slots)
        for slot, token, logprob in zip(slots.tolist(), tokens.tolist(), logprobs.tolist(), strict=True):
            queue = self._jobs[slot].tokens
            if queue is not None:
                queue.put_nowait(Token(id=token, logprob=logprob, version=self._version))
        for slot in finished.tolist():
            self._finish(slot)

    def _finish(self, slot: int) -> None:
        job = self._release(slot)
        if not job.done.done():
            job.done.set_result(self._table.completion(slot))
        if job.tokens is not None:
            job.tokens.put_nowait(None)

    def _release(self, slot: int) -> _Job:
        self._table.free(slot)
        job = self._jobs.pop(slot)
        job.slot = None
        return job

    def _drop(self, job: _Job) -> None:
        """Free what a request still holds: its caller has its answer or went away."""
        if job.slot is not None:
            self._release(job.slot)
        elif job in self._pending:
            self._pending.remove(job)

    def _fail_all(self, error: EngineError) -> None:
        jobs = [self._release(slot) for slot in list(self._jobs)] + list(self._pending)
        self._pending.clear()
        for job in jobs:
            self._counts.failed += 1
            if not job.done.done():
                job.done.set_exception(error)
            if job.tokens is not None:
                job.tokens.put_nowait(None)
