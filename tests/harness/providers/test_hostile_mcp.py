"""An MCP server that means harm is bounded, escaped or refused with its name, and the session goes on.

Covers harness/providers/mcp.py and harness/providers/mcp_http.py.
"""

import asyncio
import resource
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ostinato.harness.errors import ProviderError, ToolTimeout
from ostinato.harness.providers import mcp
from ostinato.harness.providers.mcp import McpTools, opened
from ostinato.harness.providers.mcp_config import McpServer

PROGRAM = str(Path(__file__).with_name("hostile_mcp_server.py"))


def hostile(kind: str, folder: Path, timeout_s: float = 60.0) -> McpServer:
    command = (sys.executable, PROGRAM, kind, str(folder / "mark"))
    return McpServer(name="odd", command=command, env={}, timeout_s=timeout_s)


def impatient(tools: McpTools) -> None:
    """Starting takes longer than a call may."""
    (link,) = tools._links.values()
    link.server = replace(link.server, timeout_s=1.0)


async def test_names_and_descriptions(tmp_path: Path) -> None:
    async with opened([hostile("names", tmp_path)]) as (tools, notices):
        assert [offer.name for offer in tools.offers] == ["mcp__odd__use", "mcp__odd__bash", "mcp__odd__seen"]
        assert tools.offers[-1].shown["function"]["description"] == "a\\x1b[2Jb\\u202ec"
        assert len(notices) == 6
        assert notices[0] == "MCP server odd: the tool 'use' is left out, it is listed twice"
        assert notices[1] == "MCP server odd: the tool 'na\\\\x1b[2Jme' is left out, its name is none"
        assert notices[-1].endswith("its description and schema have more than 20000 characters")
        assert await tools.call("mcp__odd__bash", {}) == "done"


async def test_pages_without_an_end(tmp_path: Path) -> None:
    async with opened([hostile("pages", tmp_path)]) as (tools, notices):
        assert not tools.offers
        assert notices == ["MCP server odd failed: it lists more than 256 tools or 64 pages"]


@pytest.mark.parametrize("kind", ["huge", "endless"])
async def test_a_reply_that_is_too_long(tmp_path: Path, kind: str) -> None:
    async with opened([hostile(kind, tmp_path)]) as (tools, _):
        impatient(tools)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ToolTimeout, match="a reply of more than 4 MiB is not read"):
            await asyncio.wait_for(tools.call("mcp__odd__use", {}), 300)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}])
async def test_a_reply_over_http_that_is_too_long(headers: dict[str, str]) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        if request.method == "GET" or "id" not in (asked := await request.json()):
            return web.Response(status=405 if request.method == "GET" else 202)
        if asked["method"] != "tools/call":
            return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": _said(asked)})
        response = web.StreamResponse(headers={"content-type": "application/json", **headers})
        await response.prepare(request)
        for _ in range(2_000):
            await response.write(b" " * 65_536)
            sent += 65_536
        return response

    async with TestServer(_application(answer)) as server:
        there = McpServer(name="odd", url=str(server.make_url("/mcp")))
        async with opened([there]) as (tools, notices):
            assert not notices
            with pytest.raises(ProviderError, match=r"MCP server odd failed.*more than 4 MiB is not read"):
                await tools.call("mcp__odd__use", {})
    assert sent < 32 << 20  # what lies in the buffers of both sides


def _application(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    application = web.Application()
    application.router.add_route("*", "/mcp", answer)
    return application


def _said(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["method"] == "initialize":
        about = {"name": "odd", "version": "1"}
        version = asked["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    return (
        {"tools": [{"name": "use", "inputSchema": {"type": "object"}}]} if "list" in asked["method"] else {}
    )


async def test_a_long_reply_is_cut(tmp_path: Path) -> None:
    async with opened([hostile("long", tmp_path)]) as (tools, _):
        text = await tools.call("mcp__odd__use", {})
        assert text == "x" * mcp.OUTPUT_CHARS + "\n[cut: 1028576 more characters; ask for less at a time]"


async def test_lines_that_are_no_json(tmp_path: Path) -> None:
    async with opened([hostile("garbage", tmp_path)]) as (tools, notices):
        assert not notices
        assert await tools.call("mcp__odd__use", {}) == "done"


async def test_escapes_in_a_reply(tmp_path: Path) -> None:
    async with opened([hostile("escapes", tmp_path)]) as (tools, _):
        assert await tools.call("mcp__odd__use", {}) == "a\\x1b]0;title\\x07\\x1b[2J\nb"


async def test_what_nobody_sees_in_a_reply_or_a_schema(tmp_path: Path) -> None:
    async with opened([hostile("unseen", tmp_path)]) as (tools, _):
        assert await tools.call("mcp__odd__use", {}) == "a\\u202eb\\u200bc\\U000e0041d"
    async with opened([hostile("hidden", tmp_path)]) as (tools, notices):
        assert not tools.offers
        assert [line.endswith("its schema has characters that nobody sees") for line in notices] == [True] * 3


async def test_what_a_server_asks_of_us_is_refused(tmp_path: Path) -> None:
    async with opened([hostile("asks", tmp_path)]) as (tools, _):
        assert await tools.call("mcp__odd__use", {}) == "done"


@pytest.mark.parametrize("kind", ["progress", "deep"])
async def test_a_reply_that_never_comes(tmp_path: Path, kind: str) -> None:
    async with opened([hostile(kind, tmp_path)]) as (tools, _):
        impatient(tools)
        with pytest.raises(ToolTimeout, match="use timed out"):
            await asyncio.wait_for(tools.call("mcp__odd__use", {}), 300)


async def test_a_schema_that_asks_for_more_steps_than_anybody_has(tmp_path: Path) -> None:
    async with opened([hostile("bomb", tmp_path)]) as (tools, _):
        with pytest.raises(ProviderError, match="takes more than 100000 steps"):
            await tools.call("mcp__odd__use", {})
        assert await tools.call("mcp__odd__unique", {"a": list(range(1000))}) == "done"


async def test_a_tool_that_changes_after_it_was_shown(tmp_path: Path) -> None:
    async with opened([hostile("changes", tmp_path)]) as (tools, _):
        with pytest.raises(ProviderError, match="MCP server odd failed"):
            await tools.call("mcp__odd__use", {})
        with pytest.raises(ProviderError, match="MCP server odd offers another use than at the start"):
            await tools.call("mcp__odd__use", {})
        assert tools.offers[0].shown["function"]["description"] == "Uses it."


async def test_schemas_without_an_end(tmp_path: Path) -> None:
    async with opened([hostile("schema", tmp_path)]) as (tools, _):
        for name in ("use", "away"):
            with pytest.raises(ProviderError, match="gives a schema that has no end"):
                await tools.call(f"mcp__odd__{name}", {})
        assert await tools.call("mcp__odd__slow", {"a": "a" * 60 + "b"}) == "done"
