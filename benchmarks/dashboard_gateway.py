"""The gateway's p99 while somebody reads the dashboard of the same record, beside the gateway alone.

Windows of both kinds take turns, so that other load affects both; the figure is the median over the pairs of
p99 with a reader over p99 without, with its order-statistic interval. The gateway records every turn before
it responds, into the large record of `benchmarks.dashboard`. The reader opens one page after another, a
second apart, and keeps one watched page open.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from benchmarks import gateway_peers as peers
from benchmarks.gateway import bodies
from benchmarks.http_load import open_loop, reach, request, request_stream
from benchmarks.measure import Figure, quantile, ratios
from ostinato.model.tokenizer import Tokenizer

PAUSE_S = 1.0
"""Seconds from one page of the reader to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideFigures:
    """The figures of all pairs of windows."""

    ratio: Figure
    p99_alone_ms: Figure
    p99_beside_ms: Figure
    dashboard_mb: float
    """Memory of the dashboard's process at the end."""
    pages: int
    """Pages that the reader got."""


async def beside(
    folder: Path, pages: Sequence[str], *, pairs: int, seconds: float, rate: float
) -> BesideFigures:
    """Measure `pairs` windows of each kind, `seconds` long, at `rate` requests a second."""
    tokens = _response(folder / "start")
    turns = bodies("".join(text for _, text in tokens), stream=False)
    store, alone, read = folder / "store.db", list[float](), list[float]()
    watching = ["--store", str(store), "--checkpoint", str(folder / "start"), "--port", "0", "--json"]
    with (
        peers.upstream(tokens) as engine,
        peers.ostinato(store, folder / "start", engine) as gateway,
        peers.started([sys.executable, "-m", "ostinato", "dashboard", *watching]) as process,
    ):
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        await reach(gateway.port, request(turns[0], peers.KEY, "first"), patience_s=60)

        async def window() -> float:
            latencies = await open_loop(gateway.port, streams, rate=rate, seconds=seconds)
            return float(np.quantile(latencies, 0.99))

        def streams() -> Iterator[bytes]:
            return request_stream(turns, peers.KEY)

        await window()
        seen = 0
        for _ in range(pairs):
            alone.append(await window())
            async with _reader(address, pages) as count:
                read.append(await window())
            seen += count[0]
        held = peers.Peer(process=process, port=0).rss_mb()
    return BesideFigures(
        ratio=ratios(read, alone),
        p99_alone_ms=quantile(alone),
        p99_beside_ms=quantile(read),
        dashboard_mb=held,
        pages=seen,
    )


def _response(checkpoint: Path) -> list[tuple[int, str]]:
    """Return ids and texts of a response, the stop token last."""
    tokenizer = Tokenizer.load(checkpoint)
    stop = tokenizer.id_of("<|im_end|>")
    assert stop is not None
    words = tokenizer.encode("the area of a rectangle is wrong " * 9)[: peers.RESPONSE_TOKENS - 1]
    return [*((id_, tokenizer.decode([id_])) for id_ in words), (stop, "")]


@asynccontextmanager
async def _reader(address: str, pages: Sequence[str]) -> AsyncIterator[list[int]]:
    """Read pages until the block ends; yield how many were read, one number that counts up."""
    count = [0]
    jar = aiohttp.CookieJar(unsafe=True)  # the address is a number
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        root = address.partition("/enter")[0]
        await _get(http, address)
        reading = asyncio.create_task(_read_on(http, root, pages, count))
        watching = asyncio.create_task(_watch(http, root))
        try:
            yield count
        finally:
            for task in (reading, watching):
                task.cancel()
            ends = await asyncio.gather(reading, watching, return_exceptions=True)
    wrong = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
    assert not wrong, wrong


async def _read_on(http: aiohttp.ClientSession, root: str, pages: Sequence[str], count: list[int]) -> None:
    while True:
        await _get(http, root + pages[count[0] % len(pages)])
        count[0] += 1
        await asyncio.sleep(PAUSE_S)


async def _watch(http: aiohttp.ClientSession, root: str) -> None:
    while True:
        async with http.get(f"{root}/live", params={"page": "/"}) as stream:
            async for _ in stream.content:
                pass


async def _get(http: aiohttp.ClientSession, address: str) -> Any:
    async with http.get(address) as response:
        response.raise_for_status()
        return await response.read()
