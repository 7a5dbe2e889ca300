"""The MTP draft of `benchmarks.speculative`: how it is taught, and how far it foretells what is sampled."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fuzz.law import always_drafting

from ostinato.data.corpus import TextRow
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp
from ostinato.train.local import PackedAttention
from ostinato.train.packing import Pack
from ostinato.train.pretrain.draft import DEPTH, DraftTraining, rows_of
from ostinato.train.pretrain.rows import text_pack
from ostinato.types import GenerateRequest, Turn

GAMMA = 3
RATE, TOKENS = 3e-3, 4096
"""The highest learning rate, and the tokens of a step."""


def packed(texts: Sequence[Sequence[int]]) -> Pack:
    return text_pack([TextRow(ids=np.array(ids, np.int64), starts=(0,)) for ids in texts], confined=True)


@torch.no_grad()
def states(decoder: Decoder, pack: Pack) -> torch.Tensor:
    hidden, _ = decoder.hidden(
        pack.ids_T[None], positions=pack.positions_T[None], cache=PackedAttention(pack)
    )
    return hidden[0]


def taught(decoder: Decoder, texts: Sequence[Sequence[int]], steps: int) -> DraftTraining:
    """Return the training of a fresh layer on texts that the model does not change with."""
    training, rng = DraftTraining(decoder, Mtp.beside(decoder, 0), weight_decay=0.1), np.random.default_rng(0)
    for step in range(steps):
        some, size = list[Sequence[int]](), 0
        while size < TOKENS:
            some.append(texts[int(rng.integers(len(texts)))])
            size += len(some[-1])
        pack = packed(some)
        training.accumulate(pack, states(decoder, pack), len(rows_of(pack)))
        training.update(RATE * min(1, (step + 1) / 20, 2 * (steps - step) / steps), 1.0)
        if step % 20 == 0:
            print(step, training.figures(), flush=True)
    return training


@torch.no_grad()
def shared_mass(training: DraftTraining, turns: Sequence[Turn]) -> list[float]:
    """Return, by depth, the mass that model and draft share at the sampled tokens, at temperature 1.

    It is the acceptance of rejection sampling, where every token before is the sampled one.
    """
    total, rows = torch.zeros(DEPTH), 0
    for turn in turns:
        pack = packed([(*turn.prompt_ids, *turn.completion.ids)])
        hidden = states(training.decoder, pack)
        places = torch.arange(len(turn.prompt_ids) - 1, len(pack.ids_T) - 1)
        outputs = training._outputs(pack, training.decoder.norm(hidden))
        total += training._compare(hidden[places], *(output[places - 1] for output in outputs))[1]
        rows += len(places)
    return (total / rows).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """Drafts of GAMMA tokens in every step of one sequence at a time."""

    tau: float
    """Tokens of a step after the prompt's."""
    alpha: float
    """The share of drafted tokens that was accepted, of those that followed accepted ones."""
    by_depth: list[float]

    def report(self) -> dict[str, Any]:
        expected = (1 - self.alpha ** (GAMMA + 1)) / (1 - self.alpha)
        return {
            "tau": round(self.tau, 3),
            "alpha": round(self.alpha, 3),
            "alpha_by_depth": [round(each, 3) for each in self.by_depth],
            "expected_tau": round(expected, 3),
        }


async def foretold(decoder: Decoder, mtp: Mtp, requests: Sequence[GenerateRequest]) -> Foretold:
    longest = max(len(each.prompt_ids) + each.max_tokens for each in requests)
    with always_drafting():
        served = EmbeddedEngine(
            decoder, version=0, slots=2, max_len=longest, drafts=GAMMA, draft=mtp, forward=NativeForward
        )
    judged, accepted, steps, tokens = np.zeros(GAMMA), np.zeros(GAMMA), 0, 0.0
    for request in requests:
        job = served._enqueue(request, stream=False)
        served._step()
        while not job.done.done():
            before = served.stats()
            served._step()
            after = served.stats()
            drafts, hits = (int(after[name] - before[name]) for name in ("drafted", "accepted"))
            steps, tokens = steps + 1, tokens + after["tokens"] - before["tokens"]
            accepted[:hits] += 1
            judged[: hits + (hits < drafts and not job.done.done())] += 1
    await served.aclose()
    return Foretold(
        tau=tokens / steps if steps else math.nan,
        alpha=float(accepted.sum() / judged.sum()),
        by_depth=(accepted / judged).tolist(),
    )
