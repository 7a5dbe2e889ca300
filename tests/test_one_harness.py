"""One harness: the same task, model and seed through every front door gives the same tokens, byte for byte.

::

    ostinato code ─┐
    ACP            ├─► the same requests, but for `harness.differences` ─► gateway ─► the same turns
    practice       ┘

The model plays a story of tool calls (files, shell, a failed edit, a question), then a real engine with
random weights samples what follows from the whole conversation: any byte that differs would change it.
"""

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import acp
import pytest
import uvicorn
from acp._transport import memory_transport_pair
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from rich.console import Console
from tests.harness.acp.toolbox import FORMS, Editor

from ostinato.engine.embedded import EmbeddedEngine
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.app import GatewayConfig, create_app
from ostinato.gateway.keys import hash_key
from ostinato.harness.acp.agent import EditorAgent
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.differences import DIFFERENCES, Where
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.log import Sessions
from ostinato.harness.main import Wish, code
from ostinato.harness.profiles import CORE
from ostinato.harness.users import SilentUser
from ostinato.harness.workbench import PEOPLE, Options
from ostinato.loop.config import DemoConfig
from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.create import create
from ostinato.model.renderer import Renderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.process import ProcessBackend
from ostinato.sandbox.verify import Verifier
from ostinato.store import Store
from ostinato.tasks.habits import call
from ostinato.tasks.pebble import provide
from ostinato.tasks.pebble.generate import sample
from ostinato.types import Arm, GenerateRequest, Source, Task, Turn

CONFIG = HarnessConfig(max_turns=9, max_tokens=120, max_context=3_000, command_timeout_s=20.0)
SESSION = "the-one-session"
SAMPLED = 40


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(sample("train", 7), tmp_path / "task")


def story(task: Task) -> list[str]:
    name = sorted(path.name for path in task.repo.glob("*.py"))[0]
    first = (task.repo / name).read_text().splitlines()[0]
    return [
        "I look around.\n" + call("ls"),
        call("read", path=name) + "\n" + call("grep", pattern="def "),
        call("edit", path=name, old_string="nothing like it", new_string="x"),
        call("edit", path=name, old_string=first, new_string=first + "  # naïve\tché"),
        call("bash", command=f"pwd; cat {name}; cat none.py; exit 3"),
        call("ask_user", question="and now?"),
        "<tool_call>\n{not JSON\n</tool_call>",
    ]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    words = ["def alpha(a, b):\n    return a - b\n", "error: no such file\n"]
    tokenizer = Tokenizer.train(words, 420, skeletons(CORE.system, CORE.tools))
    tokenizer.save(directory)
    shape = {
        "hidden_size": 16,
        "layers": 2,
        "heads": 1,
        "kv_heads": 1,
        "head_dim": 16,
        "intermediate_size": 32,
    }
    create(directory, ModelConfig(vocab_size=tokenizer.vocab_size, max_positions=4096, **shape), seed=3)
    return directory


@dataclass
class Door:
    """A gateway with an empty store: what came in, and what it recorded."""

    url: str
    store: Store
    requests: list[tuple[dict[str, str], dict[str, object]]] = field(default_factory=list)

    @property
    def turns(self) -> list[Turn]:
        (session,) = self.store.sessions()
        return self.store.turns(session.id)

    def tap(self, app):
        """ASGI: keeps the requests for replies."""

        async def tapped(scope, receive, send):
            if scope["type"] != "http" or scope["path"] != "/v1/chat/completions":
                await app(scope, receive, send)
                return
            body = bytearray()

            async def listening():
                message = await receive()
                body.extend(message.get("body", b""))
                return message

            await app(scope, listening, send)
            told = {
                name.decode(): value.decode() for name, value in scope["headers"] if name.startswith(b"x-")
            }
            self.requests.append((told, json.loads(body)))

        return tapped


@asynccontextmanager
async def opened(directory: Path, checkpoint: Path, script: list[str]) -> AsyncIterator[Door]:
    """A gateway before an engine that plays `script` and then samples from the checkpoint."""
    decoder, tokenizer, _ = load(checkpoint)
    renderer = Renderer(tokenizer)
    model = EmbeddedEngine(decoder, version=0, slots=2, max_len=4096)
    played = iter(script)

    async def policy(request: GenerateRequest) -> tuple[int, ...]:
        line = next(played, None)
        if line is not None:
            return (*tokenizer.encode(line), renderer.stop_ids[0])
        return (await model.generate(replace(request, max_tokens=SAMPLED))).ids

    directory.mkdir()
    store = Store.open(directory / "store.db")
    store.add_key(hash_key("key"), "ada", "use,feedback,admin")
    engine = await serve_scripted(ScriptedEngine(policy))
    store.set_arms([Arm(name="main", version=0, share=1.0, engine=engine.url)])
    door = Door(url="", store=store)
    app = door.tap(create_app(store, renderer, GatewayConfig()))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on", ws="none"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    door.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield door
    finally:
        server.should_exit = True
        await serving
        await engine.close()
        await model.aclose()
        store.close()


async def through_code(door: Door, task: Task, directory: Path) -> None:
    repo = directory / "repo"
    shutil.copytree(task.repo, repo)
    options = Options(
        directory=repo,
        url=door.url,
        key="key",
        config=CONFIG,
        auto=True,
        sessions=Sessions(directory=directory / "sessions"),
    )
    await code(Wish(prompt=task.instruction), options, Console(file=io.StringIO()))


async def through_acp(door: Door, task: Task, directory: Path) -> None:
    """An editor that allows everything, and whose person answers as nobody does."""
    repo = directory / "repo"
    shutil.copytree(task.repo, repo)
    sessions = Sessions(directory=directory / "sessions")
    agent = EditorAgent(Options(directory=repo, url=door.url, key="key", config=CONFIG, sessions=sessions))
    ours, theirs = memory_transport_pair()
    editor = Editor(answers=[await SilentUser().answer("")])
    draft = {"use_unstable_protocol": True}
    async with (
        AgentSideConnection(agent, ours, **draft),
        ClientSideConnection(editor, theirs, **draft) as client,
    ):
        await client.initialize(protocol_version=1, client_capabilities=FORMS)
        session = (await client.new_session(cwd=str(repo), mcp_servers=[])).session_id
        await client.set_config_option(config_id="mode", session_id=session, value="auto")
        await client.prompt(session_id=session, prompt=[acp.text_block(task.instruction)])
        await agent.close()


async def through_practice(door: Door, task: Task, directory: Path) -> None:
    backend = ProcessBackend()
    async with GatewayClient(door.url, "key") as client:
        runner = EpisodeRunner(client, backend, Verifier(backend), CONFIG)
        await runner.run(task, SilentUser(), source=Source.PRACTICE)
    await backend.aclose()


DOORS: dict[str, Callable[[Door, Task, Path], Awaitable[None]]] = {
    "code": through_code,
    "acp": through_acp,
    "practice": through_practice,
}


@pytest.fixture
async def went(
    tmp_path: Path, checkpoint: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[list[Turn], list[tuple[dict[str, str], dict[str, object]]]]]:
    """Turns and requests of each front door. The session's name seeds the sampling, so it is the same."""
    for module in ("workbench", "episode"):
        monkeypatch.setattr(f"ostinato.harness.{module}.new_id", lambda: SESSION)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = {}
    for name, go in DOORS.items():
        async with opened(tmp_path / name, checkpoint, story(task)) as door:
            await go(door, task, tmp_path / name)
            found[name] = (door.turns, door.requests)
    return found


async def test_every_front_door_gives_the_same_tokens(went, task: Task) -> None:
    expected, _ = went["practice"]
    assert len(expected) == len(story(task)) + 1
    assert len(expected[-1].completion.ids) == SAMPLED
    assert [turn.segment for turn in expected] == [0] * len(expected)
    for name, (turns, _) in went.items():
        for mine, theirs in zip(turns, expected, strict=True):
            assert mine.prompt_ids == theirs.prompt_ids, name
            assert mine.completion.ids == theirs.completion.ids, name
            assert mine.broken == theirs.broken, name


async def test_requests_differ_only_in_what_is_listed(went) -> None:
    headers, body = (named(where) for where in (Where.HEADER, Where.BODY))
    _, expected = went["practice"]
    seen: set[str] = set()
    for _, requests in went.values():
        for (told, asked), (other_told, other_asked) in zip(requests, expected, strict=True):
            seen |= differing(told, other_told) | differing(asked, other_asked)
    assert seen <= headers | body
    assert seen == headers | body, "a listed difference is none: take it off the list"


def test_settings_differ_only_in_what_is_listed() -> None:
    assert differing(asdict(DemoConfig().harness), asdict(PEOPLE)) == named(Where.SETTING)


def named(where: Where) -> set[str]:
    return {each.name for each in DIFFERENCES if each.where is where}


def differing(one: dict[str, object], other: dict[str, object]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
