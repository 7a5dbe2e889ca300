"""The clients, and the command line, environment and files with which a user would start each on a task."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.install import PACKAGES

HERE = Path(__file__).parent
KEY = "key-of-ada"
TASK = "add in calc.py subtracts. Make it add."
PATIENCE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The place where a client works: an empty home, a repository, the address of the gateway, its task."""

    home: Path
    repo: Path
    gateway: str
    key: str = KEY
    task: str = TASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The command that starts a client; `files` are written below the home first."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client and the dialect in which it talks."""

    name: str
    dialect: str
    start: Callable[[Desk], Start]
    package: str | None = None
    turns: int = 3
    """The model calls that the task takes: read, edit, report."""

    @property
    def missing(self) -> str | None:
        return None if self.package is None else PACKAGES[self.package].missing


async def run(client: Client, desk: Desk) -> str:
    """Run a client on the task and return its output; raises AssertionError when it fails or does not end."""
    status, text = await attempt(client, desk, PATIENCE_S)
    assert status is not None, f"{client.name} did not end:\n{text[-4000:]}"
    assert status == 0, text[-4000:]
    return text


async def attempt(client: Client, desk: Desk, patience_s: float) -> tuple[int | None, str]:
    """Run a client; return its exit status, None if it had to be killed, and its output."""
    start = client.start(desk)
    for name, text in start.files.items():
        path = desk.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *start.command,
        cwd=desk.repo,
        env={**_bare(desk.home), **start.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), patience_s)
    except TimeoutError:
        os.killpg(process.pid, 9)
        output, _ = await process.communicate()
        return None, output.decode(errors="replace")
    return process.returncode, output.decode(errors="replace")


def _bare(home: Path) -> dict[str, str]:
    """Return an environment without the machine's settings: only the places of programs and of the home."""
    node = shutil.which("node")
    path = [str(Path(node).parent)] if node else []
    return {
        "HOME": str(home),
        "PATH": ":".join([*path, "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


def _program(name: str) -> str:
    return str(PACKAGES[name].executable)


def _sdk(name: str) -> Callable[[Desk], Start]:
    def start(desk: Desk) -> Start:
        return Start(command=[sys.executable, str(HERE / name), desk.gateway, desk.key, desk.task])

    return start


def _mini(desk: Desk) -> Start:
    settings = [
        "mini.yaml",
        "model.cost_tracking=ignore_errors",
        f"model.model_kwargs.extra_headers.X-Session-Id=mini-{desk.home.name}",
    ]
    options = [word for setting in settings for word in ("-c", setting)]
    model = ["-m", "openai/ostinato", "--yolo", "--exit-immediately"]
    return Start(
        command=[
            _program("mini-swe-agent"),
            *model,
            *options,
            "-o",
            str(desk.home / "run.json"),
            "-t",
            desk.task,
        ],
        environment={
            "OPENAI_API_BASE": f"{desk.gateway}/v1",
            "OPENAI_API_KEY": desk.key,
            "MSWEA_CONFIGURED": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


def _aider(desk: Desk) -> Start:
    settings = (
        "- name: openai/ostinato\n  edit_format: diff\n"
        "  extra_params:\n    extra_headers:\n      X-Session-Id: aider-1\n"
    )
    quiet = ["--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-gitignore"]
    return Start(
        command=[
            _program("aider-chat"),
            "--model=openai/ostinato",
            f"--openai-api-base={desk.gateway}/v1",
            *("--yes-always", "--no-auto-commits", "--no-pretty", *quiet),
            f"--message={desk.task}",
            "calc.py",
        ],
        environment={"OPENAI_API_KEY": desk.key},
        files={".aider.model.settings.yml": settings},
    )


def _opencode(desk: Desk) -> Start:
    model = {"name": "ostinato", "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{desk.gateway}/v1", "apiKey": desk.key},
        "models": {"ostinato": model},
    }
    config = {"model": "ostinato/ostinato", "autoupdate": False, "provider": {"ostinato": provider}}
    return Start(
        command=[_program("opencode-ai"), "run", desk.task],
        files={".config/opencode/opencode.json": json.dumps(config)},
    )


def _claude(desk: Desk) -> Start:
    return Start(
        command=[_program("@anthropic-ai/claude-code"), "-p", desk.task, "--permission-mode", "acceptEdits"],
        environment={
            "ANTHROPIC_BASE_URL": desk.gateway,
            "ANTHROPIC_API_KEY": desk.key,
            "ANTHROPIC_MODEL": "ostinato",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "ostinato",
        },
    )


def _codex(desk: Desk) -> Start:
    config = f"""
model = "ostinato"
model_provider = "ostinato"

[model_providers.ostinato]
name = "ostinato"
base_url = "{desk.gateway}/v1"
env_key = "OSTINATO_API_KEY"
wire_api = "responses"
"""
    return Start(
        command=[_program("@openai/codex"), "exec", "--sandbox", "danger-full-access", desk.task],
        environment={"OSTINATO_API_KEY": desk.key},
        files={".codex/config.toml": config},
    )


def _pi(desk: Desk) -> Start:
    provider = {
        "baseUrl": f"{desk.gateway}/v1",
        "api": "openai-completions",
        "apiKey": desk.key,
        "models": [{"id": "ostinato", "contextWindow": 200_000, "maxTokens": 8_000}],
    }
    return Start(
        command=[
            _program("@mariozechner/pi-coding-agent"),
            "--offline",
            "--model",
            "ostinato/ostinato",
            "-p",
            desk.task,
        ],
        files={".pi/agent/models.json": json.dumps({"providers": {"ostinato": provider}})},
    )


def _qwen(desk: Desk) -> Start:
    return Start(
        command=[_program("@qwen-code/qwen-code"), "--auth-type", "openai", "--yolo", desk.task],
        environment={
            "OPENAI_BASE_URL": f"{desk.gateway}/v1",
            "OPENAI_API_KEY": desk.key,
            "OPENAI_MODEL": "ostinato",
        },
    )


def _continue(desk: Desk) -> Start:
    config = f"""
name: ostinato
version: 1.0.0
schema: v1
models:
  - name: ostinato
    provider: openai
    model: ostinato
    apiBase: {desk.gateway}/v1
    apiKey: {desk.key}
    roles: [chat]
    capabilities: [tool_use]
"""
    path = desk.home / "config.yaml"
    return Start(
        command=[_program("@continuedev/cli"), "--config", str(path), "--auto", "-p", desk.task],
        environment={"CONTINUE_TELEMETRY_ENABLED": "0"},
        files={"config.yaml": config},
    )


def _cline(desk: Desk) -> Start:
    name = "openai-compatible"
    settings = {"provider": name, "apiKey": desk.key, "model": "ostinato", "baseUrl": f"{desk.gateway}/v1"}
    provider = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": name, "modes": {}, "providers": {name: provider}}
    return Start(
        command=[_program("cline"), "--json", desk.task],
        files={".cline/data/settings/providers.json": json.dumps(providers)},
    )


def _code(desk: Desk) -> Start:
    command = [sys.executable, "-m", "ostinato.cli", "code", "--plain", "--auto", desk.task]
    return Start(command=command, environment={"OSTINATO_URL": desk.gateway, "OSTINATO_KEY": desk.key})


CLIENTS = (
    Client(name="openai", dialect="chat", start=_sdk("openai_agent.py")),
    Client(name="mini-swe-agent", dialect="chat", start=_mini, package="mini-swe-agent"),
    Client(name="aider", dialect="chat", start=_aider, package="aider-chat", turns=1),
    Client(name="opencode", dialect="chat", start=_opencode, package="opencode-ai"),
    Client(name="anthropic", dialect="messages", start=_sdk("anthropic_agent.py")),
    Client(name="claude-code", dialect="messages", start=_claude, package="@anthropic-ai/claude-code"),
    Client(name="openai-responses", dialect="responses", start=_sdk("responses_agent.py")),
    Client(name="codex", dialect="responses", start=_codex, package="@openai/codex", turns=4),
    Client(name="pi", dialect="chat", start=_pi, package="@mariozechner/pi-coding-agent"),
    Client(name="qwen-code", dialect="chat", start=_qwen, package="@qwen-code/qwen-code"),
    Client(name="continue", dialect="chat", start=_continue, package="@continuedev/cli"),
    Client(name="cline", dialect="chat", start=_cline, package="cline"),
    Client(name="ostinato-code", dialect="chat", start=_code),
    Client(name="ostinato-acp", dialect="chat", start=_sdk("acp_client.py")),
)
