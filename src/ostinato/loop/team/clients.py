"""Other people's agents, set up for the gateway in the person's own files; what is there stays as it is.

A setting that a person has chosen otherwise is never changed: the client is then left alone, and the refusal
says which setting it is. What an earlier `join` wrote is replaced.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.edits.install.claude import read_settings, write_settings, write_text
from ostinato.edits.install.git_hooks import InstallError

BLOCK = re.compile(r"# >>> ostinato join >>>\n.*?# <<< ostinato join <<<\n", re.DOTALL)
CODEX_MODEL = """\
# >>> ostinato join >>>
model = {}
model_provider = "ostinato"
# <<< ostinato join <<<
"""
CODEX_PROVIDER = """\
# >>> ostinato join >>>
[model_providers.ostinato]
name = "ostinato"
base_url = {}
wire_api = "responses"
http_headers = {{ Authorization = {} }}
# <<< ostinato join <<<
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a client needs to know.

    >>> Membership(url="https://models.example", key="k", model="ostinato", context=32768).context
    32768
    """

    url: str
    key: str
    model: str
    context: int


def claude_code(home: Path, member: Membership) -> str:
    path = home / ".claude" / "settings.json"
    settings = read_settings(path)
    ours = {
        "ANTHROPIC_BASE_URL": member.url,
        "ANTHROPIC_AUTH_TOKEN": member.key,
        "ANTHROPIC_MODEL": member.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": member.model,
    }
    present = _table(path, settings, "env")
    again = present.get("ANTHROPIC_BASE_URL") == member.url
    for name, value in ours.items():
        if not again and present.get(name, value) != value:
            raise _taken(path, f"env.{name}")
    write_settings(path, settings | {"env": present | ours}, secret=True)
    return f"Claude Code: {path}"


def opencode(home: Path, member: Membership) -> str:
    path = home / ".config" / "opencode" / "opencode.json"
    settings = read_settings(path)
    limit = {"context": member.context or 32_000, "output": min(8_000, (member.context or 32_000) // 4)}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{member.url}/v1", "apiKey": member.key},
        "models": {member.model: {"limit": limit}},
    }
    providers = _table(path, settings, "provider") | {"ostinato": provider}
    chosen = {"model": settings.get("model", f"ostinato/{member.model}")}
    write_settings(path, settings | chosen | {"provider": providers}, secret=True)
    return f"opencode: {path}, model {chosen['model']}"


def codex(home: Path, member: Membership) -> str:
    path = home / ".codex" / "config.toml"
    text = BLOCK.sub("", path.read_text()) if path.exists() else ""
    kept = _parsed(path, text)
    if "ostinato" in kept.get("model_providers", {}):
        raise _taken(path, "model_providers.ostinato")
    chosen = "" if kept.keys() & {"model", "model_provider"} else CODEX_MODEL.format(json.dumps(member.model))
    url, bearer = json.dumps(f"{member.url}/v1"), json.dumps(f"Bearer {member.key}")
    ended = text if text.endswith("\n") or not text else f"{text}\n"
    whole = f"{chosen}{ended}{CODEX_PROVIDER.format(url, bearer)}"
    _parsed(path, whole)
    write_text(path, whole, secret=True)
    how = (
        ""
        if chosen
        else f"; its model stays, but for: codex -c model_provider=ostinato -c model={member.model}"
    )
    return f"Codex: {path}{how}"


def zed(home: Path, member: Membership) -> str:
    path = home / ".config" / "zed" / "settings.json"
    settings = read_settings(path)
    servers = _table(path, settings, "agent_servers") | {"ostinato": {"command": "ostinato", "args": ["acp"]}}
    write_settings(path, settings | {"agent_servers": servers})
    return f"Zed: {path}; other editors start `ostinato acp`"


CLIENTS: Mapping[str, tuple[str, Callable[[Path, Membership], str]]] = {
    "claude-code": (".claude", claude_code),
    "codex": (".codex", codex),
    "opencode": (".config/opencode", opencode),
    "zed": (".config/zed", zed),
}
"""Each client's folder below the home of a person who has it, and the function that sets it up.

The functions return what was written, and raise InstallError for a file that they leave as it is.
"""


def _table(path: Path, settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise _taken(path, name)
    return dict(table)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InstallError(f"{path} is not TOML ({error}): put it right first, it was not touched") from error


def _taken(path: Path, name: str) -> InstallError:
    return InstallError(f"{path} has {name} of your own, which stays: change it there, and join again")
