"""Tokens a second of the embedded engine and of transformers' `generate`: same weights, prompts and thread.

    python -m benchmarks.engine [--json] [--experts 0 4] [--sequences 1 16 64] [--runs 9]

Each side samples at temperature 1 for a fixed number of tokens, in the same process, in turns, after one run
that does not count. Rates are per CPU second, so that a busy machine does not decide. A figure is the median
over the runs, the ratio (ours / transformers) that of neighbouring runs; in brackets the 95 % order-statistic
interval of that median (see `measure.py`).
"""

import argparse
import asyncio
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

from benchmarks.measure import Figure, Run, quantile, ratios, table
from ostinato.engine.embedded import EmbeddedEngine
from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import GenerateRequest

VOCABULARY = 512

Sampler = Callable[[], int]
"""Samples one batch; gives the number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One size: tokens sampled per CPU second by each side."""

    experts: int
    sequences: int
    ours: Figure
    peer: Figure
    ratio: Figure

    def cells(self) -> list[str]:
        rates = self.ours.text(0), self.peer.text(0), self.ratio.text(2)
        return [str(self.experts), str(self.sequences), *rates, str(self.ratio.n)]


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


def ours(decoder: Decoder, rows: list[list[int]], tokens: int) -> Sampler:
    asked = [
        GenerateRequest(
            request_id=str(i),
            session_id=str(i),
            prompt_ids=tuple(row),
            stop_ids=(),
            max_tokens=tokens,
            seed=i,
        )
        for i, row in enumerate(rows)
    ]

    async def sample() -> int:
        # A fresh engine each run: no prefix is known from the run before.
        engine = EmbeddedEngine(decoder, version=1, slots=len(rows), max_len=len(rows[0]) + tokens)
        return sum(len(done.ids) for done in await asyncio.gather(*map(engine.generate, asked)))

    return lambda: asyncio.run(sample())


def theirs(directory: Path, rows: list[list[int]], tokens: int) -> Sampler:
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

    return sample


def rate(sample: Sampler) -> float:
    """Tokens per CPU second of one run."""
    started = time.process_time()
    tokens = sample()
    return tokens / (time.process_time() - started)


def compare(mine: Sampler, peer: Sampler, runs: int) -> tuple[list[float], list[float]]:
    """Rates of both sides in turns; the first run of each warms up."""
    pairs = [(rate(mine), rate(peer)) for _ in range(1 + runs)][1:]
    return [a for a, _ in pairs], [b for _, b in pairs]


def measure(experts: int, options: argparse.Namespace) -> list[Row]:
    decoder, found = model(experts), []
    with tempfile.TemporaryDirectory() as directory:
        save(Path(directory), decoder, Tokenizer.train(["x"], VOCABULARY), version=1)
        for count in options.sequences:
            batch = prompts(count, options.prompt)
            sides = ours(decoder, batch, options.tokens), theirs(Path(directory), batch, options.tokens)
            a, b = compare(*sides, options.runs)
            row = {"ours": quantile(a), "peer": quantile(b), "ratio": ratios(a, b)}
            found.append(Row(experts=experts, sequences=count, **row))
    return found


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experts", type=int, nargs="+", default=[0, 4])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--prompt", type=int, default=100, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=60, help="tokens sampled for each prompt")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for experts in options.experts for row in measure(experts, options)]
    header = ["experts", "sequences", "ours tok/CPU s", "transformers tok/CPU s", "ratio", "n"]
    table(header, [row.cells() for row in rows])
    size = {"prompt": options.prompt, "tokens": options.tokens}
    run.finish({"peer": "transformers", **size, "rows": [asdict(row) for row in rows]}, as_json=options.json)


if __name__ == "__main__":
    with Run("engine", "torch", "transformers") as opened:
        main(opened)
