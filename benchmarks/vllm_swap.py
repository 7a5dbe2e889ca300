"""New weights for a vLLM that serves a real checkpoint under traffic: failures and wrong greedy tokens.

    python -m benchmarks.vllm_swap --model DIR [--json] [--swaps 50] [--clients 4] [--dtype float32]

A publisher commits one bf16 version after another to an object store in a folder; `SyncLoader` follows it
while clients ask for greedy completions without a break. The next version comes once every client has a
completion that this version sampled alone. Version `v` has the weights of `v % KINDS`, in each of which one
value of a hundred differs from the checkpoint, so that the greedy tokens differ too.

`swaps_wrong` counts tokens of completions of one version that differ from those of a fresh vLLM, started on a
directory with the weights of that version.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from benchmarks.measure import Run, quantile
from benchmarks.vllm_logprobs import ENVIRONMENT, TEXTS
from benchmarks.vllm_peer import PYTHON, missing
from ostinato.engine.base import EngineError
from ostinato.engine.loader import SyncLoader
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.tensor_files import TensorFiles, copy_companions, write_tensors
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.types import Completion, GenerateRequest, Sampling

KINDS = 3
"""The number of different weights."""
MAX_LEN, TOKENS = 128, 8
SHARE, SCALE = 0.01, 0.5
"""The share of values that a kind changes, and the largest change as a part of the value."""
Weights = Mapping[str, torch.Tensor]


def weights(base: Weights, kind: int) -> Weights:
    """Return the checkpoint with some values changed."""
    draw = torch.Generator().manual_seed(kind)
    changed = {}
    for name, tensor in base.items():
        flat = tensor.flatten().clone()
        at = torch.randint(len(flat), (int(len(flat) * SHARE) + 1,), generator=draw)
        factors = 1 + SCALE * (2 * torch.rand(len(at), generator=draw) - 1)
        flat[at] = (flat[at].float() * factors).to(flat.dtype)
        changed[name] = flat.view(tensor.shape)
    return changed


class Client:
    """One client after another completion; `done` holds them all."""

    def __init__(
        self, engine: VllmEngine, number: int, prompt: tuple[int, ...], progress: asyncio.Event
    ) -> None:
        self._engine, self._number, self._prompt, self._progress = engine, number, prompt, progress
        self.done: list[Completion] = []
        self.failed = 0

    async def run(self) -> None:
        while True:
            try:
                self.done.append(await self._engine.generate(asked(self._number, self._prompt)))
            except EngineError as error:
                print(f"client {self._number}: {error}", flush=True)
                self.failed += 1
                await asyncio.sleep(1)
            self._progress.set()

    def alone(self, version: int) -> bool:
        """Return whether this version sampled a completion of this client alone."""
        return any(set(completion.versions) == {version} for completion in self.done[-3:])


def asked(number: int, prompt: tuple[int, ...]) -> GenerateRequest:
    return GenerateRequest(
        request_id=str(number),
        session_id=str(number),
        prompt_ids=prompt,
        stop_ids=(),
        max_tokens=TOKENS,
        sampling=Sampling(temperature=0.0),
    )


@asynccontextmanager
async def vllm(model: Path, options: argparse.Namespace) -> AsyncGenerator[VllmEngine]:
    with tempfile.TemporaryDirectory() as logs:
        engine = await VllmEngine.start(
            model,
            Path(logs),
            python=str(PYTHON),
            max_len=MAX_LEN,
            slots=options.clients,
            dtype=options.dtype,
            environment=ENVIRONMENT,
        )
        try:
            yield engine
        finally:
            await engine.aclose()


async def drive(
    kinds: list[Weights], prompts: list[tuple[int, ...]], options: argparse.Namespace
) -> tuple[list[Client], dict[str, float], list[float]]:
    """Do all swaps under traffic; return the clients, the engine's counters and the seconds of each swap."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        publisher = Publisher(Objects.open(folder))
        async with vllm(options.model, options) as engine:
            loader = SyncLoader(engine, Subscriber(Objects.open(folder)))
            progress = asyncio.Event()
            clients = [Client(engine, number, prompt, progress) for number, prompt in enumerate(prompts)]
            tasks = [asyncio.create_task(client.run()) for client in clients]
            tasks.append(asyncio.create_task(loader.follow()))
            for version in range(1, options.swaps + 1):
                began = time.monotonic()
                publish = publisher.anchor if version == 1 else publisher.delta
                await asyncio.to_thread(publish, version, kinds[version % KINDS])
                while not all(client.alone(version) for client in clients):
                    progress.clear()
                    await progress.wait()
                took.append(time.monotonic() - began)
                print(f"version {version}: {took[-1]:.1f} s", flush=True)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stats = engine.stats() | loader.stats()
    return clients, stats, took


async def fresh(
    kind: Weights, prompts: list[tuple[int, ...]], options: argparse.Namespace
) -> list[tuple[int, ...]]:
    """Return the greedy tokens of a vLLM that was started on these weights."""
    with tempfile.TemporaryDirectory() as folder:
        copy_companions(options.model, Path(folder))
        write_tensors(Path(folder), kind.items())
        async with vllm(Path(folder), options) as engine:
            done = [await engine.generate(asked(number, prompt)) for number, prompt in enumerate(prompts)]
    return [completion.ids for completion in done]


async def main(run: Run, options: argparse.Namespace) -> None:
    tokenizer = Tokenizer.load(options.model)
    prompts = [tuple(tokenizer.encode(TEXTS[i % len(TEXTS)])) for i in range(options.clients)]
    base = {name: tensor.to(torch.bfloat16) for name, tensor in TensorFiles.open(options.model)}
    kinds = [weights(base, kind) for kind in range(KINDS)]
    clients, stats, took = await drive(kinds, prompts, options)
    expected = [await fresh(kind, prompts, options) for kind in kinds]
    wrong = checked = 0
    for number, client in enumerate(clients):
        for completion in client.done:
            versions = set(completion.versions)
            if len(versions) == 1 and (version := versions.pop()) > 0:
                pairs = zip(completion.ids, expected[version % KINDS][number], strict=True)
                checked += len(completion.ids)
                wrong += sum(one != other for one, other in pairs)
    report = {
        "model": options.model.name,
        "dtype": options.dtype,
        "swaps": int(stats["swaps"]),
        "swaps_failed": int(stats["refused"]) + sum(client.failed for client in clients),
        "swaps_wrong": wrong,
        "checked_tokens": checked,
        "different_kinds": len({tuple(tokens) for tokens in expected}),
        "completions": sum(len(client.done) for client in clients),
        "mixed": sum(len(set(each.versions)) > 1 for client in clients for each in client.done),
        "publish_to_completions_p50_s": round(quantile(took).value, 2),
    }
    print(report)
    run.finish(report, as_json=options.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a directory in Hugging Face layout")
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    if (why := missing()) is not None:
        raise SystemExit(why)
    torch.set_num_threads(1)
    with Run("vllm_swap", "torch") as opened:
        asyncio.run(main(opened, chosen))
