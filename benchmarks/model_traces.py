"""Traces for `benchmarks.codec` from a checkpoint in Hugging Face layout: bf16 copies of neighbouring steps.

    python -m benchmarks.model_traces OUT --model DIR [--rates 1e-6 5e-6] [--kinds adamw policy] [--steps 8]

`adamw` is a plain run on the Python sources of the standard library; `policy` is the same with the loss of a
policy gradient: rows of a group with advantages whose mean is zero. fp32 masters, betas 0.9 and 0.95, no
weight decay, gradients clipped at 1, one row of `--tokens` tokens a step (a policy step has four of a
quarter). What exists in OUT is kept, so that a long run goes in parts. Read OUT/adamw and OUT/policy by
`--traces`.
"""

import argparse
import json
import sysconfig
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.traces import INDEX, Pair, changed, copy_path, pairs
from ostinato.model.tokenizer import Tokenizer

GROUP = 4
BETAS, LARGEST_GRADIENT = (0.9, 0.95), 1.0
TEXT_CHARACTERS = 400_000


def text(model: Path) -> Tensor:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    content = "".join(path.read_text(errors="replace") for path in files)[:TEXT_CHARACTERS]
    return torch.tensor(Tokenizer.load(model).encode(content))


def rows(ids: Tensor, count: int, length: int) -> Tensor:
    """Return random rows, [count, length]."""
    starts = torch.randint(len(ids) - length, (count, 1))
    return ids[starts + torch.arange(length)]


def nll(model: Any, batch: Tensor) -> Tensor:
    """Return the negative log-likelihood of every token of `batch` but the first, [rows, tokens - 1]."""
    logits = model(batch[:, :-1]).logits.float()
    return F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")


def adamw_loss(model: Any, ids: Tensor, tokens: int) -> Tensor:
    return nll(model, rows(ids, 1, tokens)).mean()


def policy_loss(model: Any, ids: Tensor, tokens: int) -> Tensor:
    advantages = torch.randn(GROUP)
    advantages -= advantages.mean()
    return (nll(model, rows(ids, GROUP, tokens // GROUP)) * advantages[:, None]).mean()


LOSSES: dict[str, Callable[[Any, Tensor, int], Tensor]] = {"adamw": adamw_loss, "policy": policy_loss}


def trace(options: argparse.Namespace, kind: str, rate: float, ids: Tensor, folder: Path) -> Pair:
    """Train `--steps` steps at `rate`, and write the copies before and after the last."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=BETAS, weight_decay=0.0)
    copies: list[dict[str, Tensor]] = []
    losses = []
    for step in range(1, options.steps + 1):
        if step == options.steps:
            copies.append(serving_copy(model))
        loss = LOSSES[kind](model, ids, options.tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    copies.append(serving_copy(model))
    for step, copy in zip((options.steps - 1, options.steps), copies, strict=True):
        save_file(copy, copy_path(folder, rate, step))
    return Pair(
        rate=rate,
        before=options.steps - 1,
        after=options.steps,
        changed=changed(*copies),
        loss=sum(losses) / len(losses),
    )


def serving_copy(model: Any) -> dict[str, Tensor]:
    """Return the weights in bf16, a tied output matrix only once."""
    return {name: weight.detach().to(torch.bfloat16) for name, weight in model.named_parameters()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-6, 5e-6])
    parser.add_argument("--kinds", nargs="+", choices=sorted(LOSSES), default=sorted(LOSSES))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    ids = text(options.model)
    for kind in options.kinds:
        folder = options.out / kind
        folder.mkdir(parents=True, exist_ok=True)
        done = pairs(folder) if (folder / INDEX).exists() else []
        for rate in options.rates:
            if any((pair.rate, pair.after) == (rate, options.steps) for pair in done):
                continue
            done.append(trace(options, kind, rate, ids, folder))
            (folder / INDEX).write_text(json.dumps({"pairs": [asdict(pair) for pair in done]}))
            print(f"{kind} at {rate:g}: {done[-1].changed:.3%} changed, loss {done[-1].loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
