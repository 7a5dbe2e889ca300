"""Continued pretraining: tokens a second beside transformers' own Trainer, and a context that grows.

::

    python -m benchmarks.pretrain --json

*Speed.* The same tiny Llama on the same rows, in float32 on one thread: the trainers `fsdp` and `local`, and
the peer, `transformers.Trainer` with AdamW. They take turns, round by round; `tokens_ratio_vs_peer` is the
peer's CPU seconds a step over those of `fsdp`, at equal attention (over the whole row); `null` is the peer
over itself in the round after.

*Context.* A model with random weights is trained on the Python of installed packages and on files of
assignments and assertions, at first in rows of `--short` tokens, then, with another base of its rotary
positions, of `--long`. A passkey is found when the most likely tokens are exactly the number that a name was
given at the beginning of a context of `--long` tokens, all else being other assignments; `passkey_before` and
`bits_before` (a byte of a package held out) are measured at that length before the second phase.
"""

import argparse
import random
import string
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from benchmarks.measure import Figure, Run, ratios, table
from ostinato.data.build import build
from ostinato.data.config import CorpusConfig, CorpusSource
from ostinato.data.corpus import Corpus, TextRow
from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.config import TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.local import DecoderModel
from ostinato.train.pretrain.bits import Bits, bits_of, held_out_rows
from ostinato.train.pretrain.config import PretrainPhase, PretrainProcess
from ostinato.train.pretrain.rows import text_packs
from ostinato.train.pretrain.run import TextModel, train

PACKAGES = ("rich", "starlette", "pytest", "httpx", "uvicorn")
HELD_OUT = "httpcore"
VOCABULARY = 2048
LOOKUPS = 4000
"""The files of assignments and assertions."""
NAMES = [one + other for one in string.ascii_lowercase for other in string.ascii_lowercase]
COUNTS = (2, 2, 3, 3, 4, 4, 6, 8, 12, 16, 32, 64, 80)
"""The names of a file."""
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "layers": 4, "heads": 4, "kv_heads": 4, "head_dim": 32,
    "intermediate_size": 352, "rope_theta": 10_000.0,
}  # fmt: skip
RATE, BATCH = 3e-3, 2048


def lookups(rng: random.Random, count: int) -> str:
    """Return a file that assigns a number to each of `count` names, and asserts them in another order."""
    values = {name: number(rng) for name in rng.sample(NAMES, count)}
    given = [f"{name} = {value}\n" for name, value in values.items()]
    asked = [f"assert {name} == {value}\n" for name, value in values.items()]
    return "".join([*given, *rng.sample(asked, len(asked))])


def number(rng: random.Random) -> str:
    return f"{rng.randrange(10, 100)}.{rng.randrange(10, 100)}"


def corpus(folder: Path) -> Path:
    """Build the corpus below `folder`, and the tokenizer in `folder / "start"`."""
    rng, packed = random.Random(1), folder / "lookups.zip"
    files = [lookups(rng, rng.choice(COUNTS)) for _ in range(LOOKUPS)]
    with zipfile.ZipFile(packed, "w") as archive:
        for number, text in enumerate(files):
            archive.writestr(f"lookups/{number}.py", text)
    code = [path.read_text() for path in sorted(Path(torch.__file__).parent.glob("*.py"))[:40]]
    Tokenizer.train([*files[:200], *code], VOCABULARY).save(folder / "start")
    sources = (
        CorpusSource(name="lookups", archives=(str(packed),), licence="MIT", together="file", weight=2.0),
        CorpusSource(name="code", packages=PACKAGES),
        CorpusSource(name="held", packages=(HELD_OUT,), held_out=True),
    )
    config = CorpusConfig(sources=sources, tokenizer=folder / "start")
    card = build(config, folder / "corpus", Tokenizer.load, lambda _: ())
    print(*(f"{source['name']}: {source['tokens']:,} tokens" for source in card["sources"]), sep=", ")
    return folder / "corpus"


def passkey(tokenizer: Tokenizer, length: int, seed: int) -> tuple[torch.Tensor, int]:
    """Return a context of `length` tokens that ends in the number which its first line gave to a name, and
    how many tokens the number has."""
    rng = random.Random(f"passkey {seed}")
    (key, *others), value = rng.sample(NAMES, len(NAMES)), number(rng)
    first, last = tokenizer.encode(f"# 0.py\n{key} = {value}\n"), tokenizer.encode(f"assert {key} == {value}")
    middle = tokenizer.encode("".join(f"{name} = {number(rng)}\n" for name in others))
    ids = [*first, *middle[: length - len(first) - len(last)], *last]
    assert len(ids) == length
    return torch.tensor(ids), len(tokenizer.encode(value))


@torch.no_grad()
def passkeys_found(decoder: Decoder, tokenizer: Tokenizer, length: int, count: int) -> float:
    """Return the share of passkeys whose every token is the most likely one after the tokens before it."""
    right = 0
    for seed in range(count):
        ids, last = passkey(tokenizer, length, seed)
        best = decoder(ids[None, :-1])[0][0, -last:].argmax(-1)
        right += bool((best == ids[-last:]).all())
    return right / count


def measured(checkpoint: Path, folder: Path, options: argparse.Namespace) -> tuple[float, Bits]:
    """Return the passkeys found and the bits a byte of held-out code, both at the long length."""
    decoder, tokenizer, _ = load(checkpoint)
    rows = held_out_rows(Corpus.open(folder / "corpus"), options.long, 24)
    nats = DecoderModel(decoder, folder / "unused").text_nats(list(text_packs(rows, 1, confined=True)))
    return passkeys_found(decoder, tokenizer, options.long, options.passkeys), bits_of(rows, nats, tokenizer)


def context(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train in short rows, then in long ones; measure before and after."""
    torch.manual_seed(0)
    shape = ModelConfig(**SHAPE, max_positions=options.short)
    tokenizer = Tokenizer.load(folder / "start")
    save(folder / "start", Decoder(shape), tokenizer, version=0)
    common: dict[str, Any] = {"corpus": folder / "corpus", "evaluate_every": 100, "save_every": 1000}
    short = PretrainPhase(length=options.short, tokens=options.tokens, batch_tokens=BATCH, learning_rate=RATE)
    long = PretrainPhase(
        length=options.long, tokens=options.more, batch_tokens=BATCH, learning_rate=RATE / 2,
        rope="base", rope_base=SHAPE["rope_theta"] * (options.long / options.short) ** 2,
    )  # fmt: skip
    train(PretrainProcess(start=folder / "start", out=folder / "short", phases=(short,), **common), _never)
    train(PretrainProcess(start=folder / "short", out=folder / "long", phases=(long,), **common), _never)
    figures: dict[str, Any] = {}
    for when, checkpoint in (("before", "short"), ("after", "long")):
        share, bits = measured(folder / checkpoint, folder, options)
        figures |= {f"passkey_{when}": share, f"bits_{when}": bits.all}
        figures[f"bits_by_position_{when}"] = bits.by_position
    return figures


def _never() -> bool:
    return False


class Ends(TrainerCallback):
    """The CPU seconds of this process at which the peer's steps ended."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.at.append(time.process_time())


def ours(model: TextModel, batches: Sequence[Sequence[TextRow]], *, confined: bool) -> float:
    """Return the CPU seconds of a step; the first is not counted."""
    ends = []
    for rows in batches:
        model.accumulate_text(list(text_packs(rows, 4096, confined=confined)), 1e-4)
        model.update(RATE, 1.0)
        ends.append(time.process_time())
    return float(np.mean([end - start for start, end in pairwise(ends)]))


def peer(checkpoint: Path, out: Path, batches: Sequence[Sequence[TextRow]]) -> float:
    """Return the CPU seconds of a step of transformers' Trainer on the same rows, without the first."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    rows = [torch.from_numpy(row.ids) for batch in batches for row in batch]
    ends = Ends()
    arguments = TrainingArguments(
        output_dir=str(out), per_device_train_batch_size=len(batches[0]), max_steps=len(batches),
        learning_rate=RATE, lr_scheduler_type="constant", weight_decay=0.1, adam_beta2=0.95, use_cpu=True,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    data: Any = [{"input_ids": ids, "labels": ids} for ids in rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[ends]).train()
    return float(np.mean([end - start for start, end in pairwise(ends.at)]))


def speed(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let ours and the peer take turns on the same rows."""
    torch.manual_seed(0)
    llama = folder / "llama"
    shape = ModelConfig(**SHAPE, qk_norm=False, max_positions=512)
    save(llama, Decoder(shape), Tokenizer.load(folder / "start"), version=0)
    rows: Iterator[TextRow] = Corpus.open(folder / "corpus").rows(512, seed=0)
    sharded = ShardedModel(llama, folder / "fsdp", TrainerConfig(kind="fsdp"), Ranks(rank=0, size=1))
    local = DecoderModel(load(llama)[0], folder / "local")
    seconds: dict[str, list[float]] = {each: [] for each in ("peer", "fsdp", "local", "fsdp, confined")}
    for _ in range(options.rounds):
        batches = [list(islice(rows, 8)) for _ in range(options.steps)]
        seconds["peer"].append(peer(llama, folder / "peer", batches))
        seconds["fsdp"].append(ours(sharded, batches, confined=False))
        seconds["local"].append(ours(local, batches, confined=False))
        seconds["fsdp, confined"].append(ours(sharded, batches, confined=True))
    figures: dict[str, Any] = {
        "tokens_ratio_vs_peer": ratios(seconds["peer"], seconds["fsdp"]),
        "local_ratio_vs_peer": ratios(seconds["peer"], seconds["local"]),
        "confined_ratio_vs_peer": ratios(seconds["peer"], seconds["fsdp, confined"]),
        "null": ratios(seconds["peer"][1:], seconds["peer"][:-1]),
    }
    rates = {f"tokens_per_cpu_s_{each}": 8 * 512 / float(np.median(some)) for each, some in seconds.items()}
    return figures | rates


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and with --json one line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretrain", description=__doc__)
    parser.add_argument("--short", type=int, default=256, help="tokens of a row at first")
    parser.add_argument("--long", type=int, default=1024, help="tokens of a row afterwards")
    parser.add_argument("--tokens", type=int, default=1_600_000, help="tokens of the first phase")
    parser.add_argument("--more", type=int, default=600_000, help="tokens of the second")
    parser.add_argument("--passkeys", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5, help="steps of a round, the first not counted")
    parser.add_argument("--only", choices=["speed", "context"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with Run("pretrain", "torch", "transformers") as run, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus(folder)
        figures: dict[str, Any] = {}
        if options.only != "context":
            figures |= speed(folder, options)
        if options.only != "speed":
            figures |= context(folder, options)
        quantiles = {name: value for name, value in figures.items() if isinstance(value, Figure)}
        shown = figures | {name: value.text(2) for name, value in quantiles.items()}
        table(("figure", "value"), [(name, str(value)) for name, value in shown.items()])
        plain = figures | {name: asdict(value) for name, value in quantiles.items()}
        run.finish(plain, as_json=options.json)


if __name__ == "__main__":
    main()
