"""New weights into an engine that is sampling: what fails, what is wrong, how long anybody waits.

    python -m benchmarks.swap [--json] [--swaps 1000] [--clients 8]

A publisher in a process of its own commits one version after another to an object store in a folder; the
engine follows it as `ostinato.engine.server --follow` does, while clients stream completions without a break.
The next version is published once a token of the last one was seen.

- failed: requests that ended in an error.
- wrong: tokens whose id or log-probability is not, to the bit, what a fresh engine samples that was given the
  same request and the same versions at the same tokens. Checked are all completions that more than one
  version sampled, and `--sampled` of the others.
- pause: what a swap adds at a quantile. The time between the two tokens of one request on both sides of a
  swap, in decode steps (the median of all such times), less the same quantile between two tokens of one
  version. The latter is not one step either: a step may compute the prompts of others.
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

from benchmarks.engine import VOCABULARY, model
from benchmarks.measure import Run, quantile, table
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward, Packed
from ostinato.engine.embedded.slots import Reuse, SlotTable
from ostinato.engine.loader import SyncLoader
from ostinato.engine.server import SWITCH_S
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.types import Completion, GenerateRequest

KINDS = 16
"""Different weights there are; version `v` has those of `v % KINDS`."""
MAX_LEN = 192
CHANGE = 1e-3
"""Of the standard deviation of each tensor: what a step of the optimizer does, roughly."""


def weights(version: int) -> dict[str, torch.Tensor]:
    """The default model of `ostinato demo`, a little different in each version."""
    torch.manual_seed(0)
    base = model(experts=4)
    draw = torch.Generator().manual_seed(version % KINDS)
    tensors = {}
    for name, tensor in base.state_dict().items():
        noise = torch.randn(tensor.shape, generator=draw)
        tensors[name] = (
            tensor + noise * CHANGE * float(tensor.std()) if tensor.numel() > 1 else tensor.clone()
        )
    return tensors


def publish(folder: Path) -> None:
    """The publisher's process: a line on stdin publishes the next version; the answer says when it began."""
    publisher, kinds = Publisher(Objects.open(folder)), [weights(kind) for kind in range(KINDS)]
    for version, _ in enumerate(sys.stdin, start=1):
        began = time.monotonic()
        if version == 1:
            publisher.anchor(1, kinds[1])
        else:
            publisher.delta(version, kinds[version % KINDS])
        print(json.dumps([began, time.monotonic()]), flush=True)


@dataclass(slots=True)
class Seen:
    """What the clients saw."""

    done: list[tuple[GenerateRequest, Completion]] = field(default_factory=list)
    failed: int = 0
    first: dict[int, float] = field(default_factory=dict)
    """When the first token of a version was seen."""
    at_swaps: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    """Seconds between two tokens of one request: on both sides of a swap, and else."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def token(self, version: int, before: int | None, gap: float, now: float) -> None:
        if version not in self.first:
            self.first[version] = now
            self.changed.set()
        if before is not None:
            (self.between if version == before else self.at_swaps).append(gap)


async def client(engine: EmbeddedEngine, seen: Seen, number: int) -> None:
    """Streams one completion after the other; a part of them continue the one before."""
    rng, prompt = random.Random(number), tuple[int, ...]()
    for count in range(sys.maxsize):
        if len(prompt) < 10 or len(prompt) > MAX_LEN // 2 or rng.random() < 0.4:
            prompt = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(10, 60)))
        asked = GenerateRequest(
            request_id=f"{number}/{count}",
            session_id=str(number),
            prompt_ids=prompt,
            stop_ids=(),
            max_tokens=rng.randint(16, 64),
            seed=number * 1_000_000 + count,
        )
        try:
            done = await follow(engine, asked, seen)
        except Exception as error:
            print(f"{asked.request_id}: {error!r}", file=sys.stderr)
            seen.failed += 1
            continue
        seen.done.append((asked, done))
        prompt = asked.prompt_ids + done.ids


async def follow(engine: EmbeddedEngine, asked: GenerateRequest, seen: Seen) -> Completion:
    before, at = None, time.monotonic()
    async for event in engine.stream(asked):
        if isinstance(event, Completion):
            return event
        now = time.monotonic()
        seen.token(event.version, before, now - at, now)
        before, at = event.version, now
    raise RuntimeError("the stream ended without a completion")


async def drive(folder: Path, options: argparse.Namespace) -> tuple[Seen, list[float], dict[str, float]]:
    """All swaps; what was seen, seconds from publishing to the first token, the engine's counters."""
    command = [sys.executable, "-m", "benchmarks.swap", "--publish", str(folder)]
    publisher = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    await told(publisher)
    base = model(experts=4)
    base.load_state_dict(weights(1))
    engine = EmbeddedEngine(base, version=1, slots=options.clients, max_len=MAX_LEN)
    loader = SyncLoader(engine, Subscriber(Objects.open(folder)))
    await loader.catch_up()
    seen = Seen()
    tasks = [asyncio.create_task(client(engine, seen, i)) for i in range(options.clients)]
    tasks.append(asyncio.create_task(loader.follow()))
    waits = []
    for version in range(2, 2 + options.swaps):
        began = await told(publisher)
        while version not in seen.first:
            seen.changed.clear()
            await seen.changed.wait()
        waits.append(seen.first[version] - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stats = engine.stats() | loader.stats()
    await engine.aclose()
    publisher.kill()
    await publisher.wait()
    return seen, waits, stats


async def told(publisher: Process) -> float:
    """Publish the next version; when that began."""
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    publisher.stdin.write(b"\n")
    began, _ = json.loads(await publisher.stdout.readline())
    return float(began)


class Replay:
    """An engine of one slot that knows nothing of the request before, and takes the versions as recorded."""

    def __init__(self) -> None:
        decoder = model(experts=4)
        self._table = SlotTable(decoder.config, 1, MAX_LEN)
        self._forward = NativeForward(decoder, self._table)
        self._kinds: list[Packed] = [self._forward.prepare(weights(kind)) for kind in range(KINDS)]

    def wrong(self, asked: GenerateRequest, got: Completion) -> int:
        """Tokens of `got` that it does not sample."""
        self._table.admit(0, asked, Reuse(0, 0), 0)
        slot = np.zeros(1, np.int64)
        for version in got.versions:
            self._forward.use(self._kinds[version % KINDS])
            self._forward.advance(slot, version)
        again = self._table.completion(0)
        pairs = zip(got.ids, got.logprobs, again.ids, again.logprobs, strict=True)
        return sum((id_, logprob) != (same, equal) for id_, logprob, same, equal in pairs)


def check(seen: Seen, sampled: int) -> tuple[int, int]:
    """Tokens checked, and how many of them are wrong."""
    replay = Replay()
    mixed = [pair for pair in seen.done if len(set(pair[1].versions)) > 1]
    whole = [pair for pair in seen.done if len(set(pair[1].versions)) == 1]
    chosen = mixed + random.Random(0).sample(whole, min(sampled, len(whole)))
    return sum(len(got.ids) for _, got in chosen), sum(replay.wrong(asked, got) for asked, got in chosen)


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
        seen, waits, stats = asyncio.run(drive(Path(folder), options))
    checked, wrong = check(seen, options.sampled)
    step = quantile(seen.between).value
    at_swaps, others = ([gap / step for gap in gaps] for gaps in (seen.at_swaps, seen.between))
    rows = {
        "publish to token, ms": [wait * 1e3 for wait in waits],
        "to the token after a swap, steps": at_swaps,
        "to every other token, steps": others,
    }
    table(
        ["", "p50", "p99", "n"],
        [[name, quantile(v).text(2), quantile(v, 0.99).text(2), str(len(v))] for name, v in rows.items()],
    )
    found = {
        "swaps": int(stats["swaps"]),
        "failed_requests": seen.failed + int(stats["failed"]),
        "wrong_tokens": wrong,
        "checked_tokens": checked,
        "requests": len(seen.done),
        "tokens": int(stats["tokens"]),
        "step_ms": round(step * 1e3, 3),
        "pause_p50_steps": round(quantile(at_swaps).value - quantile(others).value, 3),
        "pause_p99_steps": round(quantile(at_swaps, 0.99).value - quantile(others, 0.99).value, 3),
        "at_swaps_p99_steps": round(quantile(at_swaps, 0.99).value, 3),
        "others_p99_steps": round(quantile(others, 0.99).value, 3),
        "publish_to_token_p50_s": round(quantile(waits).value, 4),
        "publish_to_token_p99_s": round(quantile(waits, 0.99).value, 4),
    }
    print({name: value for name, value in found.items() if not name.endswith(("steps", "_s"))})
    run.finish(found, as_json=options.json)


if __name__ == "__main__":
    chosen = arguments()
    torch.set_num_threads(1)
    if chosen.publish is not None:
        publish(chosen.publish)
    else:
        with Run("swap", "torch") as opened:
            main(opened, chosen)
