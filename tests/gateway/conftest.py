"""A gateway with real peers: a store on disk, a scripted engine over HTTP, uvicorn or the real process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.databases import BOTH, file_backend, place, postgres
from tests.watchdog import watched

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.model.families import Renderer, load_renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Arm, GenerateRequest

KEY, ADMIN, OTHER = "key-of-ada", "key-of-admin", "key-of-bob"
READ = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}
ENGINE = ("/aiohttp/web_protocol.py",)
"""The scripted engine reads the text of each prompt, which takes longer than an engine's own work on it."""
Say = Callable[[str], str]
"""Maps the text of a prompt to the text of the completion, without the stop token."""


RECORDING = {"test_recorder", "test_exact", "test_app", "test_arms", "test_offload"}
"""The modules whose tests run on PostgreSQL too: those about what is recorded."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in RECORDING and "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BOTH, indirect=True)


@pytest.fixture
def read_tool() -> dict[str, object]:
    return READ


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds only a tokenizer."""
    directory = tmp_path_factory.mktemp("checkpoint")
    corpus = ["the gateway keeps the tokens of a conversation exactly as they were sampled " * 4]
    Tokenizer.train(corpus, 300, ["<tool_call>\n"]).save(directory)
    return directory


@pytest.fixture(scope="session")
def renderer(checkpoint: Path) -> Renderer:
    return load_renderer(checkpoint)


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    store.add_key(hash_key(KEY), "ada")
    store.add_key(hash_key(OTHER), "bob")
    store.add_key(hash_key(ADMIN), "admin", "admin")
    yield store
    store.close()


@dataclass
class Script:
    """The replies of the scripted engine, and the prompts that it received."""

    renderer: Renderer
    say: Say = field(default=lambda prompt: "done")
    stop: bool = True
    asked: list[GenerateRequest] = field(default_factory=list)

    async def __call__(self, request: GenerateRequest) -> tuple[int, ...]:
        self.asked.append(request)
        text = self.say(self.renderer.tokenizer.decode(request.prompt_ids))
        ids = tuple(self.renderer.tokenizer.encode(text))
        return (*ids, self.renderer.stop_ids[0]) if self.stop else ids


@pytest.fixture
def script(renderer: Renderer) -> Script:
    return Script(renderer)


@pytest.fixture
async def engine(script: Script, store: Store) -> AsyncIterator[str]:
    """The address of a scripted engine, which is that of the store's only arm."""
    running = await serve_scripted(ScriptedEngine(script))
    store.set_arms([Arm(name="main", version=3, share=1.0, engines=(running.url,))])
    yield running.url
    await running.close()


@dataclass
class Process:
    """A gateway in its own process."""

    process: asyncio.subprocess.Process
    url: str


Launch = Callable[..., Awaitable[Process]]


@pytest.fixture
async def launch(store: Store, checkpoint: Path, place: str) -> AsyncIterator[Launch]:
    """Return a function that starts gateway processes; they end with the test."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*options: str) -> Process:
        command = [sys.executable, "-m", "ostinato.gateway.server", "--store", place]
        command += ["--checkpoint", str(checkpoint), *options]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        return Process(process, f"http://127.0.0.1:{ready['port']}")

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def gateway(store: Store, renderer: Renderer, engine: str) -> AsyncIterator[str]:
    """The address of a gateway in this process."""
    async with serving(store, renderer) as url:
        yield url


@asynccontextmanager
async def serving(store: Store, renderer: Renderer, **settings: object) -> AsyncIterator[str]:
    import uvicorn

    from ostinato.gateway.app import create_app
    from ostinato.gateway.config import GatewayConfig

    app = create_app(store, renderer, GatewayConfig(**settings))
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on", http="httptools", ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    await task


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        yield session


class Chat:
    """Return a function that posts raw chat requests."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def __call__(
        self, *messages: dict[str, object], headers: dict[str, str] | None = None, **body: object
    ):
        value = {"model": "ostinato", "messages": messages, **body}
        async with self.http.post(
            self.url + "/v1/chat/completions", json=value, headers=headers or {}
        ) as response:
            return response.status, await response.json(), response.headers


@pytest.fixture
def chat(http: aiohttp.ClientSession, gateway: str) -> Chat:
    return Chat(http, gateway)


@pytest.fixture
async def serve_lines() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Return a function that serves an engine, whose NDJSON lines a generator yields, and returns its
    address."""
    runners: list[web.AppRunner] = []

    async def start(lines: Callable[[dict], AsyncIterator[dict]], port: int = 0, *, stoppable: bool = False):
        async def generate(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            async with aclosing(lines(await request.json())) as values:
                async for value in values:
                    await response.write(json.dumps(value).encode() + b"\n")
            return response

        app = web.Application()
        app.router.add_post("/generate", generate)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner.cleanup if stoppable else f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def gateway_of(store: Store, renderer: Renderer) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Return a function that serves a gateway with one arm at an address, and returns the gateway's
    address."""
    async with AsyncExitStack() as stack:

        async def start(engine: str, **settings: float) -> str:
            store.set_arms([Arm(name="main", version=1, share=1.0, engines=(engine,))])
            return await stack.enter_async_context(serving(store, renderer, **settings))

        yield start


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    """Fail the test when a callback of a server blocks the event loop: see `tests/watchdog.py`."""
    with watched(but=ENGINE):
        yield


__all__ = ["file_backend", "place", "postgres"]
