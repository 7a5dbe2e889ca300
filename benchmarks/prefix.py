"""Trained tokens a second when a group's prompt is computed once, beside the same rows without sharing.

    python -m benchmarks.prefix [--json] [--group 8] [--prompt 400] [--replies 48 96] [--runs 9]

One group of sessions on one prompt goes through forward and backward pass of the policy gradient, on both
trainers: `local`, our own decoder, whose peer pads rows of similar length, and `fsdp`, a Llama of
transformers of the same shape, whose peer computes each row alone, without padding. Trained tokens are the
sampled ones: the replies, of random lengths between the two of `--replies`. Sharing and peer take turns, in
one thread; a ratio is the median over the runs of two neighbours, with its order-statistic interval
(`measure.py`), once by the clock and once by CPU seconds. `gradient` is the largest difference of an entry
over the largest entry.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.measure import Run, ratios, table
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.train.batch import ScoredRow, Scores, by_length, counted_scores
from ostinato.train.fsdp.scoring import ATTENTION, ScoringModel
from ostinato.train.local import DecoderModel
from ostinato.train.packing import pack, packs

VOCABULARY, WIDTH, LAYERS, HEADS = 512, 128, 4, 4
PIECE_TOKENS = 4096
Pass = Callable[[], None]
"""One forward and backward pass over all rows."""


def group(count: int, prompt: int, replies: Sequence[int], seed: int = 0) -> list[ScoredRow]:
    """Return the rows of one group: the same prompt, then a sampled reply."""
    rng = random.Random(seed)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(length))

    shared, tails = ids(prompt), [ids(rng.randint(*replies)) for _ in range(count)]
    return [ScoredRow(ids=shared + tail, counted=(False,) * prompt + (True,) * len(tail)) for tail in tails]


def loss(rows: Sequence[int], scores: Scores) -> Tensor:
    return scores.logprobs_N.sum() / 100.0


def local(rows: list[ScoredRow], folder: Path) -> tuple[nn.Module, Pass, Pass]:
    """Return our own decoder, a pass that shares the prompt, and one that pads."""
    torch.manual_seed(0)
    size = {"hidden_size": WIDTH, "layers": LAYERS, "heads": HEADS, "kv_heads": HEADS, "head_dim": 32}
    model = DecoderModel(
        Decoder(ModelConfig(vocab_size=VOCABULARY, intermediate_size=3 * WIDTH, **size)),
        folder,
        piece_tokens=PIECE_TOKENS,
    )

    def shared() -> None:
        model.accumulate(rows, loss)

    def apart() -> None:
        for piece in by_length([len(row.ids) for row in rows], PIECE_TOKENS):
            scores = counted_scores(model.decoder, [rows[i] for i in piece])
            loss(piece, scores).backward()

    return model.decoder, shared, apart


def fsdp(rows: list[ScoredRow], _: Path) -> tuple[nn.Module, Pass, Pass]:
    """Return a Llama of transformers, a pass that shares the prompt, and one row by row."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=2048,
    )  # fmt: skip
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.set_attn_implementation(ATTENTION)
    model = ScoringModel(plain)

    def shared() -> None:
        for part in packs(rows, PIECE_TOKENS):
            loss(part.rows, model(part)).backward()

    def apart() -> None:
        for i, row in enumerate(rows):
            loss([i], model(pack([row], [i]))).backward()

    return model, shared, apart


def gradients(model: nn.Module, work: Pass) -> list[Tensor]:
    model.zero_grad(set_to_none=True)
    work()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def difference(model: nn.Module, shared: Pass, apart: Pass) -> float:
    """Return the largest difference of an entry of the two gradients, over the largest entry."""
    ours, theirs = gradients(model, shared), gradients(model, apart)
    scale = max(float(each.abs().max()) for each in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / scale


def timed(model: nn.Module, work: Pass) -> tuple[float, float]:
    """Return the seconds of one pass, by the clock and of this process's CPU time."""
    model.zero_grad(set_to_none=True)
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - cpu


def compare(
    build: Callable[[list[ScoredRow], Path], tuple[nn.Module, Pass, Pass]], rows: list[ScoredRow], runs: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model, shared, apart = build(rows, Path(folder))
        found = {"gradient": difference(model, shared, apart)}
        pairs = [(timed(model, apart), timed(model, shared)) for _ in range(runs)]
    tokens = sum(len(row.places) for row in rows)
    wall, cpu = (ratios([a[i] for a, _ in pairs], [s[i] for _, s in pairs]) for i in (0, 1))
    return found | {
        "ratio_wall": asdict(wall),
        "ratio_cpu": asdict(cpu),
        "tokens_a_cpu_second": tokens * runs / sum(s[1] for _, s in pairs),
        "tokens_a_cpu_second_apart": tokens * runs / sum(a[1] for a, _ in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=400)
    parser.add_argument("--replies", type=int, nargs=2, default=(48, 96))
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = group(options.group, options.prompt, options.replies)
    with Run("prefix", "torch", "transformers") as run:
        found = {build.__name__: compare(build, rows, options.runs) for build in (local, fsdp)}
        head = ["trainer", "ratio, clock", "ratio, CPU", "tokens a CPU s", "apart", "gradient"]
        table(head, [line(name, figures) for name, figures in found.items()])
        settings = {"group": options.group, "prompt": options.prompt, "replies": list(options.replies)}
        run.finish({**settings, "runs": options.runs, **found}, as_json=options.json)


def line(name: str, figures: dict[str, Any]) -> list[str]:
    def ratio(of: dict[str, float]) -> str:
        return f"{of['value']:.2f} [{of['low']:.2f}, {of['high']:.2f}]"

    rates = [f"{figures[name]:,.0f}" for name in ("tokens_a_cpu_second", "tokens_a_cpu_second_apart")]
    return [
        name,
        ratio(figures["ratio_wall"]),
        ratio(figures["ratio_cpu"]),
        *rates,
        f"{figures['gradient']:.1e}",
    ]


if __name__ == "__main__":
    main()
