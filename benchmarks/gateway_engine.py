"""The gateway's throughput as a share of the engine's own, with recording on.

    python -m benchmarks.gateway_engine [--json] [--at-once 16] [--seconds 8] [--windows 4]
    OSTINATO_ENGINE_SECRET=… python -m benchmarks.gateway_engine --engine URL --checkpoint DIR
    python -m benchmarks.gateway_engine --vllm DIR

The same conversations (about `--read` words in, `--sampled` tokens out) go to an engine server directly, and
through a gateway process that records every turn, `--at-once` under way; the two take turns window by window.
A figure is the median ratio of sampled tokens a second. `--engine` is any engine server, such as one with
vLLM behind it; `--vllm` starts one in float32 for a checkpoint. Without either a scripted engine takes 10 ms
for each token of a request and has no limit.
"""

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import aiohttp
import uvloop

from benchmarks import gateway_peers as peers
from benchmarks.measure import Figure, Run, quantile, ratios, table
from benchmarks.vllm_logprobs import ENVIRONMENT as VLLM_ENVIRONMENT
from benchmarks.vllm_peer import PYTHON, missing
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.model.families import Renderer, load_renderer
from ostinato.store import Store
from ostinato.types import Arm, GenerateRequest, to_json
from ostinato.web.secret import ENGINE_SECRET, bearer

TOKEN_S = 0.01
"""The time that the scripted engine takes for one token."""
LONG_S = aiohttp.ClientTimeout(total=600)


class Sides:
    """The two ways to the same engine."""

    def __init__(self, http: aiohttp.ClientSession, urls: tuple[str, str], renderer: Renderer) -> None:
        self._http, (self._engine, self._gateway), self._renderer = http, urls, renderer
        self._secret = bearer(os.environ.get(ENGINE_SECRET, ""))

    async def engine(self, text: str, sampled: int) -> int:
        """Return the number of tokens that the engine sampled."""
        request = GenerateRequest(
            request_id=text[:20],
            session_id=text[:20],
            prompt_ids=tuple(self._renderer.render([{"role": "user", "content": text}])),
            stop_ids=self._renderer.stop_ids,
            max_tokens=sampled,
        )
        body, headers = to_json(request), self._secret
        async with self._http.post(self._engine + "/generate", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return len((await response.json())["ids"])

    async def gateway(self, text: str, sampled: int) -> int:
        """Return the same for a request through the gateway."""
        body = {
            "model": "ostinato",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": sampled,
        }
        url, headers = self._gateway + "/v1/chat/completions", bearer(peers.KEY)
        async with self._http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return int((await response.json())["usage"]["completion_tokens"])


def texts(words: int) -> Iterator[str]:
    """Yield user messages that begin differently, so that no cache knows them."""
    number = 0
    while True:
        number += 1
        yield f"{time.time_ns()} {number}: " + "read the file and add its lines " * (words // 7)


async def rate(send: Callable[[str, int], Awaitable[int]], options: argparse.Namespace) -> float:
    """Return the tokens a second with `--at-once` requests under way for about `--seconds`."""
    words, tokens, began = texts(options.read), 0, time.perf_counter()

    async def client() -> None:
        nonlocal tokens
        while time.perf_counter() - began < options.seconds:
            got = await send(next(words), options.sampled)
            tokens += got

    await asyncio.gather(*(client() for _ in range(options.at_once)))
    return tokens / (time.perf_counter() - began)


async def measured(sides: Sides, options: argparse.Namespace) -> dict[str, Figure]:
    found: dict[str, list[float]] = {"engine": [], "gateway": []}
    for window in range(1 + options.windows):
        for name in found if window % 2 else reversed(list(found)):
            found[name].append(await rate(getattr(sides, name), options))
    engine, gateway = found["engine"][1:], found["gateway"][1:]  # the first window warms up
    return {
        "gateway_throughput_ratio": ratios(gateway, engine),
        "engine_tokens_per_s": quantile(engine),
        "gateway_tokens_per_s": quantile(gateway),
    }


@contextmanager
def vllm(checkpoint: Path, options: argparse.Namespace) -> Iterator[str]:
    """Yield the URL of an engine server with vLLM, which ends with it."""
    if problem := missing():
        raise SystemExit(problem)
    options_of_it = ["--backend", "vllm", "--dtype", "float32", "--python", str(PYTHON), "--port", "0"]
    sizes = ["--slots", str(options.at_once), "--max-len", str(2 * options.read + 2 * options.sampled)]
    command = [sys.executable, "-m", "ostinato.engine.server", "--checkpoint", str(checkpoint)]
    os.environ.setdefault(ENGINE_SECRET, secrets.token_hex())
    with peers.started([*command, *options_of_it, *sizes], VLLM_ENVIRONMENT) as process:
        try:
            yield f"http://127.0.0.1:{peers.announced(process).port}"
        finally:
            process.terminate()
            process.wait()


async def everything(directory: Path, options: argparse.Namespace) -> dict[str, Figure]:
    given = options.checkpoint or options.vllm
    response = peers.checkpoint(directory) if given is None else []
    checkpoint = given or directory
    async with AsyncExitStack() as stack:
        url = options.engine or (options.vllm and stack.enter_context(vllm(options.vllm, options)))
        if url is None:
            ids = [id_ for id_, _ in response]

            async def policy(request: GenerateRequest) -> tuple[int, ...]:
                await asyncio.sleep(TOKEN_S * request.max_tokens)
                return tuple((ids * request.max_tokens)[: request.max_tokens])

            running = await serve_scripted(ScriptedEngine(policy))
            stack.push_async_callback(running.close)
            url = running.url
        store = directory / "store.db"
        with closing(Store.open(store)) as record:
            record.add_key(hash_key(peers.KEY), "ada")
            record.set_arms([Arm(name="main", version=1, share=1.0, engines=(url,))])
        processes = stack.enter_context(ExitStack())
        command = [sys.executable, "-m", "ostinato.gateway.server", "--store", str(store)]
        process = processes.enter_context(peers.started([*command, "--checkpoint", str(checkpoint)]))
        gateway = peers.announced(process)
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=LONG_S))
        renderer = load_renderer(checkpoint)
        urls = (url, f"http://127.0.0.1:{gateway.port}")
        return await measured(Sides(http, urls, renderer), options)


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", help="URL of an engine server")
    parser.add_argument("--checkpoint", type=Path, help="directory with the tokenizer of that engine")
    parser.add_argument("--vllm", type=Path, help="checkpoint for a vLLM to start")
    parser.add_argument("--read", type=int, default=300, help="words of a prompt")
    parser.add_argument("--sampled", type=int, default=100, help="tokens of a completion")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a window")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    if (options.engine is None) != (options.checkpoint is None):
        parser.error("give --engine and --checkpoint together")
    if options.engine and options.vllm:
        parser.error("give --engine or --vllm, not both")
    with tempfile.TemporaryDirectory() as directory:
        figures = uvloop.run(everything(Path(directory), options))
    table(["", "median", "n"], [[name, each.text(3), str(each.n)] for name, each in figures.items()])
    headline = {"gateway_throughput_ratio": figures["gateway_throughput_ratio"].value}
    details = {name: asdict(each) for name, each in figures.items()}
    run.finish({"at_once": options.at_once, **headline, "figures": details}, as_json=options.json)


if __name__ == "__main__":
    with Run("gateway_engine", "uvicorn", "aiohttp") as run_:
        main(run_)
