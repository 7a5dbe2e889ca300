"""The time that the gateway adds to a request, beside LiteLLM's proxy with the same requests and upstream.

    python -m benchmarks.gateway [--json] [--blocks 6] [--windows 16] [--warm 34000] [--requests 18000]

The load is sessions of eight turns whose history grows; each proxy has one worker. The gateway records every
turn before it responds; LiteLLM records nothing. The three sides (upstream alone, the gateway, LiteLLM) take
turns block by block, so that other load affects all; a figure is the median over the blocks with its 95 %
order-statistic interval (see `measure.py`). LiteLLM is installed once into `.clients/litellm`.

- added p50: one request at a time, median of a block minus that of the upstream alone.
- throughput: requests a second with 32 under way; `cpu_ratio` compares the CPU time of a request.
- half saturation: requests due at even distances at half the gateway's rate; p99 from the due time of each,
  minus the upstream's own p99 at that rate in the neighbouring window (`--windows` of 2 s each).
- lost turns: acknowledged turns that are not in the store after `kill -9` under load.
- memory: an hour of five requests per second (`--requests`), as fast as possible, after `--warm` requests
  have filled the caches (which hold 4,000 sessions).
"""

import argparse
import asyncio
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks import gateway_peers as peers
from benchmarks.http_load import (
    Connection,
    ResponseError,
    closed_loop,
    connections,
    latency,
    open_loop,
    reach,
    request,
    request_stream,
)
from benchmarks.measure import Figure, Run, quantile, ratios, table
from ostinato.store import Store

AT_ONCE = 32
TURNS = 8
SIDES = ("upstream", "ours", "litellm")
SYSTEM = "You are a coding agent. Read before you edit, and run the tests when you are done.\n" * 16
RESULT = "def add(a, b):\n    return a - b\n" * 12

Streams = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The figures of one block, by side."""

    added_ms: dict[str, float] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)
    cpu_ms: dict[str, float] = field(default_factory=dict)


def bodies(response: str, *, stream: bool) -> list[bytes]:
    """Return the requests of one session."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "add subtracts. " + RESULT},
    ]
    made = []
    for _ in range(TURNS):
        body: dict[str, Any] = {
            "model": "ostinato",
            "messages": messages,
            "max_tokens": peers.RESPONSE_TOKENS,
        }
        made.append(json.dumps(body | ({"stream": True} if stream else {})).encode())
        messages = [
            *messages,
            {"role": "assistant", "content": response},
            {"role": "user", "content": RESULT},
        ]
    return made


async def measure(sides: Mapping[str, peers.Peer], streams: Streams, count: int) -> list[Block]:
    """Return blocks in which the sides take turns; the first one warms up."""
    blocks: list[Block] = []
    for _ in range(1 + count):
        block = Block()
        await _one_at_a_time(sides, streams, block)
        for name, side in sides.items():
            before = side.cpu_s()
            block.rate[name] = await closed_loop(side.port, streams, at_once=AT_ONCE, seconds=2.0)
            block.cpu_ms[name] = 1e3 * (side.cpu_s() - before) / (2.0 * block.rate[name])
        blocks.append(block)
    return blocks[1:]


async def added_p99_ms(
    sides: Mapping[str, peers.Peer], streams: Streams, rate: float, windows: int
) -> list[float]:
    """Return the gateway's p99 minus the upstream's, by windows in turns at `rate` per second."""
    differences = []
    for _ in range(windows):
        p99 = {
            name: float(np.quantile(await open_loop(sides[name].port, streams, rate=rate, seconds=2.0), 0.99))
            for name in SIDES[:2]
        }
        differences.append(p99["ours"] - p99["upstream"])
    return differences


async def _one_at_a_time(sides: Mapping[str, peers.Peer], streams: Streams, block: Block) -> None:
    """Send each request to all sides in turn, so that neighbours are compared."""
    latencies: dict[str, list[float]] = {name: [] for name in sides}
    async with AsyncExitStack() as stack:
        open_connections = [
            await stack.enter_async_context(connections(side.port, 1)) for side in sides.values()
        ]
        for request_bytes, _ in zip(streams(), range(4 * TURNS), strict=False):
            for name, (connection,) in zip(sides, open_connections, strict=True):
                latencies[name].append(await latency(connection, request_bytes))
    alone = float(np.median(latencies["upstream"]))
    block.added_ms.update({name: float(np.median(each)) - alone for name, each in latencies.items()})


async def memory(gateway: peers.Peer, streams: Streams, warm: int, count: int) -> dict[str, float]:
    """Return the MB of the gateway after `warm` requests, which fill its caches, and after `count` more."""
    sizes = []
    for requests in (warm, count):
        done = 0
        while done < requests:
            done += int(2.0 * await closed_loop(gateway.port, streams, at_once=AT_ONCE, seconds=2.0))
        sizes.append(gateway.rss_mb())
    return {"rss_mb_warm": sizes[0], "rss_mb_end": sizes[1], "requests": done}


async def lost(gateway: peers.Peer, store: Path, turns: Sequence[bytes]) -> tuple[int, int]:
    """Return the turns acknowledged before a `kill -9` under load, and the number of lost ones among them."""
    acknowledged: set[str] = set()

    async def developer(connection: Connection) -> None:
        while True:
            session = uuid.uuid4().hex
            for body in turns:
                response = json.loads(await connection.send(request(body, peers.KEY, session)))["ostinato"]
                acknowledged.add(f"{response['session']}/{response['turn']}")

    async with connections(gateway.port, AT_ONCE) as free:
        load = [asyncio.create_task(developer(connection)) for connection in free]
        await asyncio.sleep(3.0)
        gateway.process.kill()
        ends = await asyncio.gather(*load, return_exceptions=True)
    assert all(isinstance(end, ResponseError) for end in ends), ends
    record = Store.open(store)
    stored = record.turns_of({turn.rpartition("/")[0] for turn in acknowledged})
    record.close()
    return len(acknowledged), len(acknowledged - {turn.id for each in stored.values() for turn in each})


def compare(blocks: Sequence[Block], name: str) -> dict[str, Figure]:
    """Return the ratios of the two proxies: ours / theirs for throughput, theirs / ours for cost."""

    def of(field_: str, side: str) -> list[float]:
        return [getattr(block, field_)[side] for block in blocks]

    return {
        f"{name}_ratio_vs_litellm": ratios(of("rate", "ours"), of("rate", "litellm")),
        f"{name}_cpu_ratio_vs_litellm": ratios(of("cpu_ms", "litellm"), of("cpu_ms", "ours")),
        f"{name}_added_p50_ratio_vs_litellm": ratios(of("added_ms", "ours"), of("added_ms", "litellm")),
        **{f"{name}_per_s_{side}": quantile(of("rate", side)) for side in SIDES},
        **{f"{name}_added_p50_ms_{side}": quantile(of("added_ms", side)) for side in SIDES[1:]},
        **{f"{name}_cpu_ms_{side}": quantile(of("cpu_ms", side)) for side in SIDES},
    }


async def everything(
    directory: Path, options: argparse.Namespace
) -> tuple[dict[str, Figure], dict[str, Any]]:
    tokens = peers.checkpoint(directory)
    response = "".join(text for _, text in tokens)
    plain, streamed = bodies(response, stream=False), bodies(response, stream=True)
    with ExitStack() as stack:
        engine = stack.enter_context(peers.upstream(tokens))
        ours = stack.enter_context(peers.ostinato(directory / "store.db", directory, engine))
        peer = stack.enter_context(peers.litellm(directory, engine))
        sides = {"upstream": engine, "ours": ours, "litellm": peer}
        await reach(peer.port, request(plain[0], peers.KEY, "first"), patience_s=120)
        whole = await measure(sides, lambda: request_stream(plain, peers.KEY), options.blocks)
        figures = compare(whole, "throughput")
        half = figures["throughput_per_s_ours"].value / 2
        figures["added_p99_ms_half_saturation"] = quantile(
            await added_p99_ms(sides, lambda: request_stream(plain, peers.KEY), half, options.windows)
        )
        parts = await measure(sides, lambda: request_stream(streamed, peers.KEY), options.blocks)
        figures |= compare(parts, "streaming")
        facts = await memory(ours, lambda: request_stream(plain, peers.KEY), options.warm, options.requests)
        acknowledged, lost_turns = await lost(ours, directory / "store.db", plain)
    return figures, facts | {"turns_acknowledged": acknowledged, "turns_lost_after_kill": lost_turns}


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--windows", type=int, default=16, help="at half saturation")
    parser.add_argument("--warm", type=int, default=34_000, help="requests until the caches are full")
    parser.add_argument("--requests", type=int, default=18_000, help="of the memory check after that")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    peers.install()
    with tempfile.TemporaryDirectory() as directory:
        figures, facts = uvloop.run(everything(Path(directory), options))
    table(["", "median", "n"], [[name, each.text(2), str(each.n)] for name, each in figures.items()])
    table(["", "value"], [[name, f"{value:,.0f}"] for name, value in facts.items()])
    figures["added_p50_ratio_vs_litellm"] = figures["throughput_added_p50_ratio_vs_litellm"]
    headline = {name: each.value for name, each in figures.items() if name in GOALS}
    details = {name: asdict(each) for name, each in figures.items()}
    peer = {"peer": peers.LITELLM, "at_once": AT_ONCE, "turns": TURNS, "answer": peers.RESPONSE_TOKENS}
    run.finish({**peer, **headline, **facts, "figures": details}, as_json=options.json)


GOALS = {
    "throughput_ratio_vs_litellm",
    "added_p50_ratio_vs_litellm",
    "added_p99_ms_half_saturation",
    "streaming_ratio_vs_litellm",
}
"""The figures on the first level of the JSON, beside the lost turns."""

if __name__ == "__main__":
    with Run("gateway", "uvicorn", "aiohttp") as run_:
        main(run_)
