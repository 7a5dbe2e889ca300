"""The trainer `fsdp` on a real checkpoint: exact beside plain transformers, and as fast and small as TRL.

::

    python -m benchmarks.trainer --model DIR --peer-python VENV/bin/python --json

The peer is TRL's SFTTrainer with packing, on the same rows, in float32 on one thread each, one after the
other. `--peer-python` is an interpreter that has trl (`pip install trl`); without it the peer is left out.

Where there is a GPU both compute on it, with `--compute bfloat16` on weights in float32, and memory is the
GPU's. Two ranks are compared where they have a device each. `rounded_p99` is how far our scores in that type
are from those of transformers in float32, and stands beside the same of transformers in that type.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Run, table
from ostinato.model.tensor_files import TensorFiles

RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
WORKER = "benchmarks.trainer_worker"
SMALL = (40, 64, 23, 57)
"""The lengths of the rows that are compared number by number."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and with --json one line."""
    options = _options(arguments)
    with Run("trainer", "torch", "transformers") as run, tempfile.TemporaryDirectory() as folder:
        figures = exactness(options.model, Path(folder), options.compute)
        if options.peer_python:
            figures |= beside_trl(options, Path(folder))
        table(("figure", "value"), [(name, f"{value:.3g}") for name, value in figures.items()])
        run.finish(figures, as_json=options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainer", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a checkpoint in Hugging Face layout")
    parser.add_argument("--peer-python", help="an interpreter that has trl")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens in a packed row, one a step")
    parser.add_argument("--row", type=int, default=256, help="tokens in each row that is packed")
    parser.add_argument("--compute", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--steps", type=int, default=3, help="measured steps, after a first one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.tokens % options.row:
        parser.error("--row must divide --tokens, so that both sides pack the same steps")
    return options


def exactness(model: Path, folder: Path, compute: str) -> dict[str, Any]:
    """Return differences from plain transformers, and of two ranks from one after five steps."""
    rows = _rows(model, folder / "small.json", [SMALL])
    figures = _run("-m", WORKER, "exact", str(model), str(rows), str(folder))
    if compute != "float32":
        return figures | _run("-m", WORKER, "rounded", str(model), str(rows), str(folder), compute)
    if torch.cuda.device_count() == 1:
        return figures
    one = _run("-m", WORKER, "steps", str(model), str(rows), str(folder / "one"))["losses"]
    two = _run(*RANKS, "2", "-m", WORKER, "steps", str(model), str(rows), str(folder / "two"))["losses"]
    apart = [abs(a - b) / abs(a) for a, b in zip(one, two, strict=True)]
    figures["ranks_loss"] = apart[0]  # of the same weights; each later step begins with others
    figures["ranks_loss_five_steps"] = max(apart)
    ours, theirs = (TensorFiles.open(folder / name / "written") for name in ("one", "two"))
    figures["ranks_weights"] = max(
        float((ours.tensor(name) - theirs.tensor(name)).abs().max()) for name in ours.entries
    )
    return figures


def beside_trl(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return tokens a second and peak memory of both sides, and ours over theirs."""
    step = [options.row] * (options.tokens // options.row)
    rows = _rows(options.model, folder / "rows.json", [step] * (options.steps + 1))
    ours = _run("-m", WORKER, "speed", str(options.model), str(rows), str(folder / "speed"), options.compute)
    flat = folder / "flat.json"
    flat.write_text(json.dumps([ids for each in json.loads(rows.read_text()) for ids in each]))
    peer = Path(__file__).with_name("trl_worker.py")
    theirs = _run(
        *(str(peer), str(options.model), str(flat), str(folder / "trl"), str(options.tokens)),
        options.compute,
        python=options.peer_python,
    )
    if theirs["steps"] != ours["steps"]:
        raise SystemExit(f"TRL took {theirs['steps']} measured steps, and we {ours['steps']}")
    return {
        "sft_tokens_s": ours["tokens_s"],
        "sft_tokens_s_trl": theirs["tokens_s"],
        "sft_tokens_ratio_vs_trl": ours["tokens_s"] / theirs["tokens_s"],
        "sft_peak_mb": ours["peak_mb"],
        "sft_peak_mb_trl": theirs["peak_mb"],
        "sft_memory_ratio_vs_trl": ours["peak_mb"] / theirs["peak_mb"],
    }


def _rows(model: Path, file: Path, steps: Sequence[Sequence[int]]) -> Path:
    """Write rows of random tokens of the given lengths for each step."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    rng = random.Random(0)
    steps_rows = [[[rng.randrange(vocabulary) for _ in range(length)] for length in step] for step in steps]
    file.write_text(json.dumps(steps_rows))
    return file


def _run(*arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """Return the last line that a worker prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{arguments[:3]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
