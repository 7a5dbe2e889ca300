"""Real weight traces for `benchmarks.codec`: bf16 serving copies of neighbouring optimizer steps.

    python -m benchmarks.traces OUT [--rates 1e-6 3e-6 1e-5] [--warm-up 300] [--steps 200]

A 53 M parameter decoder learns the Python sources of the standard library, first at a high rate (so that the
weights and Adam's moments are not those of initialisation), then, from that same state, at each low rate.
It writes what a trainer would publish: fp32 masters rounded to bf16. A step takes about 1.2 s of one core;
products run in bf16 where the CPU can. OUT holds `traces.json`, the parameters of the run and its pairs, and
one file per copy, 3 GB in all; none of them belongs in the repository.
"""

import argparse
import copy
import json
import os
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.optimizer import AdamW, adamw, set_rate

VOCABULARY, ROWS, TOKENS = 8192, 4, 128
WARM_RATE, RISE_STEPS, LARGEST_GRADIENT = 1e-3, 30, 1.0
SKIP = 8
"""The number of steps between the two copies of a late joiner's pair."""
TEXT_BYTES = 12_000_000
INDEX = "traces.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two copies of one run: the weights after `before` and after `after` steps at `rate`."""

    rate: float
    before: int
    after: int
    changed: float
    """The fraction of values whose bf16 bits differ."""
    loss: float
    """The mean over the last steps, in nats per token."""


def copies(folder: Path, pair: Pair) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the serving copies of a pair."""
    before, after = (load_file(copy_path(folder, pair.rate, step)) for step in (pair.before, pair.after))
    return before, after


def pairs(folder: Path) -> list[Pair]:
    return [Pair(**row) for row in json.loads((folder / INDEX).read_text())["pairs"]]


def copy_path(folder: Path, rate: float, step: int) -> Path:
    return folder / f"rate_{rate:g}_step_{step}.safetensors"


def tokens() -> Tensor:
    """Return the ids of the standard library's sources, [tokens]."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    files += sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/*.py"))
    text = "".join(path.read_text(errors="replace") for path in files)[:TEXT_BYTES]
    lines = text.splitlines(keepends=True)
    tokenizer = Tokenizer.train(lines[:: max(1, len(lines) // 50_000)], VOCABULARY)
    return torch.tensor(tokenizer.encode(text), dtype=torch.int32)


class Training:
    """A decoder, its optimizer and its place in the text; `advance` is one step."""

    def __init__(self, ids: Tensor) -> None:
        torch.manual_seed(0)
        self.ids = ids
        self.decoder = Decoder(
            ModelConfig(
                vocab_size=VOCABULARY,
                hidden_size=640,
                layers=9,
                heads=10,
                kv_heads=10,
                head_dim=64,
                intermediate_size=1920,
            )
        )
        self.optimizer: AdamW = adamw(self.decoder, rate=WARM_RATE)
        self.losses: list[float] = []

    def advance(self, rate: float) -> None:
        set_rate(self.optimizer, rate)
        starts = torch.randint(len(self.ids) - TOKENS - 1, (ROWS, 1))
        rows = self.ids[starts + torch.arange(TOKENS + 1)].long()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, _ = self.decoder(rows[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.decoder.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())

    def warm_up(self, steps: int) -> None:
        for step in range(steps):
            self.advance(WARM_RATE * min(1.0, (step + 1) / RISE_STEPS))

    def serving_copy(self) -> dict[str, Tensor]:
        return {name: tensor.to(torch.bfloat16) for name, tensor in self.decoder.state_dict().items()}

    def recent_loss(self) -> float:
        last = self.losses[-20:]
        return sum(last) / len(last)


def pair_steps(steps: int) -> list[tuple[int, int]]:
    """Return pairs of step counts: neighbours early, in the middle and at the end; one over `SKIP`."""
    ends = sorted({max(1, steps // 10), max(1, steps // 2), steps})
    return [(end - 1, end) for end in ends] + ([(steps - SKIP, steps)] if steps > SKIP else [])


def trace(training: Training, rate: float, steps: int, folder: Path) -> Iterator[Pair]:
    """Train at `rate` and write the copies that the pairs need; yield a pair once both exist."""
    wanted, held = pair_steps(steps), {}
    for step in range(steps + 1):
        if step:
            training.advance(rate)
        if any(step in pair for pair in wanted):
            held[step] = training.serving_copy()
            save_file(held[step], copy_path(folder, rate, step))
        for before, after in wanted:
            if step == after:
                fraction = changed(held[before], held[after])
                loss = training.recent_loss()
                yield Pair(rate=rate, before=before, after=after, changed=fraction, loss=loss)


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    differ = sum(int((before[n].view(torch.int16) != after[n].view(torch.int16)).sum()) for n in after)
    return differ / sum(tensor.numel() for tensor in after.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-6, 3e-6, 1e-5])
    parser.add_argument("--warm-up", type=int, default=300, help=f"steps at {WARM_RATE:g}")
    parser.add_argument("--steps", type=int, default=200, help="steps at each rate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    training = Training(tokens())
    training.warm_up(options.warm_up)
    size = sum(parameter.numel() for parameter in training.decoder.parameters())
    run = {"parameters": size, "rows": ROWS, "tokens": TOKENS, "warm_rate": WARM_RATE, **vars(options)}
    warm = copy.deepcopy((training.decoder.state_dict(), training.optimizer.state_dict()))
    pairs: list[Pair] = []
    for rate in options.rates:
        training.decoder.load_state_dict(warm[0])
        training.optimizer.load_state_dict(copy.deepcopy(warm[1]))
        for pair in trace(training, rate, options.steps, options.out):
            pairs.append(pair)
            print(json.dumps({**asdict(pair), "cpu_s": round(time.process_time())}), flush=True)
            index = {"run": {**run, "out": None}, "pairs": [asdict(each) for each in pairs]}
            (options.out / INDEX).write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
