"""One harness: the same task, model and seed through every front door gives the same tokens, byte for byte.

::

    ostinato code ─┐
    ACP            ├─► the same requests, but for `tests.harness.differences` ─► gateway ─► the same turns
    practice       ┘

The model plays a story of tool calls in the words of a profile (files, shell, a failed edit, a question;
search by meaning before and after edits; patches), then a real engine with random weights samples what
follows from the whole conversation: any byte that differs would change it. Practice runs in two sandboxes.
"""

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path

import acp
import pytest
import uvicorn
from acp._transport import memory_transport_pair
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from rich.console import Console
from tests.harness.differences import DIFFERENCES, Where
from tests.harness.frontends.acp.toolbox import FORMS, Editor
from tests.search.toolbox import running

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.gateway.app import create_app
from ostinato.gateway.config import GatewayConfig
from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.frontends.acp.agent import EditorAgent
from ostinato.harness.frontends.code import CodeRequest, code
from ostinato.harness.profiles.profile import CORE
from ostinato.harness.providers.search import SearchAt
from ostinato.harness.session_log import Sessions
from ostinato.harness.users import SilentUser
from ostinato.harness.workspace.workbench import PEOPLE, Options
from ostinato.loop.config import RunConfig
from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.create import create
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.choose import KINDS, probe
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.tasks.pebble import provide
from ostinato.tasks.pebble.generate import sample
from ostinato.tasks.teaching.habits import call
from ostinato.types import Arm, GenerateRequest, Source, Task, Turn

SESSION = "the-one-session"
SAMPLED = 40


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(sample("train", 7), tmp_path / "task")


@pytest.fixture
async def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SearchAt]:
    """The service beside the gateway, which a person's agent finds by its address in the environment."""
    async with running(tmp_path / "search.db") as service:
        monkeypatch.setenv("OSTINATO_SEARCH_URL", service.url)
        yield SearchAt(url=service.url, key="key")


@dataclass(frozen=True)
class Story:
    """The calls that the model plays, in the words of a profile, before it samples for itself."""

    profile: str
    lines: Callable[[Task], list[str]]
    told: str
    """Stands in a prompt when the calls were understood."""

    @property
    def config(self) -> HarnessConfig:
        return replace(CONFIG, profile=self.profile)


CONFIG = HarnessConfig(max_turns=9, max_tokens=400, max_context=20_000, command_timeout_s=20.0)


def first_line(task: Task) -> tuple[str, str]:
    name = sorted(path.name for path in task.repo.glob("*.py"))[0]
    return name, (task.repo / name).read_text().splitlines()[0]


def with_files(task: Task) -> list[str]:
    name, first = first_line(task)
    return [
        "I look around.\n" + call("ls"),
        call("read", path=name) + "\n" + call("grep", pattern="def "),
        call("edit", path=name, old_string="nothing like it", new_string="x"),
        call("edit", path=name, old_string=first, new_string=first + "  # naïve\tché"),
        call("bash", command=f"pwd; cat {name}; cat none.py; exit 3"),
        call("ask_user", question="and now?"),
        "<tool_call>\n{not JSON\n</tool_call>",
    ]


def with_search(task: Task) -> list[str]:
    """It finds what was there, changes it, and finds what it made of it."""
    name, first = first_line(task)
    return [
        call("semantic_search", query="return of a test", k=3),
        call("edit", path=name, old_string=first, new_string=first + "  # counts the coins of a till"),
        call("write", path="till.py", content="def shut_the_till():\n    return 'zz' + 'top'\n"),
        call("semantic_search", query="shut the till", k=2) + "\n" + call("glob", pattern="*.py"),
        call("semantic_search", query="coins", path="till.py"),
        call("todo_write", todos=[{"content": "shut it", "status": "completed"}]),
    ]


def with_patches(task: Task) -> list[str]:
    name, first = first_line(task)
    patch = f"*** Begin Patch\n*** Update File: {name}\n@@\n-{first}\n+{first}  # ché\n"
    more = "*** Add File: till.py\n+TILL = 1\n*** End Patch"
    return [
        call("shell", command=["cat", name], timeout_ms=9_000),
        call("apply_patch", input=patch + "-nothing like it\n+x\n*** End Patch"),
        call("apply_patch", input=patch + more),
        call("shell", command=["bash", "-lc", f"pwd; cat {name} till.py; exit 3"]),
        call("update_plan", explanation="so", plan=[{"step": "shut it", "status": "in_progress"}]),
    ]


STORIES = {
    "core": Story("core", with_files, "# naïve"),
    "full": Story("full", with_search, "till.py:1-2\ndef shut_the_till"),
    "codex": Story("codex", with_patches, "TILL = 1"),
}


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
    create(directory, ModelConfig(vocab_size=tokenizer.vocab_size, max_positions=16_384, **shape), seed=3)
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
    renderer = HermesRenderer(tokenizer)
    model = EmbeddedEngine(decoder, version=0, slots=2, max_len=16_384)
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
    store.set_arms([Arm(name="main", version=0, share=1.0, engines=(engine.url,))])
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


@pytest.fixture
def story() -> Story:
    return STORIES["core"]


@dataclass(frozen=True)
class Visit:
    """The work at one front door."""

    task: Task
    config: HarnessConfig
    search: SearchAt


async def through_code(door: Door, visit: Visit, directory: Path) -> None:
    repo = directory / "repo"
    shutil.copytree(visit.task.repo, repo)
    options = Options(
        directory=repo,
        url=door.url,
        key="key",
        config=visit.config,
        auto=True,
        sessions=Sessions(directory=directory / "sessions"),
    )
    await code(CodeRequest(prompt=visit.task.instruction), options, Console(file=io.StringIO()))


async def through_acp(door: Door, visit: Visit, directory: Path) -> None:
    """An editor that allows everything, and whose person answers as nobody does."""
    repo = directory / "repo"
    shutil.copytree(visit.task.repo, repo)
    sessions = Sessions(directory=directory / "sessions")
    options = Options(directory=repo, url=door.url, key="key", config=visit.config, sessions=sessions)
    agent = EditorAgent(options)
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
        await client.prompt(session_id=session, prompt=[acp.text_block(visit.task.instruction)])
        await agent.close()


async def through_practice(door: Door, visit: Visit, _: Path, backend: str = "process") -> None:
    box = await probe(KINDS[backend])
    async with GatewayClient(door.url, "key") as client:
        runner = EpisodeRunner(client, box, Verifier(box), visit.config, search=visit.search)
        await runner.run(visit.task, SilentUser(), source=Source.PRACTICE)
    await box.aclose()


DOORS: dict[str, Callable[[Door, Visit, Path], Awaitable[None]]] = {
    "code": through_code,
    "acp": through_acp,
    "practice": through_practice,
    "practice in namespaces": partial(through_practice, backend="ns"),
}


Went = dict[str, tuple[list[Turn], list[tuple[dict[str, str], dict[str, object]]]]]


@pytest.fixture
def visit(task: Task, story: Story, search: SearchAt) -> Visit:
    return Visit(task, story.config, search)


@pytest.fixture
async def went(
    tmp_path: Path, checkpoint: Path, visit: Visit, story: Story, monkeypatch: pytest.MonkeyPatch
) -> Went:
    """Turns and requests of each front door. The session's name seeds the sampling, so it is the same."""
    for module in ("workspace.workbench", "episode"):
        monkeypatch.setattr(f"ostinato.harness.{module}.new_id", lambda: SESSION)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = {}
    for name, go in (await open_doors()).items():
        async with opened(tmp_path / name, checkpoint, story.lines(visit.task)) as door:
            await go(door, visit, tmp_path / name)
            found[name] = (door.turns, door.requests)
    return found


async def open_doors() -> dict[str, Callable[[Door, Visit, Path], Awaitable[None]]]:
    """Return the front doors, without the one that needs user namespaces where there are none."""
    try:
        await (await probe(KINDS["ns"])).aclose()
    except SandboxError:
        return {name: go for name, go in DOORS.items() if "namespaces" not in name}
    return DOORS


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_every_front_door_gives_the_same_tokens(went: Went, task: Task, story: Story) -> None:
    expected, requests = went["practice"]
    assert len(expected) == len(story.lines(task)) + 1
    assert story.told in "".join(str(each["content"]) for each in requests[-1][1]["messages"])
    assert len(expected[-1].completion.ids) == SAMPLED
    assert [turn.segment for turn in expected] == [0] * len(expected)
    for name, (turns, _) in went.items():
        for mine, theirs in zip(turns, expected, strict=True):
            assert mine.prompt_ids == theirs.prompt_ids, name
            assert mine.completion.ids == theirs.completion.ids, name
            assert mine.broken == theirs.broken, name


async def test_requests_differ_only_in_what_is_listed(went: Went) -> None:
    headers, body = (named(where) for where in (Where.HEADER, Where.BODY))
    _, expected = went["practice"]
    seen: set[str] = set()
    for _, requests in went.values():
        for (told, asked), (other_told, other_asked) in zip(requests, expected, strict=True):
            seen |= differing(told, other_told) | differing(asked, other_asked)
    assert seen <= headers | body
    assert seen == headers | body, "a listed difference is none: take it off the list"


def test_settings_differ_only_in_what_is_listed() -> None:
    assert differing(asdict(RunConfig().harness), asdict(PEOPLE)) == named(Where.SETTING)


def test_surroundings_are_all_listed() -> None:
    """The parameters of an agent beside its client and settings, and of a session beside its name and
    purpose.
    """
    given = {*signature(Agent.__init__).parameters} - {"self", "client", "config"}
    given |= {*signature(Agent.converse).parameters} - {"self", "session_id", "source", "task_id"}
    assert given == {name for each in named(Where.SURROUNDINGS) for name in each.split(", ")}


def named(where: Where) -> set[str]:
    return {each.name for each in DIFFERENCES if each.where is where}


def differing(one: dict[str, object], other: dict[str, object]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
