"""The choice of a base: does `ostinato select` rank models whose order is known?

    python -m benchmarks.select [--model DIR] [--json]

The models are tiny ones of one shape, trained for 0, 40, 160 and 640 steps (`--steps`) on code of the
standard library and on files through changes; SmolLM2-135M (`--model`, which `make real-short` installs); and
SmolLM2 damaged by noise on each matrix. What is known beforehand are pairs: more training on such text is
better than less, SmolLM2 is better than itself damaged, and a real model than random weights. A pair is
ranked as known when the difference has the known sign and its 95 % interval leaves 0 out. The libraries are
modules of the standard library, each as an archive of its own; the codebase is a part of this package, which
none has seen.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.measure import Run, table
from ostinato.bench.select.state import END, prompt, tracked
from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import copy_companions
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.batch import Row
from ostinato.train.local import DecoderModel
from ostinato.train.policy import supervised_step

ROOT = Path(__file__).parents[1]
SMOLLM2 = ROOT / ".clients" / "smollm2" / "model"
LIBRARY = Path(json.__file__).parents[1]
MODULES = (
    "textwrap", "shutil", "statistics", "random", "string", "calendar", "heapq", "bisect", "fnmatch", "glob",
    "html", "fractions", "copy", "difflib", "ipaddress", "posixpath", "operator", "functools", "base64",
    "shlex", "uuid", "pprint", "inspect", "ast", "os", "dataclasses", "contextlib", "tempfile", "urllib",
    "csv",
)  # fmt: skip
STEPS = (0, 40, 160, 640)
ROWS, WINDOW, RATE, RISE = 4, 192, 3e-3, 10
NOISE = 0.5
"""The standard deviation of the damage, in that of each matrix."""


def known(tiny: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs whose order is known, by instrument, the better one first."""
    return {
        "loss": [
            *((more, less) for less, more in pairwise(tiny)),
            ("smol", tiny[-1]),
            ("smol", "damaged"),
        ],
        "state": [("smol", "damaged"), ("smol", tiny[0]), (tiny[-1], tiny[0])],
        "knowledge": [("smol", "damaged"), ("smol", tiny[0]), ("smol", tiny[-1])],
    }


def code() -> dict[str, str]:
    """Return files of the standard library that are plain code."""
    files = {path.name: path.read_text() for path in sorted(LIBRARY.glob("*.py"))[::2]}
    return {name: text for name, text in files.items() if 2_000 < len(text) < 60_000}


def rows(tokenizer: Tokenizer, files: Mapping[str, str]) -> Iterator[Row]:
    """Yield windows of code and files through one change, in turn, without end."""
    rng, seed = Random(0), 0
    ids = {name: tokenizer.encode_untrusted(text) for name, text in files.items()}
    while True:
        name = rng.choice(list(ids))
        start = rng.randrange(max(1, len(ids[name]) - WINDOW))
        some = tuple(ids[name][start : start + WINDOW])
        yield Row(ids=some, weights=(1.0,) * len(some))
        seed += 1
        (item,) = tracked(files, number=1, lines=6, changes=1, seed=seed).items
        some = tuple(tokenizer.encode_untrusted(prompt(item) + item.states[-1] + END)[-2 * WINDOW :])
        yield Row(ids=some, weights=(1.0,) * len(some))


def tiny_models(folder: Path, kept: Sequence[int]) -> list[str]:
    """Train one model, keep it at each number of steps, and return the names of what was kept."""
    files = code()
    tokenizer = Tokenizer.train(files.values(), 1024)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=64, layers=3, heads=2, kv_heads=2, head_dim=32,
        intermediate_size=176, max_positions=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    decoder, drawn = Decoder(config), rows(tokenizer, files)
    model = DecoderModel(decoder, folder / "states")
    for step in range(max(kept) + 1):
        if step in kept:
            save(folder / f"tiny-{step}", decoder, tokenizer, version=0)
        supervised_step(model, [next(drawn) for _ in range(ROWS)], RATE * min(1.0, (step + 1) / RISE))
    return [f"tiny-{steps}" for steps in sorted(kept)]


def damaged(model: Path, folder: Path) -> None:
    """Write a copy of a checkpoint with noise on each matrix."""
    decoder, tokenizer, _ = load(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in decoder.parameters():
            if weight.dim() > 1:
                weight.add_(NOISE * weight.std() * torch.randn_like(weight))
    save(folder, decoder, tokenizer, version=0)
    copy_companions(model, folder)


def archives(folder: Path) -> Iterator[Path]:
    for name in MODULES:
        path = folder / f"{name}-1.tar.gz"
        source = next(each for each in (LIBRARY / f"{name}.py", LIBRARY / name) if each.exists())
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, f"{name}-1/{source.name}")
        yield path


def ranked(found: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> dict[str, bool]:
    """Return, for each pair whose order is known, whether it was told apart in that order."""
    sign = 1.0 if found["instrument"] == "knowledge" else -1.0
    less = {(pair["first"], pair["second"]): pair["less"] for pair in found["pairs"]}
    less |= {(b, a): {**each, "value": -each["value"]} for (a, b), each in less.items()}
    return {
        f"{better} before {worse}": bool(
            each["low"] is not None and not each["low"] <= 0 <= each["high"] and sign * each["value"] > 0
        )
        for better, worse in pairs
        for each in [less[better, worse]]
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=SMOLLM2, help="SmolLM2 in Hugging Face layout")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=STEPS, help="of training, two numbers or more"
    )
    parser.add_argument("--questions", type=int, default=12, help="on each library, at most")
    parser.add_argument("--files", type=int, default=24, help="that are tracked, of six lines each")
    parser.add_argument("--code-bytes", type=int, default=40_000, help="of code to predict")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (options.model / "config.json").exists():
        parser.error(f"{options.model} holds no model: run `make real-short`, or name one with --model")
    torch.set_num_threads(1)
    started = time.monotonic()
    with Run("select", "torch") as run, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tiny = tiny_models(folder, options.steps)
        damaged(options.model, folder / "damaged")
        (folder / "smol").symlink_to(options.model.resolve())
        libraries = [word for path in archives(folder) for word in ("--library", f"{path}@2020-01-01")]
        command = [sys.executable, "-m", "ostinato", "select", *tiny, "smol", "damaged", *libraries]
        command += ["--code", str(ROOT / "src" / "ostinato" / "bench"), "--lines", "6", "--changes", "1"]
        sizes = {name: getattr(options, name) for name in ("questions", "files", "code_bytes")}
        command += [word for name, n in sizes.items() for word in (f"--{name.replace('_', '-')}", str(n))]
        command += ["--window", "512", "--json"]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
        tables = {each["instrument"]: each for each in json.loads(done.stdout)}
        pairs = {name: ranked(each, known(tiny)[name]) for name, each in tables.items()}
        for name, each in tables.items():
            print(f"\n{name}: {each['unit']}, hash {each['hash']}, {each['facts']}")
            figures = [(model, each["figures"][model]) for model in each["order"]]
            cells = [
                (
                    model,
                    f"{f['value']:.3f}",
                    "too few" if f["low"] is None else f"[{f['low']:.3f}, {f['high']:.3f}]",
                    f"{each['costs'][model]['cpu_s']:.0f}",
                )
                for model, f in figures
            ]
            table(("model", each["unit"], "95 %", "CPU s"), cells)
            print("; ".join(f"{pair}: {'yes' if yes else 'NO'}" for pair, yes in pairs[name].items()))
        as_known = all(yes for some in pairs.values() for yes in some.values())
        minutes = round((time.monotonic() - started) / 60, 1)
        print(f"\nranked as known: {as_known}, in {minutes} minutes")
        figures_json = {
            "ranked_as_known": as_known,
            "pairs": pairs,
            "minutes": minutes,
            "tables": tables,
            **sizes,
        }
        run.finish(figures_json, as_json=options.json)
    return 0 if as_known else 1


if __name__ == "__main__":
    sys.exit(main())
