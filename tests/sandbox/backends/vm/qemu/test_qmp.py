"""The client against a server that speaks the protocol."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.vm.qemu.qmp import QmpMonitor, greet, wait_for
from ostinato.sandbox.protocol.connection import ConnectionLostError

GREETING = {"QMP": {"version": {}, "capabilities": []}}


@asynccontextmanager
async def monitor(answers: dict[str, list[dict[str, Any]]]) -> AsyncIterator[QmpMonitor]:
    """Yield a client of a server that sends those responses, and ends at an unknown command."""
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
    await asyncio.to_thread(greet, ours)
    client = await QmpMonitor.open(ours)
    yield client
    client.close()
    await task


async def test_results_and_errors() -> None:
    error = {"error": {"class": "GenericError", "desc": "no such file"}}
    async with monitor({"stop": [{"event": "STOP"}, {"return": {"a": 1}}], "cont": [error]}) as client:
        assert await client.command("stop") == {"a": 1}
        with pytest.raises(SandboxError, match="QEMU refused cont: no such file"):
            await client.command("cont")


async def test_events_between_responses_are_skipped() -> None:
    async with monitor(
        {"stop": [{"event": "STOP"}, {"return": {}}, {"event": "A"}], "cont": [{"return": 1}]}
    ) as client:
        assert await client.command("stop") == {}
        assert await client.command("cont") == 1


def test_wait_for_reads_the_whole_line_of_its_word() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"event":"A"}\n{"event":"RESUME"')
        threading.Timer(0.01, theirs.sendall, (b"}\n",)).start()
        wait_for(ours, b"RESUME")
        theirs.sendall(b"next")
        assert ours.recv(100) == b"next"


async def test_a_machine_that_ended_is_an_error() -> None:
    async with monitor({}) as client:
        with pytest.raises(ConnectionLostError, match="QEMU is gone"):
            await client.command("quit")
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(ConnectionLostError, match="QEMU is gone"):
        greet(ours)
