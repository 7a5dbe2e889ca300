"""The client against a server that speaks the protocol."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.qemu.qmp import Monitor

GREETING = {"QMP": {"version": {}, "capabilities": []}}


@asynccontextmanager
async def monitor(answers: dict[str, list[dict[str, Any]]]) -> AsyncIterator[Monitor]:
    """Connected to a server that gives those answers, and ends for a command that it does not know."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)

    async def serve() -> None:
        writer.write(json.dumps(GREETING).encode() + b"\n")
        while line := await reader.readline():
            for answer in {"qmp_capabilities": [{"return": {}}], **answers}.get(
                json.loads(line)["execute"], []
            ):
                writer.write(json.dumps(answer).encode() + b"\n")
            if json.loads(line)["execute"] == "quit":
                break
        writer.close()

    task = asyncio.create_task(serve())
    client = await Monitor.open(ours)
    yield client
    client.close()
    await task


def event(status: str) -> dict[str, Any]:
    return {"event": "MIGRATION", "data": {"status": status}}


async def test_answers_and_errors() -> None:
    error = {"error": {"class": "GenericError", "desc": "no such file"}}
    async with monitor({"stop": [{"event": "STOP"}, {"return": {"a": 1}}], "cont": [error]}) as client:
        assert await client.command("stop") == {"a": 1}
        with pytest.raises(SandboxError, match="QEMU refused cont: no such file"):
            await client.command("cont")


@pytest.mark.parametrize("early", [True, False])
async def test_the_end_of_a_migration_is_awaited(early: bool) -> None:
    events = [event("setup"), event("active"), event("completed")]
    answers = [*events, {"return": {}}] if early else [{"return": {}}, *events]
    async with monitor({"migrate-incoming": answers}) as client:
        await client.command("migrate-incoming", uri="file:x")
        await client.migrated()


async def test_a_failed_migration_and_an_end_say_so() -> None:
    async with monitor({"migrate-incoming": [{"return": {}}, event("failed")]}) as client:
        await client.command("migrate-incoming", uri="file:x")
        with pytest.raises(SandboxError, match="could not load"):
            await client.migrated()
        with pytest.raises(SandboxError, match="QEMU is gone"):
            await client.command("quit")
