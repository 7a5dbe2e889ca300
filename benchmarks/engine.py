"""The tokens per second of the embedded engine and its peers (vLLM, llama.cpp, transformers) on one model.

    python -m benchmarks.engine [--json] [--shape demo] [--sequences 1 16 64] [--runs 7] [--sides ours vllm]

`--shape smollm2` and `--shape qwen3-0.6b` are the sizes of models that people use, with random weights (a
rate does not depend on their values) and 300 tokens in, 100 out. `--sequences`, `--runs` and `--sides` make
parts of a run. There one short row warms up, and vLLM runs eager: compiling takes it minutes.

Every side samples at temperature 1, a fixed number of tokens after new prompts. The sides take turns after
one run each that does not count, and each may use every core of the machine. All sides use float32. The
embedded engine and transformers use one thread each; vLLM runs as its own engine with its own defaults, in a
process without a server. `make test-vllm` installs it; without it it is left out. So is llama.cpp unless
`OSTINATO_LLAMACPP` names a Python that has the package xllamacpp.

A rate is tokens by the clock, or by CPU seconds of all processes and threads of that side. A figure is the
median over the runs, a ratio (ours / peer) the median of those of neighbouring runs; in brackets the 95 %
order-statistic interval (see `measure.py`).
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from benchmarks.llama_peer import llamacpp
from benchmarks.llama_peer import missing as no_llamacpp
from benchmarks.measure import Figure, Run, quantile, ratios, table
from benchmarks.vllm_peer import Worker, missing, vllm
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import GenerateRequest, Sampling

PEERS = ("vllm", "llamacpp", "transformers")
SHAPES = {
    "demo": ModelConfig(vocab_size=512, experts=4, expert_size=128),
    "smollm2": ModelConfig(
        vocab_size=49_152,
        hidden_size=576,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        intermediate_size=1536,
        qk_norm=False,
        rope_theta=100_000.0,
        rms_eps=1e-5,
        max_positions=8192,
    ),
    "qwen3-0.6b": ModelConfig(
        vocab_size=151_936,
        hidden_size=1024,
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        intermediate_size=3072,
        rope_theta=1_000_000.0,
        max_positions=40_960,
    ),
}
LENGTHS = {"demo": (100, 60)}
"""The tokens in and out of a shape; 300 and 100 for the others."""

Prompts = list[list[int]]
Side = Callable[[Prompts, int], "Spent"]
"""A function that samples so many tokens after each prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The time of a run."""

    tokens: int
    wall_s: float
    cpu_s: float

    def rate(self, clock: str) -> float:
        return self.tokens / (self.wall_s if clock == "wall" else self.cpu_s)


def model(config: ModelConfig) -> Decoder:
    """Return a decoder with random weights, of which none is zero."""
    torch.manual_seed(0)
    decoder = Decoder(config)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return decoder


def prompts(count: int, length: int, seed: int, vocabulary: int) -> Prompts:
    rng = random.Random(f"{count} {seed}")
    return [[rng.randrange(vocabulary) for _ in range(length)] for _ in range(count)]


def timed(sample: Callable[[], int]) -> Spent:
    """Time a run in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = sample()
    return Spent(tokens=tokens, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)


@contextmanager
def ours(decoder: Decoder, slots: int, max_len: int) -> Iterator[Side]:
    with asyncio.Runner() as runner:
        engine = EmbeddedEngine(decoder, version=1, slots=slots, max_len=max_len)

        async def sample(rows: Prompts, tokens: int) -> int:
            requests = [
                GenerateRequest(
                    request_id=str(i),
                    session_id=str(i),
                    prompt_ids=tuple(row),
                    stop_ids=(),
                    max_tokens=tokens,
                    sampling=Sampling(seed=i),
                )
                for i, row in enumerate(rows)
            ]
            return sum(len(done.ids) for done in await asyncio.gather(*map(engine.generate, requests)))

        yield lambda rows, tokens: timed(lambda: runner.run(sample(rows, tokens)))
        runner.run(engine.aclose())


def transformers(directory: Path) -> Side:
    peer = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def sample(rows: Prompts, tokens: int) -> int:
        ids = torch.tensor(rows)
        settings = GenerationConfig(
            do_sample=True,
            top_k=0,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
            eos_token_id=None,
        )
        with torch.inference_mode():
            done = peer.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        return int(done[:, ids.shape[1] :].numel())

    return lambda rows, tokens: timed(lambda: sample(rows, tokens))


def of_worker(peer: Worker) -> Side:
    def side(rows: Prompts, tokens: int) -> Spent:
        sampled, wall_s, cpu_s = peer.sample(rows, tokens)
        return Spent(tokens=sampled, wall_s=wall_s, cpu_s=cpu_s)

    return side


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of sequences, and the time of every side in each run."""

    sequences: int
    spent: dict[str, list[Spent]]

    def rate(self, side: str, clock: str) -> Figure:
        return quantile([run.rate(clock) for run in self.spent[side]])

    def ratio(self, side: str, clock: str) -> Figure:
        our_rates, their_rates = ([run.rate(clock) for run in self.spent[name]] for name in ("ours", side))
        return ratios(our_rates, their_rates)

    def cells(self, clock: str) -> list[str]:
        rates = [self.rate(side, clock).text(0) for side in self.spent]
        peers = [side for side in self.spent if side != "ours"] if "ours" in self.spent else []
        ratios_shown = [self.ratio(side, clock).text(2) for side in peers]
        return [str(self.sequences), *rates, *ratios_shown]


def compare(sides: dict[str, Side], count: int, options: argparse.Namespace) -> Row:
    """Run all sides in turns; the first run of each warms up."""
    spent: dict[str, list[Spent]] = {name: [] for name in sides}
    for run in range(1 + options.runs):
        rows = prompts(count, options.prompt, run, SHAPES[options.shape].vocab_size)
        brief = run == 0 and options.shape != "demo"
        for name, side in sides.items():
            spent[name].append(side(rows[:1], 4) if brief else side(rows, options.tokens))
    return Row(sequences=count, spent={name: runs[1:] for name, runs in spent.items()})


def measure(options: argparse.Namespace) -> list[Row]:
    config, slots = SHAPES[options.shape], max(options.sequences)
    max_len = options.prompt + options.tokens
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        decoder = model(config)
        save(directory, decoder, Tokenizer.train(["x"], 512), version=1)
        sides: dict[str, Side] = {}
        if "ours" in options.sides:
            sides["ours"] = stack.enter_context(ours(decoder, slots, max_len))
        if "vllm" in options.sides and missing() is None:
            eager = options.shape != "demo"
            sides["vllm"] = of_worker(stack.enter_context(vllm(directory, max_len, slots, eager=eager)))
        elif "vllm" in options.sides:
            print(f"without vLLM: {missing()}", file=sys.stderr)
        if "llamacpp" in options.sides and not config.experts and no_llamacpp() is None:
            sides["llamacpp"] = of_worker(stack.enter_context(llamacpp(decoder, directory, max_len, slots)))
        elif "llamacpp" in options.sides:
            print(f"without llama.cpp: {no_llamacpp() or 'a model with experts'}", file=sys.stderr)
        del decoder
        if "transformers" in options.sides:
            sides["transformers"] = transformers(directory)
        return [compare(sides, count, options) for count in options.sequences]


def figures(rows: list[Row], clock: str) -> dict[str, Any]:
    sides = list(rows[0].spent)
    rates = {s: {str(row.sequences): round(row.rate(s, clock).value, 1) for row in rows} for s in sides}
    ratio = {
        f"ratio_vs_{s}": {str(row.sequences): round(row.ratio(s, clock).value, 2) for row in rows}
        for s in PEERS
        if s in sides and "ours" in sides
    }
    return rates | ratio


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="demo", help="the sizes of the model")
    parser.add_argument("--sides", nargs="+", choices=("ours", *PEERS), default=["ours", *PEERS])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--prompt", type=int, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, help="tokens sampled for each prompt")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    usual = LENGTHS.get(options.shape, (300, 100))
    options.prompt, options.tokens = options.prompt or usual[0], options.tokens or usual[1]
    torch.set_num_threads(1)
    disable_progress_bar()
    rows = measure(options)
    sides = list(rows[0].spent)
    for clock, unit in (("wall", "tok/s"), ("cpu", "tok/CPU s")):
        peers = [side for side in sides if side != "ours"] if "ours" in sides else []
        header = ["sequences", *(f"{s} {unit}" for s in sides), *(f"ours / {s}" for s in peers)]
        table(header, [row.cells(clock) for row in rows])
    size = {"shape": options.shape, "prompt": options.prompt, "tokens": options.tokens}
    report = figures(rows, "wall") | {"cpu": figures(rows, "cpu")} | size | {"runs": options.runs}
    run.finish(report, as_json=options.json)


if __name__ == "__main__":
    with Run("engine", "torch", "transformers") as opened:
        main(opened)
