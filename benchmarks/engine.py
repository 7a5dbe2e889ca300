"""Tokens a second of the embedded engine and of transformers' `generate`: same weights, prompts and thread.

    python benchmarks/engine.py [--json FILE] [--experts 4] [--sequences 1 16 64]

Each side samples at temperature 1 for a fixed number of tokens, in the same process, one after the other; the
best of three runs counts. Rates are per CPU second, so that a busy machine does not decide.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from ostinato.engine.embedded import EmbeddedEngine
from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import GenerateRequest

VOCABULARY = 512
RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One size: tokens sampled per CPU second by each side."""

    sequences: int
    ours: float
    transformers: float

    @property
    def ratio(self) -> float:
        return self.ours / self.transformers


def model(experts: int) -> Decoder:
    torch.manual_seed(0)
    decoder = Decoder(ModelConfig(vocab_size=VOCABULARY, experts=experts, expert_size=128))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return decoder


def prompts(count: int, length: int) -> list[list[int]]:
    rng = random.Random(count)
    return [[rng.randrange(VOCABULARY) for _ in range(length)] for _ in range(count)]


def best(run: Callable[[], int]) -> float:
    """The highest number of tokens per CPU second."""
    rates = []
    for _ in range(RUNS):
        started = time.process_time()
        tokens = run()
        rates.append(tokens / (time.process_time() - started))
    return max(rates)


def ours(decoder: Decoder, rows: list[list[int]], tokens: int) -> float:
    async def sample(run: int) -> int:
        # A fresh engine each run: no prefix is known from the run before.
        engine = EmbeddedEngine(decoder, version=1, slots=len(rows), max_len=len(rows[0]) + tokens)
        asked = [
            GenerateRequest(
                request_id=str(i),
                session_id=str(i),
                prompt_ids=tuple(row),
                stop_ids=(),
                max_tokens=tokens,
                seed=run * len(rows) + i,
            )
            for i, row in enumerate(rows)
        ]
        return sum(len(done.ids) for done in await asyncio.gather(*map(engine.generate, asked)))

    return best(lambda: asyncio.run(sample(0)))


def theirs(directory: Path, rows: list[list[int]], tokens: int) -> float:
    peer = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    settings = GenerationConfig(
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
        eos_token_id=None,
    )
    ids = torch.tensor(rows)

    def sample() -> int:
        with torch.inference_mode():
            done = peer.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        return int(done[:, ids.shape[1] :].numel())

    return best(sample)


def measure(experts: int, sequences: list[int], prompt: int, tokens: int) -> list[Row]:
    decoder = model(experts)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        save(Path(directory), decoder, Tokenizer.train(["x"], VOCABULARY), version=1)
        for count in sequences:
            batch = prompts(count, prompt)
            mine = ours(decoder, batch, tokens)
            rows.append(Row(sequences=count, ours=mine, transformers=theirs(Path(directory), batch, tokens)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experts", type=int, nargs="+", default=[0, 4])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    print(f"{'experts':>8} {'sequences':>10} {'ours tok/s':>12} {'transformers tok/s':>20} {'ratio':>7}")
    for experts in args.experts:
        found[experts] = measure(experts, args.sequences, args.prompt, args.tokens)
        for row in found[experts]:
            rates = f"{row.ours:>12.0f} {row.transformers:>20.0f} {row.ratio:>6.1f}x"
            print(f"{experts:>8} {row.sequences:>10} {rates}")
    if args.json:
        args.json.write_text(
            json.dumps({e: [asdict(r) for r in rows] for e, rows in found.items()}, indent=2)
        )


if __name__ == "__main__":
    main()
