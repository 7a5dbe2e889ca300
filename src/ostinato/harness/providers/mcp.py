"""The tools of MCP servers, offered beside the profile's own as `mcp__server__tool`.

Each server has a task of its own that opens, keeps and closes the connection, since the SDK requires one task
for all three. A server that does not start is left out with a notice; one that dies is started again at the
next call.

::

    McpTools.open ─► server task ─► Client ─► tools/list ─► offers
    Executor ─► call ─► schema checked ─► tools/call, in time ─► text, or a typed tool error
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

from ostinato.config import ConfigError
from ostinato.harness.errors import (
    InvalidArguments,
    ProviderError,
    ToolError,
    ToolTimeout,
    UnexpectedEnvironment,
)
from ostinato.harness.profiles.offers import Offer, foreign
from ostinato.harness.providers.mcp_config import McpServer

PREFIX = "mcp"
TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
OUTPUT_CHARS = 20_000
CLOSING_S = 5.0
EXTRA = "MCP servers need the official SDK: pip install -e '.[code]'"


class McpMissing(ConfigError):  # noqa: N818
    """The SDK is not installed."""


class McpTools:
    """The tools of all servers that responded, made by `opened`."""

    def __init__(self, links: Sequence["_Link"]) -> None:
        self._links = {link.server.name: link for link in links}
        self.offers: Sequence[Offer] = tuple(
            foreign(_shown(link.server.name, tool), reads=_only_reads(tool))
            for link in links
            for tool in link.tools.values()
        )

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return the text of its result.

        Raises InvalidArguments, UnexpectedEnvironment (the tool says that it failed), ToolTimeout and
        ProviderError (the server did).
        """
        _, server, name = tool.split("__", 2)
        link = self._links[server]
        _check(tool, arguments, link.tools[name].input_schema)
        return await link.call(name, arguments)


@asynccontextmanager
async def opened(servers: Sequence[McpServer]) -> AsyncIterator[tuple[McpTools, list[str]]]:
    """Return the tools of `servers`, and a line with the reason for each server that does not respond.

    Raises McpMissing without the SDK.
    """
    links = [_Link(server) for server in servers]
    try:
        answers = await asyncio.gather(*(link.open() for link in links), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ToolError):
                raise answer
        alive = [link for link, answer in zip(links, answers, strict=True) if answer is None]
        yield McpTools(alive), [str(answer) for answer in answers if answer is not None]
    finally:
        await asyncio.gather(*(link.close() for link in links))


class _Link:
    """The link to one server, whose connection a task holds."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: dict[str, Any] = {}
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Open the connection; raises ProviderError when the server does not respond in time."""
        self._leave = asyncio.Event()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready))
        try:
            await asyncio.wait_for(asyncio.shield(ready), self.server.timeout_s)
        except TimeoutError:
            await self.close()
            raise ProviderError(f"MCP server {self.server.name} did not answer") from None

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        async with self._lock:
            if self._client is None:
                await self.close()
                await self.open()
            return await self._ask(name, arguments)

    async def close(self) -> None:
        self._leave.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=CLOSING_S)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSING_S)
        self._task = None

    async def _ask(self, name: str, arguments: Mapping[str, Any]) -> str:
        try:
            result = await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=self.server.timeout_s
            )
        except Exception as error:  # any error of the SDK is neither ours nor the model's
            if _is_timeout(error):
                raise ToolTimeout(f"{name} timed out after {self.server.timeout_s:g} s") from error
            self._client = None
            self._leave.set()
            raise ProviderError(f"MCP server {self.server.name} failed: {_why(error)}") from error
        text = _text(result) or "(no output)"
        if len(text) > OUTPUT_CHARS:
            left = len(text) - OUTPUT_CHARS
            text = f"{text[:OUTPUT_CHARS]}\n[cut: {left} more characters; ask for less at a time]"
        if result.is_error:
            raise UnexpectedEnvironment(text)
        return text

    async def _hold(self, ready: "asyncio.Future[None]") -> None:
        """Open the connection and keep it until it is lost or closed."""
        try:
            async with _connected(self.server) as client:
                self.tools = {tool.name: tool for tool in await _listed(client) if TOOL.fullmatch(tool.name)}
                self._client = client
                ready.set_result(None)
                await self._leave.wait()
        except McpMissing as error:
            ready.set_exception(error)
        except Exception as error:
            if not ready.done():
                ready.set_exception(ProviderError(f"MCP server {self.server.name} failed: {_why(error)}"))
        finally:
            self._client = None


@asynccontextmanager
async def _connected(server: McpServer) -> AsyncIterator[Any]:
    """Return the SDK's client of a server; what the server prints to stderr is not shown."""
    try:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client
    except ImportError as error:
        raise McpMissing(EXTRA) from error
    if server.command:
        program, *words = server.command
        started = StdioServerParameters(command=program, args=words, env=dict(server.env), cwd=server.cwd)
        with _nowhere() as silent:
            async with Client(stdio_client(started, silent)) as client:
                yield client
    else:
        async with (
            create_mcp_http_client(headers=dict(server.headers)) as http,
            Client(streamable_http_client(server.url, http_client=http)) as client,
        ):
            yield client


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


async def _listed(client: Any) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _shown(server: str, tool: Any) -> Mapping[str, Any]:
    function = {
        "name": f"{PREFIX}__{server}__{tool.name}",
        "description": tool.description or tool.title or tool.name,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _only_reads(tool: Any) -> bool:
    """Return whether the tool is declared to change nothing. It is a claim of its server, which decides when
    a call begins and never whether it is permitted."""
    return bool(tool.annotations and tool.annotations.read_only_hint)


def _check(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check a call; raises InvalidArguments. References to other documents are not followed."""
    from jsonschema import SchemaError, ValidationError
    from jsonschema.validators import validator_for
    from referencing import Registry

    validator: Any = validator_for(schema)
    try:
        validator.check_schema(schema)
        validator(schema, registry=Registry()).validate(dict(arguments))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        raise InvalidArguments(f"{name}: {where + ': ' if where else ''}{error.message[:200]}") from error
    except SchemaError as error:
        raise ProviderError(f"{name}: its server gives no valid schema: {error.message[:200]}") from error


def _text(result: Any) -> str:
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource" if hasattr(block.resource, "text"):
            return str(block.resource.text)
        case "resource_link":
            return str(block.uri)
    return f"[{block.type} left out: only text is read]"


def _is_timeout(error: BaseException) -> bool:
    """Return whether the server got the request and did not respond in time."""
    from mcp import MCPError
    from mcp.types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or (isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT)


def _why(error: BaseException) -> str:
    """Return the innermost reason, without the exception groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
