"""Somebody else's agents on somebody else's weights: is every turn recorded so that a trainer finds it again?

    python -m tests.real.agents [--clients mini-swe-agent opencode] [--pebbles 10] [--context 8192]

`ostinato serve --model` serves a checkpoint by the embedded engine. Each client, started as a user would,
gets ten pebbles and one task in a clone of this repository, for `--patience` seconds each. What it achieves
does not matter. A client whose prompt is longer than the checkpoint's positions needs a larger `--context`:
then a copy is served whose positions reach as far, although nobody trained it there. The ids and
log-probabilities in the store do matter: every trainable turn is scored again by the trainer's own model, in
the context that the record gives it, and the differences are the figures. All of it runs in a network
namespace of its own; `make test-clients` installs the clients. It prints one JSON object.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.clients.alone import execute_alone, is_alone
from tests.clients.drive import CLIENTS, Client, Desk, attempt
from tests.real.install import MODEL

from ostinato.model.checkpoint import load
from ostinato.store import Store
from ostinato.tasks.pebble.generate import generate
from ostinato.tasks.pebble.write import write
from ostinato.train.batch import ScoredRow
from ostinato.train.local import DecoderModel
from ostinato.train.samples import rows_of, trainable

ROOT = Path(__file__).parents[2]
REAL_TASK = (
    "`ostinato arms list` prints the share of an arm as a whole percentage. Make it print one decimal."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running `ostinato serve`."""

    url: str
    key: str


def stretched(model: Path, context: int, directory: Path) -> Path:
    """Return the checkpoint, or a copy in `directory` whose positions reach as far as `context`."""
    config = json.loads((model / "config.json").read_text())
    if config["max_position_embeddings"] >= context:
        return model
    directory.mkdir()
    for path in model.iterdir():
        (directory / path.name).symlink_to(path.resolve())
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": context}))
    return directory


@contextmanager
def serving(model: Path, context: int, directory: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "ostinato.cli", "serve", "--model", str(model), "--port", "0"]
    options = ["--directory", str(directory), "--context", str(context), "--slots", "2"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "export " in line)
        named = dict(word.split("=", 1) for word in line.split() if "=" in word)
        yield Served(url=named["OSTINATO_URL"], key=named["OSTINATO_KEY"])
    finally:
        process.terminate()
        process.wait()


def tasks(directory: Path, pebbles: int) -> Iterator[tuple[str, Path, str]]:
    """Yield a name, a repository and an instruction for each task."""
    for number in range(pebbles):
        task = write(generate("fix", "seeds", 1000 + number), directory / f"pebble-{number}")
        yield f"pebble-{number}", task.directory / "environment" / "repo", task.instruction
    subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), str(directory / "real")], check=True)
    yield "real", directory / "real", REAL_TASK


def has_changed(repo: Path) -> bool:
    done = subprocess.run(["git", "status", "--porcelain"], cwd=repo, capture_output=True, check=True)
    return bool(done.stdout)


async def work(client: Client, served: Served, directory: Path, options: argparse.Namespace) -> Counter[str]:
    """Let a client do every task; return how many ended, ran out of time, and changed a file."""
    ends = Counter[str]()
    for name, repo, instruction in tasks(directory / "tasks", options.pebbles):
        home = directory / "homes" / name
        home.mkdir(parents=True)
        desk = Desk(home=home, repo=repo, gateway=served.url, key=served.key, task=instruction)
        status, _ = await attempt(client, desk, options.patience)
        ends["tasks"] += 1
        ends["ended" if status is not None else "out_of_time"] += 1
        ends["changed"] += has_changed(repo)
        print(f"{client.name} {name}: status {status}", file=sys.stderr, flush=True)
    return ends


def differences(store: Store, model: DecoderModel) -> tuple[Counter[str], list[float]]:
    """Return how many turns are trainable or why not, and |Δ log-probability| of each sampled token."""
    counts, found = Counter[str](), list[float]()
    for session in store.sessions():
        turns = store.turns(session.id)
        kept, others = trainable(turns)
        counts["turns"] += len(turns)
        counts["trainable"] += len(kept)
        counts.update({f"not: {reason}": len(some) for reason, some in others.items()})
        for sample in rows_of(kept, 1.0):
            scored = ScoredRow(ids=sample.ids, counted=sample.mask, temperatures=sample.temperatures)
            (scores,) = model.logprobs([scored])
            recorded = torch.tensor([sample.logprobs[place] for place in scored.places])
            found += (scores - recorded).abs().tolist()
    return counts, found


def measured(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        model = stretched(options.model, options.context, directory / "model")
        with serving(model, options.context, directory / "serve") as served:
            ends = asyncio.run(work(client, served, directory, options))
        decoder, _, _ = load(model)
        store = Store.open(directory / "serve" / "store.db")
        counts, found = differences(store, DecoderModel(decoder, directory))
        store.close()
    ranked = sorted(found)
    worst = {"p99": ranked[int(0.99 * (len(ranked) - 1))], "max": ranked[-1]} if ranked else {}
    return {**ends, **counts, "tokens": len(ranked), "difference": worst}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {client.name: client for client in CLIENTS}
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--clients", nargs="+", choices=sorted(known), default=["mini-swe-agent", "opencode"])
    parser.add_argument("--pebbles", type=int, default=10)
    parser.add_argument("--context", type=int, default=8192, help="tokens of a prompt and its completion")
    parser.add_argument("--patience", type=float, default=90.0, help="seconds for a task")
    options = parser.parse_args(arguments)
    if not is_alone():
        execute_alone([sys.executable, "-m", "tests.real.agents", *arguments])
    figures = {name: measured(known[name], options) for name in options.clients}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
