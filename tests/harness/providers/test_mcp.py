"""Tools of real MCP server processes, written with the official SDK."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from ostinato.harness.errors import InvalidArguments, ProviderError, ToolTimeout, UnexpectedEnvironment
from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import CORE
from ostinato.harness.providers.base import Providers
from ostinato.harness.providers.mcp import McpTools, opened
from ostinato.harness.providers.mcp_config import McpServer
from ostinato.harness.users import SilentUser
from ostinato.sandbox.base import Sandbox

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))
TICKETS = McpServer(name="tickets", command=(sys.executable, PROGRAM), env={"TOKEN": "s3"}, timeout_s=20.0)


async def test_tools_of_a_server_stand_beside_the_others(sandbox: Sandbox) -> None:
    async with opened([TICKETS]) as (tools, failed):
        assert not failed
        profile = CORE.beside(tools.offers)
        assert profile.hash != CORE.hash
        assert [offer.name for offer in tools.offers][:2] == ["mcp__tickets__add", "mcp__tickets__greet"]
        executor = Executor(
            sandbox, SilentUser(), command_timeout_s=2.0, profile=profile, providers=Providers(tools=tools)
        )
        assert (await executor.run("mcp__tickets__add", {"a": 2, "b": 3})).text == "5"
        assert (await executor.run("ls", {})).text == "calc.py\npkg/"
        greeting = await executor.run("mcp__tickets__greet", {"name": "Ada"})
        assert greeting.text == "kind greetings to Ada from s3"
        wrong = await executor.run("mcp__tickets__add", {"a": "two", "b": 3})
        assert wrong.text == "error: mcp__tickets__add: a: 'two' is not of type 'integer'"
        assert wrong.broken
        grim = await executor.run("mcp__tickets__greet", {"name": "Ada", "mood": "odd"})
        assert isinstance(grim.error, InvalidArguments)
        failure = await executor.run("mcp__tickets__fail", {"why": "no ticket 7"})
        assert isinstance(failure.error, UnexpectedEnvironment)
        assert "no ticket 7" in failure.text


async def test_a_server_that_dies_is_an_error_and_comes_back() -> None:
    async with opened([TICKETS]) as (tools, _):
        with pytest.raises(ProviderError, match="MCP server tickets failed"):
            await tools.call("mcp__tickets__die", {})
        assert await tools.call("mcp__tickets__add", {"a": 1, "b": 1}) == "2"


async def test_a_call_has_an_end() -> None:
    async with opened([TICKETS]) as (tools, _):
        impatient(tools)
        with pytest.raises(ToolTimeout, match=r"sleep timed out after 0\.3 s"):
            await tools.call("mcp__tickets__sleep", {})
        calling = asyncio.create_task(tools.call("mcp__tickets__sleep", {}))
        await asyncio.sleep(0.05)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


def impatient(tools: McpTools) -> None:
    """Starting takes longer than a call may."""
    from dataclasses import replace

    (link,) = tools._links.values()
    link.server = replace(link.server, timeout_s=0.3)


async def test_servers_that_do_not_start_are_left_out() -> None:
    silent = McpServer(name="silent", command=("sleep", "60"), timeout_s=0.5)
    absent = McpServer(name="absent", command=("no-such-program-here",))
    ends = McpServer(name="ends", command=("false",), timeout_s=5.0)
    nobody = McpServer(name="nobody", url="http://127.0.0.1:1/mcp", timeout_s=5.0)
    async with opened([silent, absent, ends, nobody]) as (tools, failed):
        assert not tools.offers
        assert [line.split()[2] for line in failed] == ["silent", "absent", "ends", "nobody"]
        assert failed[0] == "MCP server silent did not answer"


async def test_a_server_over_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await listening(port)
        server = McpServer(name="web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "k"})
        async with opened([server]) as (tools, failed):
            assert not failed
            assert await tools.call("mcp__web__add", {"a": 20, "b": 1}) == "21"
            process.kill()
            await process.wait()
            with pytest.raises(ProviderError, match="MCP server web failed"):
                await tools.call("mcp__web__add", {"a": 20, "b": 1})
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return
