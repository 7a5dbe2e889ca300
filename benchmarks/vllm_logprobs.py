"""The log-probabilities that vLLM returns beside those of transformers, on one checkpoint.

    python -m benchmarks.vllm_logprobs --model DIR [--json] [--dtypes float32 bfloat16] [--tokens 32]

vLLM samples `--tokens` tokens for each of `--prompts` prompts at temperature 1, through our engine;
transformers scores the same tokens in one forward in the same data type. The figures are of the absolute
difference of each token. In bfloat16 the difference of transformers in bfloat16 from transformers in float32
stands beside it: two programs that round in another order cannot agree better than that.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.measure import Run, quantile, table
from benchmarks.vllm_peer import PYTHON, missing
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Completion, GenerateRequest, Sampling

TEXTS = (
    "def reverse(words):\n    ",
    "The capital of France is",
    "import os\n\nfor name in os.listdir('.'):\n    ",
    "Write a function that returns the largest of three numbers.\n",
    "assert add(2, 3) == 5\nassert add(-1, 1) ==",
    "Once upon a time there was a",
)
MAX_LEN = 256
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
Pairs = list[tuple[GenerateRequest, Completion]]


async def sample(model: Path, dtype: str, options: argparse.Namespace) -> Pairs:
    """Sample every prompt at once by vLLM."""
    tokenizer = Tokenizer.load(model)
    with tempfile.TemporaryDirectory() as logs:
        engine = await VllmEngine.start(
            model,
            Path(logs),
            python=str(PYTHON),
            max_len=MAX_LEN,
            slots=options.prompts,
            dtype=dtype,
            environment=ENVIRONMENT,
        )
        requests = [
            GenerateRequest(
                request_id=str(number),
                session_id=str(number),
                prompt_ids=tuple(tokenizer.encode(TEXTS[number % len(TEXTS)])),
                stop_ids=(),
                max_tokens=options.tokens,
                sampling=Sampling(seed=number),
            )
            for number in range(options.prompts)
        ]
        try:
            done = await asyncio.gather(*map(engine.generate, requests))
        finally:
            await engine.aclose()
    return list(zip(requests, done, strict=True))


def scores(model: Path, dtype: str, pairs: Pairs) -> list[float]:
    """Return the log-probability of every sampled token by transformers in `dtype`."""
    scorer = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    rows: list[float] = []
    for request, done in pairs:
        ids = torch.tensor([request.prompt_ids + done.ids])
        with torch.no_grad():
            logits = scorer(ids).logits[0, len(request.prompt_ids) - 1 : -1].float()
        rows += (
            torch.log_softmax(logits, -1).gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0].tolist()
        )
    return rows


def main(run: Run, options: argparse.Namespace) -> None:
    report: dict[str, object] = {"model": options.model.name}
    rows = []
    for dtype in options.dtypes:
        pairs = asyncio.run(asyncio.wait_for(sample(options.model, dtype, options), options.patience))
        theirs = [value for _, done in pairs for value in done.logprobs]
        ours = scores(options.model, dtype, pairs)
        sides = {"vllm_vs_transformers": (theirs, ours)}
        if dtype != "float32":
            exact = scores(options.model, "float32", pairs)
            sides |= {"transformers_vs_float32": (ours, exact), "vllm_vs_float32": (theirs, exact)}
        for name, (left, right) in sides.items():
            apart = [abs(a - b) for a, b in zip(left, right, strict=True)]
            p50, p99 = quantile(apart).value, quantile(apart, 0.99).value
            rows.append([dtype, name, f"{p50:.2e}", f"{p99:.2e}", f"{max(apart):.2e}", str(len(apart))])
            report[f"{dtype}_{name}"] = {"p50": p50, "p99": p99, "max": max(apart), "tokens": len(apart)}
    table(["dtype", "", "p50", "p99", "max", "n"], rows)
    run.finish(report, as_json=options.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a directory in Hugging Face layout")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--patience", type=float, default=420.0, help="seconds for one data type")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    if (why := missing()) is not None:
        raise SystemExit(why)
    with Run("vllm_logprobs", "torch", "transformers") as opened:
        main(opened, chosen)
