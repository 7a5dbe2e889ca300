"""The MCP servers that an editor offers with a session."""

import re
from collections.abc import Sequence
from typing import Any

from acp import RequestError, schema

from ostinato.harness.frontends.acp.wire import INVALID_PARAMS
from ostinato.harness.providers.mcp_config import McpServer

NAME_CHARS = 32


def servers_of(offered: Sequence[Any] | None) -> tuple[McpServer, ...]:
    """Return the servers that are local programs or HTTP addresses.

    Raise RequestError for any other kind, and for two servers of one name.
    """
    servers = tuple(_server(each) for each in offered or ())
    if len({server.name for server in servers}) < len(servers):
        raise RequestError(INVALID_PARAMS, "two MCP servers have the same name: give each its own")
    return servers


def _server(offered: Any) -> McpServer:
    name = safe_name(offered.name)
    match offered:
        case schema.McpServerStdio():
            env = {each.name: each.value for each in offered.env}
            return McpServer(name=name, command=(offered.command, *offered.args), env=env)
        case schema.HttpMcpServer():
            headers = {each.name: each.value for each in offered.headers}
            return McpServer(name=name, url=offered.url, headers=headers)
        case _:
            kind = getattr(offered, "type", "unknown")
            raise RequestError(INVALID_PARAMS, f"MCP server {offered.name}: use stdio or http, not {kind}")


def safe_name(name: str) -> str:
    """Return the name in the characters that a tool's name may have.

    >>> safe_name("My server_2")
    'My-server-2'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:NAME_CHARS] or "server"
