"""The command, environment and files with which each harness is started in a sandbox."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

PLACE = "/mnt/harness"
"""The place where a sandbox sees the folder that the harness is installed in."""
HOME = "/tmp/home"  # noqa: S108 - of the sandbox
KEY = "the-door-has-the-key"
"""The key that harnesses are given: a sandbox never sees the gateway's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideStart:
    """One start of a harness; `files` are written below its home first.

    >>> OutsideStart(command=("/mnt/harness/bin/agent", "mend it")).files
    {}
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A kind of harness: its program, below the folder that it is installed in, and how it is started."""

    program: str
    start: Callable[[str, str], OutsideStart]
    """Returns the start for the address of the model and the instruction."""


def _mini(url: str, task: str) -> OutsideStart:
    options = ("-c", "mini.yaml", "-c", "model.cost_tracking=ignore_errors")
    agent = (f"{PLACE}/bin/python", f"{PLACE}/bin/mini", "-m", "openai/ostinato")
    return OutsideStart(
        command=(*agent, "--yolo", "--exit-immediately", *options, "-o", f"{HOME}/run.json", "-t", task),
        environment={
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": KEY,
            "MSWEA_CONFIGURED": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


def _claude(url: str, task: str) -> OutsideStart:
    return OutsideStart(
        command=(
            *(f"{PLACE}/node_modules/.bin/claude", "-p", task, "--permission-mode", "acceptEdits"),
            *("--allowedTools", "Bash"),
        ),
        environment={
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_MODEL": "ostinato",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "ostinato",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


def _codex(url: str, task: str) -> OutsideStart:
    config = (
        'model = "ostinato"\nmodel_provider = "ostinato"\n\n[model_providers.ostinato]\nname = "ostinato"\n'
        f'base_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
    )
    return OutsideStart(
        command=(
            *(f"{PLACE}/node_modules/.bin/codex", "exec"),
            *("--sandbox", "danger-full-access", "--skip-git-repo-check", task),
        ),
        environment={"OPENAI_API_KEY": KEY},
        files={".codex/config.toml": config},
    )


def _opencode(url: str, task: str) -> OutsideStart:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"ostinato": {"name": "ostinato", "limit": {"context": 200_000, "output": 8_000}}},
    }
    config = {"model": "ostinato/ostinato", "autoupdate": False, "provider": {"ostinato": provider}}
    return OutsideStart(
        command=(f"{PLACE}/node_modules/.bin/opencode", "run", task),
        files={".config/opencode/opencode.json": json.dumps(config)},
    )


def command_start(command: Sequence[str], url: str, task: str) -> OutsideStart:
    """Return the start of a harness that ostinato does not know, from the words of its command."""
    values = {"{place}": PLACE, "{url}": url, "{task}": task}
    words = [re.sub(r"\{(?:place|url|task)\}", lambda found: values[found[0]], word) for word in command]
    names = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
    return OutsideStart(
        command=tuple(words),
        environment={
            **dict.fromkeys(names, f"{url}/v1"),
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
        },
    )


COMMAND = "command"
"""The harness that is any command."""
STARTS = {
    "mini-swe-agent": Harness(program="bin/mini", start=_mini),
    "claude-code": Harness(program="node_modules/.bin/claude", start=_claude),
    "codex": Harness(program="node_modules/.bin/codex", start=_codex),
    "opencode": Harness(program="node_modules/.bin/opencode", start=_opencode),
}
