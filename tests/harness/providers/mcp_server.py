"""A real MCP server for tests: `python mcp_server.py` on stdio, with a port over HTTP."""

import asyncio
import os
import sys
from typing import Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tickets", log_level="ERROR")


@server.tool(description="Adds two numbers.")
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def greet(name: str, mood: Literal["kind", "grim"] = "kind") -> str:
    return f"{mood} greetings to {name} from {os.environ.get('TOKEN', 'nobody')}"


@server.tool()
def fail(why: str) -> str:
    raise ToolError(why)


@server.tool()
async def sleep() -> str:
    await asyncio.sleep(60)
    return "late"


@server.tool()
def die() -> str:
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
