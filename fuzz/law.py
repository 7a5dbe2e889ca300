"""The law of a decode step of the kernel that verifies a draft, and the one that the model asks for."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import chi2

from fuzz.sampling import distribution
from ostinato.engine.embedded import kernel
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.engine.embedded.slots import Reuse, SlotTable
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp
from ostinato.types import GenerateRequest, Sampling

GRID = 2**24
"""The uniform numbers that a request can have are the multiples of 1 / GRID."""
Path = tuple[int, ...]


@contextmanager
def always_drafting() -> Iterator[None]:
    """Compile the kernel so that it verifies every draft, whatever that costs."""
    usual = kernel.OPTIONS
    kernel.OPTIONS = (*usual, "-DALWAYS")
    kernel.library.cache_clear()
    try:
        yield
    finally:
        kernel.OPTIONS = usual
        kernel.library.cache_clear()


class Step:
    """The first decode step after a prompt, repeated with chosen uniform numbers."""

    def __init__(
        self, model: Decoder, prompt: Path, sampling: Sampling, drafts: int, draft: Mtp | None = None
    ) -> None:
        self._table = SlotTable(model.config, 1, len(prompt) + drafts + 2, drafts)
        with always_drafting():
            self._forward = NativeForward(model, self._table, draft)
        self._request = GenerateRequest(
            request_id="", session_id="", prompt_ids=prompt, stop_ids=(), max_tokens=99, sampling=sampling
        )
        self._start = len(prompt)
        self._table.admit(0, self._request, Reuse(0, 0), 0)
        self._forward.fill(0, self._start - 1)

    def __call__(self, *uniforms: int) -> Path:
        """Return the tokens that the step adds where position i has the uniform number uniforms[i] / GRID."""
        table = self._table
        table.admit(0, self._request, Reuse(0, self._start - 1), 0)
        table.uniform[0, self._start :] = 0
        table.uniform[0, self._start : self._start + len(uniforms)] = np.array(uniforms) / GRID
        before = self._forward.drafted()[0]
        self._forward.advance(np.array([0]), 1)
        assert self._forward.drafted()[0] - before == table.drafts
        return tuple(table.tokens[0, self._start : table.length[0]].tolist())

    @property
    def row(self) -> Path:
        """The tokens after the prompt, and where they end before it, those that were drafted and rejected."""
        return tuple(self._table.tokens[0, self._start : self._start + self._table.drafts].tolist())


def law(
    model: Decoder, prompt: Path, sampling: Sampling, drafts: int, draft: Mtp | None = None
) -> dict[Path, float]:
    """Return the probability of all that a step can add, by trying every uniform number that matters.

    A token is monotone in its uniform number, so the bounds between two tokens are found by bisection.
    """
    step, outcomes = Step(model, prompt, sampling, drafts, draft), dict[Path, float]()

    def intervals(before: Path) -> Iterator[tuple[int, int, Path]]:
        """Yield the first and the number of the uniform numbers of each token after those given, and all
        tokens."""
        low = 0
        while low < GRID:
            said = step(*before, low)[: len(before) + 1]
            bottom, top = low, GRID
            while top - bottom > 1:
                middle = (bottom + top) // 2
                if step(*before, middle)[: len(before) + 1] == said:
                    bottom = middle
                else:
                    top = middle
            yield low, top - low, said
            low = top

    def explore(before: Path, weight: float) -> None:
        for first, count, said in intervals(before):
            share = weight * count / GRID
            ends = len(step(*before, first)) == len(said)
            if ends:
                outcomes[said] = outcomes.get(said, 0.0) + share
            else:
                explore((*before, first), share)

    explore((), 1.0)
    return outcomes


def exact(model: Decoder, prompt: Path, sampling: Sampling, tokens: int) -> dict[Path, float]:
    """Return the probability of every continuation of so many tokens, from whole forward passes."""
    vocabulary = range(model.config.vocab_size)
    known: dict[Path, float] = {(): 1.0}
    for _ in range(tokens):
        paths = [(said, known[said]) for said in known]
        known = {}
        for said, weight in paths:
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt, *said]]))[0][0, -1].double().numpy()
            row = distribution(logits, prompt, said, sampling)
            if sampling.temperature == 0:
                row = np.eye(len(row))[row.argmax()]
            known |= {(*said, token): weight * float(row[token]) for token in vocabulary}
    return known


async def drawn(
    model: Decoder,
    prompt: Path,
    sampling: Sampling,
    tokens: int,
    seeds: range,
    *,
    draft: Mtp | None = None,
) -> tuple[Counter[Path], float]:
    """Sample a completion of so many tokens for each seed, verifying every draft.

    Return how often each completion came, and the share of drafted tokens that was accepted.
    """
    with always_drafting():
        served = EmbeddedEngine(
            model, version=0, slots=64, max_len=64, drafts=3, draft=draft, forward=NativeForward
        )
    counts = Counter[Path]()
    for first in range(0, len(seeds), 64):
        asked = [
            GenerateRequest(
                request_id=str(seed),
                session_id=str(seed),
                prompt_ids=prompt,
                stop_ids=(),
                max_tokens=tokens,
                sampling=replace(sampling, seed=seed),
            )
            for seed in seeds[first : first + 64]
        ]
        counts.update(done.ids for done in await asyncio.gather(*map(served.generate, asked)))
    stats = served.stats()
    return counts, stats["accepted"] / stats["drafted"]


def p_value(counts: Counter[Path], expected: dict[Path, float]) -> float:
    """Return the p-value of Pearson's test; what is expected less than five times counts as one cell.

    It is 0 where something came that cannot.
    """
    total = counts.total()
    if counts.keys() - {said for said, p in expected.items() if p > 0}:
        return 0.0
    cells = [(counts[said], p * total) for said, p in expected.items() if p * total >= 5]
    rest = total - sum(got for got, _ in cells), total - sum(wanted for _, wanted in cells)
    cells += [rest] if rest[1] >= 5 else []
    statistic = sum((got - wanted) ** 2 / wanted for got, wanted in cells)
    return float(chi2.sf(statistic, len(cells) - 1))
