"""An engine in this process: continuous batching over static slots, weights swapped between two decode steps.

    pending ──► slot (longest known prefix) ──► prefill ──► step, step, … ──► Completion
                                                             ▲
                                                    swap ────┘ between two steps

All of it runs on one event loop, one step at a time; other tasks run between steps.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor

from ostinato.engine.base import PAUSED, EngineError, LoadRefusedError, Token
from ostinato.engine.embedded.forward import Forward, Slots, TorchForward
from ostinato.engine.embedded.kernel import KernelError
from ostinato.engine.embedded.native import NativeForward
from ostinato.engine.embedded.slots import SETTINGS, SlotTable
from ostinato.engine.limits import RequestLimits
from ostinato.model.decoder import Decoder, WeightsError
from ostinato.model.mtp import Mtp
from ostinato.types import Abilities, Completion, GenerateRequest

log = logging.getLogger(__name__)
PREFILL_TOKENS = 4096
"""The most tokens of new prompts that are computed between two decode steps."""
PREFILL_WORK = 30_000_000_000
"""The most multiplications by weights that go into new prompts between two decode steps, one to two
seconds of a core. It bounds how long the others wait, and questions about the engine's health with them."""
LONG_STEP_S, BREATH = 0.05, 0.02
"""After a step that took longer, the event loop has this share of its time for all else. A request over HTTP
takes some ten rounds of the loop: with one round a step, a health question would wait for ten steps."""
LEAST_PREFILL = 32
"""Tokens of new prompts between two decode steps, however large the model is."""


@dataclass(slots=True, eq=False)
class _Job:
    """One request on its way; `tokens` is the queue of a streaming caller, who was sent `sent` of them."""

    request: GenerateRequest
    done: asyncio.Future[Completion]
    tokens: asyncio.Queue[Token | None] | None = None
    slot: int | None = None
    sent: int = 0


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
    """Serves a copy of `decoder`. Create and use it on one event loop.

    `model` and `tokenizer` are what its abilities say. At most `drafts` tokens of a sequence are drafted in
    one step, by the layer `draft` too if there is one (docs/speculative.md). `forward` creates the forward
    pass; by default it is the fastest that this machine has.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        version: int,
        slots: int = 96,
        max_len: int = 512,
        model: str = "",
        tokenizer: str = "",
        drafts: int = 0,
        draft: Mtp | None = None,
        forward: Callable[[Decoder, SlotTable, Mtp | None], Forward] | None = None,
    ) -> None:
        config = decoder.config
        if max_len > config.max_positions:
            raise EngineError(
                f"a context of {max_len} tokens (--context of `ostinato serve`, max_len elsewhere) exceeds "
                f"the model's {config.max_positions} positions: give at most {config.max_positions}"
            )
        self._table = SlotTable(config, slots, max_len, drafts)
        self._forward = (forward or fastest)(decoder, self._table, draft)
        work = PREFILL_WORK // sum(weight.numel() for weight in decoder.parameters())
        self._prefill_tokens = max(LEAST_PREFILL, min(PREFILL_TOKENS, work))
        self._swapping = asyncio.Lock()
        self._abilities = Abilities(
            model=model,
            tokenizer=tokenizer,
            context=max_len,
            sampling=frozenset(SETTINGS.names or ()) - {"temperature"},
            routes=config.moe_layers > 0,
        )
        self._limits = RequestLimits(vocabulary=config.vocab_size, max_len=max_len, abilities=self._abilities)
        self._version = version
        self._epoch = 0
        self._open = asyncio.Event()
        self._open.set()
        self._pending: deque[_Job] = deque()
        self._jobs: dict[int, _Job] = {}
        self._streamed: set[int] = set()
        """Slots whose tokens are streamed."""
        self._task: asyncio.Task[None] | None = None
        self._counts = _Counts()

    @property
    def version(self) -> int:
        return self._version

    @property
    def abilities(self) -> Abilities:
        return self._abilities

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

    async def pause(self) -> None:
        self._open.clear()

    async def resume(self) -> None:
        self._open.set()

    async def swap(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        async with self._swapping:
            try:
                weights = await asyncio.to_thread(self._forward.prepare, tensors)
            except WeightsError as error:
                raise LoadRefusedError(f"version {version} was refused: {error}") from error
            if not self._open.is_set():
                raise LoadRefusedError(f"version {version} was refused: {PAUSED}")
            self._forward.use(weights)
            self._version = version
            self._epoch += 1  # no other request may continue the keys that were computed before
            self._table.mix()
            self._counts.swaps += 1

    def stats(self) -> dict[str, float]:
        drafted, accepted = self._forward.drafted()
        tokens = self._counts.tokens + sum(map(self._sampled, self._jobs))
        now = {"version": self._version, "running": len(self._jobs), "waiting": len(self._pending)}
        return asdict(self._counts) | now | {"tokens": tokens, "drafted": drafted, "accepted": accepted}

    async def aclose(self) -> None:
        """Stop; requests in flight fail with EngineError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_all(EngineError("the engine was closed"))

    def _enqueue(self, request: GenerateRequest, *, stream: bool) -> _Job:
        self._limits.check(request)
        queue: asyncio.Queue[Token | None] | None = asyncio.Queue() if stream else None
        job = _Job(request, asyncio.get_running_loop().create_future(), queue)
        self._counts.requests += 1
        self._pending.append(job)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return job

    async def _run(self) -> None:
        """Run steps while there is work. A failing step fails its requests, never the engine."""
        while self._pending or self._jobs:
            await self._open.wait()
            started = time.perf_counter()
            try:
                self._step()
            except Exception as error:
                log.exception("a decode step failed")
                self._fail_all(EngineError(f"a decode step failed: {error!r}"))
            took = time.perf_counter() - started
            self._counts.busy_s += took
            await asyncio.sleep(took * BREATH if took > LONG_STEP_S else 0)

    def _step(self) -> None:
        """Sample one more token for every request that has a slot and whose prompt is computed by then."""
        self._admit()
        slots = self._fill()
        self._counts.steps += 1
        if not len(slots):
            return
        finished = self._forward.advance(slots, self._version)
        for slot in self._streamed.intersection(slots.tolist()):
            self._send_tokens(slot)
        for slot in finished.tolist():
            self._finish(slot)

    def _fill(self) -> Slots:
        """Compute a part of the next prompt if it is too long for one step; return the slots to advance.

        A prompt that one step can compute is computed in one, so that all of its keys are of one version.
        """
        table, left = self._table, self._prefill_tokens
        missing = table.length - table.computed
        ready = table.busy.copy()
        for slot in self._jobs:
            if missing[slot] == 1:
                continue
            if missing[slot] > left:
                ready[slot] = False
                if left and missing[slot] > self._prefill_tokens:
                    self._forward.fill(slot, int(table.computed[slot]) + left)
            left = max(0, left - int(missing[slot]))
        return np.flatnonzero(ready)

    def _admit(self) -> None:
        """Give waiting requests free slots, first come first served, as far as the prefill budget goes."""
        budget = self._prefill_tokens
        while self._pending and budget > 0 and len(self._jobs) < len(self._table.busy):
            budget -= self._place(self._pending.popleft())

    def _place(self, job: _Job) -> int:
        """Give a request its slot; return how many of its tokens must be computed."""
        prompt = np.array(job.request.prompt_ids, np.int32)
        reuse = self._table.reusable(prompt, self._epoch)
        slot = self._table.place(reuse)
        self._forward.copy_prefix(reuse.source, slot, reuse.length)
        self._table.admit(slot, job.request, reuse, self._epoch)
        job.slot, self._jobs[slot] = slot, job
        self._counts.prompt_tokens += len(prompt)
        self._counts.reused_tokens += reuse.length
        if job.tokens is not None:
            self._streamed.add(slot)
        return len(prompt) - reuse.length

    def _sampled(self, slot: int) -> int:
        """Return how many tokens were sampled for the request in a slot."""
        return int(self._table.length[slot] - self._table.prompt[slot])

    def _send_tokens(self, slot: int) -> None:
        """Send the newest tokens of a slot to the caller that streams them."""
        table, job = self._table, self._jobs[slot]
        assert job.tokens is not None
        kind = job.request.sampling.drawn_from
        start, job.sent = int(table.prompt[slot]) + job.sent, self._sampled(slot)
        for at in range(start, int(table.length[slot])):
            token, logprob = int(table.tokens[slot, at]), float(table.logprobs[slot, at])
            version = int(table.versions[slot, at])
            job.tokens.put_nowait(Token(id=token, logprob=logprob, version=version, distribution=kind))

    def _finish(self, slot: int) -> None:
        job = self._release(slot)
        if not job.done.done():
            job.done.set_result(self._table.completion(slot, job.request.sampling.drawn_from))
        if job.tokens is not None:
            job.tokens.put_nowait(None)

    def _release(self, slot: int) -> _Job:
        self._counts.tokens += self._sampled(slot)
        self._table.free(slot)
        self._streamed.discard(slot)
        job = self._jobs.pop(slot)
        job.slot = None
        return job

    def _drop(self, job: _Job) -> None:
        """Free the slot or the place in the queue of a request whose caller has its result or went away."""
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


def fastest(decoder: Decoder, table: SlotTable, draft: Mtp | None = None) -> Forward:
    """Return the kernel's forward pass where it can be compiled, else torch's."""
    try:
        return NativeForward(decoder, table, draft)
    except KernelError as error:
        log.warning("sampling with torch, several times slower than the kernel: %s", error)
        return TorchForward(decoder, table, draft)
