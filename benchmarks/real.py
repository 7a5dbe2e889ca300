"""The figures of a real model, SmolLM2: each benchmark as a process of its own, gathered into one table.

    python -m benchmarks.real [--json] [--only swap learning …] [--model DIR] [--run runs/real] [--again]

Nothing is measured here. A part that is left out, fails, or needs more patience than `--patience` leaves its
keys empty and its reason under `not_run`; no figure is ever filled in. The figures of a part are kept in the
folder `--keep` as soon as it ends, so that the same command goes on after a stop; `--again` forgets them.

| part | its keys come from |
|---|---|
| `logprobs` | `benchmarks.vllm_logprobs`: vLLM beside transformers, float32 and bfloat16 |
| `swap` | `benchmarks.vllm_swap`: new weights for a vLLM under traffic |
| `delta` | `benchmarks.model_traces`, then `benchmarks.codec`: deltas of real optimizer steps |
| `trainer` | `benchmarks.trainer`: the sharded trainer beside plain transformers and TRL (`--peer-python`) |
| `gateway` | `benchmarks.gateway_engine`: the gateway before vLLM |
| `learning` | the report of the run that `make real` left in `--run`, or the published one in `docs/real` |
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import Run, table

MODEL = Path(__file__).parents[1] / ".clients" / "smollm2" / "model"
"""The place where `make real` puts SmolLM2."""
PUBLISHED = Path(__file__).parents[1] / "docs" / "real" / "held_out.json"
"""The solve rates of the run in docs/real.md."""
TINY = {"seeds": 0.65, "larger": 0.09, "families": 0.01}
"""The solve rates of the demo's policy of 0.4 M parameters, which stand beside those of the real one."""
Figures = Mapping[str, Any]


class PartError(RuntimeError):
    """A part gave no figures; the message is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings that the parts read."""

    model: Path
    run: Path
    patience: float
    peer_python: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark of another file, and the keys that it gives."""

    keys: tuple[str, ...]
    measure: Callable[[Options], Figures]


def result_of(options: Options, module: str, *arguments: str) -> Figures:
    """Return the last line of a benchmark's output; raises PartError with the last line of its errors."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.patience)
    except subprocess.TimeoutExpired as error:
        raise PartError(f"benchmarks.{module} took more than {options.patience:.0f} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PartError(f"benchmarks.{module} ended with status {done.returncode}: {reason[:300]}")
    figures: Figures = json.loads(lines[-1])
    return figures


def logprobs(options: Options) -> Figures:
    figures = result_of(options, "vllm_logprobs", "--model", str(options.model), "--json")
    names = {"fp32": "float32", "bf16": "bfloat16"}
    pairs = {short: figures.get(f"{dtype}_vllm_vs_transformers") for short, dtype in names.items()}
    return {f"engine_logprob_p99_{short}": pair["p99"] for short, pair in pairs.items() if pair}


def swap(options: Options) -> Figures:
    return result_of(options, "vllm_swap", "--model", str(options.model), "--json")


def delta(options: Options) -> Figures:
    with tempfile.TemporaryDirectory() as place:
        traces = ["model_traces", place, "--model", str(options.model)]
        command = [sys.executable, "-m", f"benchmarks.{traces[0]}", *traces[1:]]
        if subprocess.run(command, check=False, timeout=options.patience).returncode:
            raise PartError("benchmarks.model_traces failed: see its errors above")
        folders = sorted(str(folder) for folder in Path(place).iterdir() if folder.is_dir())
        return result_of(options, "codec", "--traces", *folders, "--json")


def trainer(options: Options) -> Figures:
    peer = [] if options.peer_python is None else ["--peer-python", options.peer_python]
    return result_of(options, "trainer", "--model", str(options.model), *peer, "--json")


def gateway(options: Options) -> Figures:
    long = ["--seconds", "60", "--read", "250", "--windows", "3"]
    return result_of(options, "gateway_engine", "--vllm", str(options.model), *long, "--json")


def learning(options: Options) -> Figures:
    """Return the solve rates after teaching and after practice with intervals, beside the tiny ones."""
    report = options.run / "report.json"
    found = report if report.exists() else PUBLISHED
    held_out = json.loads(found.read_text())["held_out"]
    return {"learning": {**held_out, "tiny_policy": TINY, "from": "/".join(found.parts[-3:])}}


PARTS = {
    "logprobs": Part(keys=("engine_logprob_p99_fp32", "engine_logprob_p99_bf16"), measure=logprobs),
    "swap": Part(keys=("swaps", "swaps_failed", "swaps_wrong"), measure=swap),
    "delta": Part(
        keys=("delta_ratio_1e6", "delta_ratio_5e6", "delta_vs_gap16", "delta_vs_xor"), measure=delta
    ),
    "trainer": Part(
        keys=(
            *("logits_max", "ranks_loss", "ranks_weights", "packed"),
            *("sft_tokens_ratio_vs_trl", "sft_memory_ratio_vs_trl"),
        ),
        measure=trainer,
    ),
    "gateway": Part(keys=("gateway_throughput_ratio",), measure=gateway),
    "learning": Part(keys=("learning",), measure=learning),
}


def measured(name: str, options: Options, keep: Path) -> Figures:
    """Return the figures of a part, kept ones if it was measured before; raises PartError."""
    kept = keep / f"{name}.json"
    if not kept.exists():
        print(f"{datetime.now(UTC):%H:%M:%S} {name} …", file=sys.stderr, flush=True)
        found = PARTS[name].measure(options)
        keep.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        part.write_text(json.dumps(found, indent=1))
        part.replace(kept)
    figures: Figures = json.loads(kept.read_text())
    return figures


def gather(only: list[str], options: Options, keep: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a value or None for every key, and the reason of each None."""
    figures, not_run = dict[str, Any](), dict[str, str]()
    for name, part in PARTS.items():
        found: Figures = {}
        reason = "left out by --only"
        if name in only:
            try:
                found, reason = measured(name, options, keep), f"benchmark {name} gave no such figure"
            except (PartError, subprocess.TimeoutExpired) as error:
                reason = str(error)
        figures |= {key: found.get(key) for key in part.keys}
        not_run |= {key: reason for key in part.keys if found.get(key) is None}
    return figures, not_run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    parser.add_argument("--model", type=Path, default=MODEL, help="a directory in Hugging Face layout")
    parser.add_argument("--run", type=Path, default=Path("runs/real"), help="the run folder of make real")
    parser.add_argument("--peer-python", help="an interpreter that has trl")
    parser.add_argument("--keep", type=Path, default=Path("runs/real-figures"), help="where figures are kept")
    parser.add_argument("--again", action="store_true", help="forget the kept figures first")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds for one part")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    given = parser.parse_args()
    options = Options(
        model=given.model, run=given.run, patience=given.patience, peer_python=given.peer_python
    )
    if given.again and given.keep.exists():
        shutil.rmtree(given.keep)
    with Run("real", "torch", "transformers") as run:
        figures, not_run = gather(given.only, options, given.keep)
        rows = [[key, str(figures[key]) if key not in not_run else f"- ({not_run[key]})"] for key in figures]
        table(["figure", "value"], rows)
        run.finish({**figures, "not_run": not_run}, as_json=given.json)


if __name__ == "__main__":
    main()
