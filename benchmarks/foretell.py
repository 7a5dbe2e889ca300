"""The MTP layer of `benchmarks.speculative`: how it is taught, and how far it foretells what is sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz.law import always_drafting

from ostinato.data.corpus import TextRow
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.checkpoint import load
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp, has_draft, load_draft, save_draft
from ostinato.store import Store
from ostinato.train.local import PackedAttention
from ostinato.train.pretrain.draft import DraftTraining, rows_of
from ostinato.train.pretrain.rows import text_pack
from ostinato.types import GenerateRequest, Source

GAMMA = 3
RATE, TOKENS = 3e-3, 4096
"""The highest learning rate, and the tokens of a step."""
Text = Sequence[int]


def layer_of(checkpoint: Path, record: Path, steps: int) -> Mtp:
    """Return the MTP layer of a run's model, which is taught on its lessons unless it lies there."""
    decoder, tokenizer, meta = load(checkpoint)
    if not has_draft(checkpoint):
        layer = taught(decoder, lessons(record), steps)
        save_draft(checkpoint, layer, trunk=meta.digest, tokenizer=tokenizer.digest)
    return load_draft(checkpoint, decoder.config, tokenizer=tokenizer.digest)


def lessons(record: Path) -> list[Text]:
    """Return the sessions of a run's teacher, which its model was taught on."""
    store = Store.open(record)
    turns = [list(store.turns(each.id)) for each in store.sessions() if each.source is Source.TEACHER]
    store.close()
    return [(*some[-1].prompt_ids, *some[-1].completion.ids) for some in turns if some]


def taught(decoder: Decoder, texts: Sequence[Text], steps: int) -> Mtp:
    """Return a layer that was distilled from a model, which stays as it is, on these texts."""
    training, rng = DraftTraining(decoder, Mtp.beside(decoder, 0), weight_decay=0.1), np.random.default_rng(0)
    for step in range(steps):
        some = list[Text]()
        while sum(map(len, some)) < TOKENS:
            some.append(texts[int(rng.integers(len(texts)))])
        pack = text_pack([TextRow(ids=np.array(ids), starts=(0,)) for ids in some], confined=True)
        with torch.no_grad():
            at = pack.positions_T[None]
            states, _ = decoder.hidden(pack.ids_T[None], positions=at, cache=PackedAttention(pack))
        places = rows_of(pack)
        training.accumulate(pack, states[0], places, len(places))
        training.clip(1.0)
        training.update(RATE * min(1, (step + 1) / 20, 2 * (steps - step) / steps))
        if step % 50 == 49:
            print("taught", step + 1, training.figures(), flush=True)
    return training.mtp


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """Drafts of GAMMA tokens in every step of one sequence at a time."""

    tau: float
    """Tokens of a step, after the one that computes the prompt; the last one of a completion is cut short."""
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


async def foretold(decoder: Decoder, layer: Mtp, requests: Sequence[GenerateRequest]) -> Foretold:
    longest = max(len(each.prompt_ids) + each.max_tokens for each in requests)
    with always_drafting():
        served = EmbeddedEngine(
            decoder, version=0, slots=2, max_len=longest, drafts=GAMMA, draft=layer, forward=NativeForward
        )
    judged, accepted, steps, tokens = np.zeros(GAMMA), np.zeros(GAMMA), 0, 0
    for request in requests:
        job = served._enqueue(request, stream=False)
        served._step()
        while not job.done.done():
            before = served.stats()
            served._step()
            after = served.stats()
            drafts, hits = (int(after[name] - before[name]) for name in ("drafted", "accepted"))
            added = int(after["tokens"] - before["tokens"])
            steps, tokens = steps + 1, tokens + added
            accepted[:hits] += 1
            judged[: hits + (hits < drafts and hits < added)] += 1  # an end rejects nothing
    await served.aclose()
    return Foretold(
        tau=tokens / steps, alpha=float(accepted.sum() / judged.sum()), by_depth=(accepted / judged).tolist()
    )
