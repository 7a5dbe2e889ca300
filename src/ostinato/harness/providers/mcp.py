"""The tools of MCP servers, offered beside the profile's own as `mcp__server__tool`.

Each server has a task of its own that opens, keeps and closes the connection, since the SDK requires one task
for all three. A server that does not start is left out with a notice; one that dies is started again at the
next call. A server is not trusted: what it sends is bounded and escaped, a tool whose name is none is left
out with a notice, and one that has another description or schema when the server starts again is not called.

::

    McpTools.open ─► server task ─► Client ─► tools/list ─► offers
    Executor ─► call ─► schema checked ─► tools/call, in time ─► text, or a typed tool error
"""

import asyncio
import codecs
import itertools
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
from ostinato.harness.users import visible

PREFIX = "mcp"
TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
OUTPUT_CHARS = 20_000
MOST_TOOLS, MOST_PAGES, OFFER_CHARS, WHY_CHARS = 256, 64, 20_000, 500
LONGEST = 1 << 22
"""The characters of a line over standard output, and the bytes of a reply over HTTP; a longer one is not
read: it could fill the memory."""
BOUND = f"a reply of more than {LONGEST >> 20} MiB is not read"
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
    r"|[\U000e0000-\U000e007f]"
)
"""What moves a cursor, turns a text around, or is read by a model and seen by nobody."""
MOST_STEPS = 100_000
"""The keywords of a schema that are applied to one call's arguments, at most; a schema may ask for 2^60."""
CLOSING_S = 5.0
EXTRA = "MCP servers need the official SDK: pip install -e '.[code]'"


class McpMissing(ConfigError):  # noqa: N818
    """The SDK is not installed."""


class McpTools:
    """The tools of all servers that responded, made by `opened`."""

    def __init__(self, links: Sequence["_Link"]) -> None:
        self._links = {link.server.name: link for link in links}
        self.offers: Sequence[Offer] = tuple(
            foreign(shown, reads=name in link.reading)
            for link in links
            for name, shown in link.offered.items()
        )

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return the text of its result.

        Raises InvalidArguments, UnexpectedEnvironment (the tool says that it failed), ToolTimeout and
        ProviderError (the server did).
        """
        _, server, name = tool.split("__", 2)
        link = self._links[server]
        _check(tool, arguments, link.offered[name]["function"]["parameters"])
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
        refused = [reason for link in alive for reason in link.refused]
        yield McpTools(alive), [*(str(answer) for answer in answers if answer is not None), *refused]
    finally:
        await asyncio.gather(*(link.close() for link in links))


class _Link:
    """The link to one server, whose connection a task holds."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.offered: dict[str, Mapping[str, Any]] = {}
        """The tools as they were shown when the server first responded."""
        self.reading: frozenset[str] = frozenset()
        """Those of them that were then declared to change nothing."""
        self.refused: list[str] = []
        self._tools: dict[str, Mapping[str, Any]] = {}
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
            if self._tools.get(name) != self.offered[name]:
                raise ProviderError(
                    f"MCP server {self.server.name} offers another {name} than at the start: it is not called"
                )
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
                raise ToolTimeout(f"{name} timed out after {self.server.timeout_s:g} s ({BOUND})") from error
            self._client = None
            self._leave.set()
            why = f"{_why(error)} ({BOUND})" if self.server.url else _why(error)  # the SDK keeps no reason
            raise ProviderError(f"MCP server {self.server.name} failed: {why}") from error
        text = _escaped(_text(result)) or "(no output)"
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
                listed = await _listed(client)
                self._tools, self.refused = _sorted(self.server.name, listed)
                if not self.offered:
                    self.offered = self._tools
                    self.reading = frozenset(tool.name for tool in listed if _only_reads(tool))
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

        from ostinato.harness.providers.mcp_http import bounded_client
    except ImportError as error:
        raise McpMissing(EXTRA) from error
    if server.command:
        program, *words = server.command
        started = StdioServerParameters(
            command=program, args=words, env=dict(server.env), cwd=server.cwd, encoding=_BoundedLines.NAME
        )
        with _nowhere() as silent:
            async with Client(stdio_client(started, silent)) as client:
                yield client
    else:
        async with (
            bounded_client(server.headers, LONGEST) as http,
            Client(streamable_http_client(server.url, http_client=http)) as client,
        ):
            yield client


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


async def _listed(client: Any) -> list[Any]:
    page = await client.list_tools()
    tools = list(page.tools)
    for _ in range(MOST_PAGES):
        if page.next_cursor is None or len(tools) > MOST_TOOLS:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    if page.next_cursor is not None or len(tools) > MOST_TOOLS:
        raise ValueError(f"it lists more than {MOST_TOOLS} tools or {MOST_PAGES} pages")
    return tools


def _sorted(server: str, tools: Sequence[Any]) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return the tools by their names as they are shown, and a line for each that is left out."""
    shown: dict[str, Mapping[str, Any]] = {}
    refused = []
    for tool in tools:
        function = {
            "name": f"{PREFIX}__{server}__{tool.name}",
            "description": visible(tool.description or tool.title or tool.name),
            "parameters": tool.input_schema,
        }
        why = "its name is none" if not TOOL.fullmatch(tool.name) else ""
        why = why or ("it is listed twice" if tool.name in shown else "")
        why = why or ("its schema has characters that nobody sees" if _hides(tool.input_schema) else "")
        if not why and len(json.dumps(function)) > OFFER_CHARS:
            why = f"its description and schema have more than {OFFER_CHARS} characters"
        if why:
            refused.append(f"MCP server {server}: the tool {visible(tool.name)[:64]!r} is left out, {why}")
        else:
            shown[tool.name] = {"type": "function", "function": function}
    return shown, refused


class _BoundedLines(codecs.IncrementalDecoder):
    """A decoder of UTF-8 that keeps at most LONGEST of a line, since the SDK keeps whole lines."""

    NAME = "ostinato_mcp_lines"

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._inner = codecs.getincrementaldecoder("utf-8")("replace")
        self._length = 0

    def decode(self, data: Any, final: bool = False) -> str:
        kept = []
        for number, piece in enumerate(self._inner.decode(bytes(data), final).split("\n")):
            if number:
                kept.append("\n")
                self._length = 0
            kept.append(piece[: max(0, LONGEST - self._length)])
            self._length += len(piece)
        return "".join(kept)


codecs.register(
    lambda name: (
        codecs.CodecInfo(
            name=name,
            encode=codecs.utf_8_encode,
            decode=codecs.utf_8_decode,
            incrementaldecoder=_BoundedLines,
        )
        if name == _BoundedLines.NAME
        else None
    )
)


def _only_reads(tool: Any) -> bool:
    """Return whether the tool is declared to change nothing. It is a claim of its server, which decides when
    a call begins and never whether it is permitted."""
    return bool(tool.annotations and tool.annotations.read_only_hint)


def _check(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check a call; raises InvalidArguments. References to other documents are not followed.

    A schema with regular expressions, which may take for ever, is left to its server. One that takes too many
    steps raises ProviderError.
    """
    from jsonschema import SchemaError, ValidationError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if '"pattern' in json.dumps(schema):
        return
    validator: Any = validator_for(schema)
    left = itertools.repeat(None, MOST_STEPS)

    def counted(keyword: Any) -> Any:
        def apply(*about: Any) -> Any:
            if next(left, ...) is not None:
                raise RecursionError(f"it takes more than {MOST_STEPS} steps")
            return keyword(*about)

        return apply

    bounded: Any = extend(validator, {name: counted(each) for name, each in validator.VALIDATORS.items()})
    try:
        validator.check_schema(schema)
        bounded(schema, registry=Registry()).validate(dict(arguments))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        raise InvalidArguments(f"{name}: {where + ': ' if where else ''}{error.message[:200]}") from error
    except SchemaError as error:
        raise ProviderError(f"{name}: its server gives no valid schema: {error.message[:200]}") from error
    except (RecursionError, Unresolvable) as error:
        raise ProviderError(f"{name}: its server gives a schema that has no end: {_why(error)}") from error


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
    return _escaped(str(error))[:WHY_CHARS] or type(error).__name__


def _hides(schema: Any) -> bool:
    """Return whether a name or a text of a schema has characters that nobody sees."""
    left = [schema]
    while left:
        match left.pop():
            case str(text):
                if UNSEEN.search(text):
                    return True
            case dict(items):
                left += [*items, *items.values()]
            case list(items):
                left += items
    return False


def _escaped(text: str) -> str:
    """Return a text in which each character is seen, and none moves a cursor or breaks JSON."""
    return UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))
