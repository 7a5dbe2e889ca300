"""The configuration of MCP servers: a TOML or JSON file with one table for each.

::

    [servers.tickets]                         { "mcpServers": {
    command = ["tickets-mcp", "--stdio"]          "tickets": { "command": "tickets-mcp", "args": ["--stdio"],
    env = { TOKEN = "env:TICKETS_TOKEN" }                      "env": {"TOKEN": "env:TICKETS_TOKEN"} },
                                                  "docs": { "url": "https://docs.example/mcp" } } }
    [servers.docs]
    url = "https://docs.example/mcp"
    timeout_s = 20.0

A value `env:NAME` is read from the environment, so that no secret lies in the file.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ostinato.config import ConfigError
from ostinato.harness.permissions import policy

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")
"""The names of servers have no underscore, so that `mcp__server__tool` can be split again."""
KEYS = {"command", "args", "url", "env", "cwd", "headers", "timeout_s"}
FROM_ENVIRONMENT = "env:"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server: a program that speaks on its standard input and output, or an address.

    >>> McpServer(name="tickets", command=("tickets-mcp",)).timeout_s
    30.0
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    timeout_s: float = 30.0
    """The time limit of the start and of each call."""


def file() -> Path:
    """Return the file in which a person names servers for all repositories. A repository cannot name any."""
    return policy.file().with_name("mcp.toml")


def of_person() -> list[McpServer]:
    """Return the servers of that file, none when it does not exist; raises ConfigError."""
    return load(file()) if file().exists() else []


def load(path: Path) -> list[McpServer]:
    """Return the servers of a file; raises ConfigError."""
    try:
        text = path.read_text()
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    servers = tree.get("servers", tree.get("mcpServers"))
    if not isinstance(servers, dict) or not all(isinstance(table, dict) for table in servers.values()):
        raise ConfigError(f"{path}: give one table [servers.NAME] for each server")
    return [_server(f"{path}: server {name}", name, table) for name, table in servers.items()]


def _server(where: str, name: str, table: Mapping[str, Any]) -> McpServer:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name is 1 to 32 letters, digits and dashes")
    unknown = table.keys() - KEYS
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(sorted(unknown))}; use {', '.join(sorted(KEYS))}")
    if ("command" in table) == ("url" in table):
        raise ConfigError(f"{where}: give either command or url")
    try:
        return McpServer(
            name=name,
            command=_command(table),
            url=_text(table.get("url", "")),
            env=_secrets(table.get("env", {})),
            headers=_secrets(table.get("headers", {})),
            cwd=table.get("cwd"),
            timeout_s=float(table.get("timeout_s", 30.0)),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _command(table: Mapping[str, Any]) -> tuple[str, ...]:
    command = table.get("command", ())
    words = [command] if isinstance(command, str) else list(command)
    return tuple(_text(word) for word in [*words, *table.get("args", ())])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _secrets(table: Mapping[str, str]) -> dict[str, str]:
    return {name: _secret(_text(value)) for name, value in table.items()}


def _secret(value: str) -> str:
    if not value.startswith(FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(FROM_ENVIRONMENT)
    if name not in os.environ:
        raise ValueError(f"{name} is not set in the environment")
    return os.environ[name]
