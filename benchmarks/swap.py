"""New weights for an engine that is sampling: failures, wrong tokens, and the length of the pause.

    python -m benchmarks.swap [--json] [--swaps 1000] [--clients 8]

The engine is the embedded one; `benchmarks.vllm_swap` is the same question to a vLLM with a real checkpoint.

A publisher in a process of its own commits one version after another to an object store in a folder; the
engine follows it as `ostinato.engine.server --follow` does, while clients stream completions without a break.
The next version is published once a token of the last one has arrived.

- failed: requests that ended in an error.
- wrong: tokens whose id or log-probability differs in any bit from those of a fresh engine with the same
  request and the same versions at the same tokens. All completions that more than one version sampled are
  checked, and `--sampled` of the others.
- pause: the time that a swap adds at a quantile. It is the time between the two tokens of one request on both
  sides of a swap, in decode steps (the median of all such times), less the same quantile between two tokens
  of one version, which is more than one step too, because a step may compute the prompts of others.
- publish to token: from the call that publishes a version to the first token sampled by it.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from benchmarks.engine import SHAPES, model
from benchmarks.measure import Run, quantile, table
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward, Packed
from ostinato.engine.embedded.slots import Reuse, SlotTable
from ostinato.engine.loader import SyncLoader
from ostinato.engine.server import SWITCH_S
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.types import Completion, GenerateRequest, Sampling

SHAPE = SHAPES["demo"]
KINDS = 16
"""The number of different weights; version `v` has those of `v % KINDS`."""
MAX_LEN = 192
CHANGE = 1e-3
"""The change as a part of each tensor's standard deviation, roughly that of an optimizer step."""


def weights(version: int) -> dict[str, torch.Tensor]:
    """Return the default model of `ostinato demo`, a little different in each version."""
    torch.manual_seed(0)
    base = model(SHAPE)
    draw = torch.Generator().manual_seed(version % KINDS)
    tensors = {}
    for name, tensor in base.state_dict().items():
        noise = torch.randn(tensor.shape, generator=draw)
        tensors[name] = (
            tensor + noise * CHANGE * float(tensor.std()) if tensor.numel() > 1 else tensor.clone()
        )
    return tensors


def publish(folder: Path) -> None:
    """Run the publisher's process: for each line on stdin publish the next version and print its start."""
    publisher, kinds = Publisher(Objects.open(folder)), [weights(kind) for kind in range(KINDS)]
    for version, _ in enumerate(sys.stdin, start=1):
        began = time.monotonic()
        if version == 1:
            publisher.anchor(1, kinds[1])
        else:
            publisher.delta(version, kinds[version % KINDS])
        print(json.dumps([began, time.monotonic()]), flush=True)


@dataclass(slots=True)
class Observed:
    """The observations of the clients."""

    done: list[tuple[GenerateRequest, Completion]] = field(default_factory=list)
    failed: int = 0
    first: dict[int, float] = field(default_factory=dict)
    """The time of the first token of each version."""
    at_swaps: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    """The seconds between two tokens of one request, on both sides of a swap and elsewhere."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def token(self, version: int, before: int | None, gap: float, now: float) -> None:
        if version not in self.first:
            self.first[version] = now
            self.changed.set()
        if before is not None:
            (self.between if version == before else self.at_swaps).append(gap)


async def client(engine: EmbeddedEngine, observed: Observed, number: int) -> None:
    """Stream one completion after the other; some continue the one before."""
    rng, prompt = random.Random(number), tuple[int, ...]()
    for count in range(sys.maxsize):
        if len(prompt) < 10 or len(prompt) > MAX_LEN // 2 or rng.random() < 0.4:
            prompt = tuple(rng.randrange(SHAPE.vocab_size) for _ in range(rng.randint(10, 60)))
        request = GenerateRequest(
            request_id=f"{number}/{count}",
            session_id=str(number),
            prompt_ids=prompt,
            stop_ids=(),
            max_tokens=rng.randint(16, 64),
            sampling=Sampling(seed=number * 1_000_000 + count),
        )
        try:
            done = await follow(engine, request, observed)
        except Exception as error:
            print(f"{request.request_id}: {error!r}", file=sys.stderr)
            observed.failed += 1
            continue
        observed.done.append((request, done))
        prompt = request.prompt_ids + done.ids


async def follow(engine: EmbeddedEngine, request: GenerateRequest, observed: Observed) -> Completion:
    before, at = None, time.monotonic()
    async for event in engine.stream(request):
        if isinstance(event, Completion):
            return event
        now = time.monotonic()
        observed.token(event.version, before, now - at, now)
        before, at = event.version, now
    raise RuntimeError("the stream ended without a completion")


async def drive(folder: Path, options: argparse.Namespace) -> tuple[Observed, list[float], dict[str, float]]:
    """Do all swaps; return observations, seconds from publishing to first token, engine counters."""
    command = [sys.executable, "-m", "benchmarks.swap", "--publish", str(folder)]
    publisher = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    await publish_next(publisher)
    base = model(SHAPE)
    base.load_state_dict(weights(1))
    engine = EmbeddedEngine(base, version=1, slots=options.clients, max_len=MAX_LEN)
    loader = SyncLoader(engine, Subscriber(Objects.open(folder)))
    await loader.catch_up()
    observed = Observed()
    tasks = [asyncio.create_task(client(engine, observed, i)) for i in range(options.clients)]
    tasks.append(asyncio.create_task(loader.follow()))
    waits = []
    for version in range(2, 2 + options.swaps):
        began = await publish_next(publisher)
        while version not in observed.first:
            observed.changed.clear()
            await observed.changed.wait()
        waits.append(observed.first[version] - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stats = engine.stats() | loader.stats()
    await engine.aclose()
    publisher.kill()
    await publisher.wait()
    return observed, waits, stats


async def publish_next(publisher: Process) -> float:
    """Publish the next version; return the time at which that began."""
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    publisher.stdin.write(b"\n")
    began, _ = json.loads(await publisher.stdout.readline())
    return float(began)


class Replay:
    """An engine of one slot without memory of earlier requests, which takes the versions as recorded."""

    def __init__(self) -> None:
        decoder = model(SHAPE)
        self._table = SlotTable(decoder.config, 1, MAX_LEN)
        self._forward = NativeForward(decoder, self._table)
        self._kinds: list[Packed] = [self._forward.prepare(weights(kind)) for kind in range(KINDS)]

    def wrong(self, request: GenerateRequest, completion: Completion) -> int:
        """Return the number of tokens of `completion` that it does not sample."""
        self._table.admit(0, request, Reuse(0, 0), 0)
        slot = np.zeros(1, np.int64)
        for version in completion.versions:
            self._forward.use(self._kinds[version % KINDS])
            self._forward.advance(slot, version)
        again = self._table.completion(0)
        pairs = zip(completion.ids, completion.logprobs, again.ids, again.logprobs, strict=True)
        return sum((id_, logprob) != (same, equal) for id_, logprob, same, equal in pairs)


def check(observed: Observed, sampled: int) -> tuple[int, int]:
    """Return the number of checked tokens, and of wrong ones among them."""
    replay = Replay()
    mixed = [pair for pair in observed.done if len(set(pair[1].versions)) > 1]
    whole = [pair for pair in observed.done if len(set(pair[1].versions)) == 1]
    chosen = mixed + random.Random(0).sample(whole, min(sampled, len(whole)))
    return sum(len(completion.ids) for _, completion in chosen), sum(
        replay.wrong(request, completion) for request, completion in chosen
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--sampled", type=int, default=1000, help="completions of one version to check")
    parser.add_argument("--publish", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


def main(run: Run, options: argparse.Namespace) -> None:
    sys.setswitchinterval(SWITCH_S)
    with tempfile.TemporaryDirectory() as folder:
        observed, waits, stats = asyncio.run(drive(Path(folder), options))
    checked, wrong = check(observed, options.sampled)
    step = quantile(observed.between).value
    at_swaps, others = ([gap / step for gap in gaps] for gaps in (observed.at_swaps, observed.between))
    rows = {
        "publish to token, ms": [wait * 1e3 for wait in waits],
        "to the token after a swap, steps": at_swaps,
        "to every other token, steps": others,
    }
    table(
        ["", "p50", "p99", "n"],
        [[name, quantile(v).text(2), quantile(v, 0.99).text(2), str(len(v))] for name, v in rows.items()],
    )
    report = {
        "swaps": int(stats["swaps"]),
        "failed_requests": observed.failed + int(stats["failed"]),
        "wrong_tokens": wrong,
        "checked_tokens": checked,
        "requests": len(observed.done),
        "tokens": int(stats["tokens"]),
        "step_ms": round(step * 1e3, 3),
        "pause_p50_steps": round(quantile(at_swaps).value - quantile(others).value, 3),
        "pause_p99_steps": round(quantile(at_swaps, 0.99).value - quantile(others, 0.99).value, 3),
        "at_swaps_p99_steps": round(quantile(at_swaps, 0.99).value, 3),
        "others_p99_steps": round(quantile(others, 0.99).value, 3),
        "publish_to_token_p50_s": round(quantile(waits).value, 4),
        "publish_to_token_p99_s": round(quantile(waits, 0.99).value, 4),
    }
    print({name: value for name, value in report.items() if not name.endswith(("steps", "_s"))})
    run.finish(report, as_json=options.json)


if __name__ == "__main__":
    chosen = arguments()
    torch.set_num_threads(1)
    if chosen.publish is not None:
        publish(chosen.publish)
    else:
        with Run("swap", "torch") as opened:
            main(opened, chosen)
