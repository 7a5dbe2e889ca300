"""An agent under foreign control is detected, and cannot exceed the bounds of the backend's memory.

Covers sandbox/protocol/connection.py, sandbox/guest/exam_calls.py and sandbox/backends/container/backend.py.
"""

import asyncio
import json
import os
import select
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError, Spec
from ostinato.sandbox.backends.agent_sandbox import AgentProcess, AgentSandbox
from ostinato.sandbox.backends.container.backend import between
from ostinato.sandbox.guest.exam_calls import ExamCalls
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import AgentLink, Poller
from ostinato.sandbox.protocol.connection import AgentConnection

MB = 2**20
FLOOD = 80 * MB
MOST = 50 * MB
RUN = {"command": "true", "timeout_s": 5, "stdin": True, "state": False}


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail when the peak of Python's memory in the context is more than a flood may cost."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < MOST


class Hostile:
    """The guest's end of a connection, in a thread that sends the frames of a test."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()

    def say(self, *parts: bytes) -> None:
        def send() -> None:
            with suppress(OSError):  # the backend hung up: that is what most of these tests want
                for part in parts:
                    self.theirs.sendall(part)

        threading.Thread(target=send, daemon=True).start()

    def frame(self, body: bytes = b"", **header: object) -> bytes:
        return frames.pack(header, body)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    made = Hostile()
    yield made
    made.theirs.close()
    made.ours.close()


@pytest.fixture
async def wire(hostile: Hostile) -> AsyncIterator[AgentConnection]:
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(AgentConnection, sock=hostile.ours)
    hostile.say(hostile.frame(id=0, ready=True))
    await wire.wait_until_ready(20)
    yield wire
    await wire.close("the test is over")


def announced(size: int, **header: object) -> bytes:
    """Return the start of a frame without its body."""
    text = json.dumps(header).encode()
    return frames._PREFIX.pack(frames.MAGIC, len(text), size) + text


@pytest.mark.parametrize("op", ["write", "state", "usage", "pause", "hello", "apply"])
async def test_a_large_body_where_none_belongs_ends_the_sandbox(
    wire: AgentConnection, hostile: Hostile, op: str
) -> None:
    asked = asyncio.create_task(wire.request({"op": op}, within_s=20))
    await asyncio.sleep(0)
    hostile.say(announced(1 << 29, id=1))
    with pytest.raises(SandboxError, match="protocol"):
        await asked


@pytest.mark.parametrize(
    "read", [lambda box: box.read("a"), lambda box: box.files(), lambda box: box.changes()]
)
async def test_each_operation_has_its_bound(
    wire: AgentConnection, hostile: Hostile, read: Callable[[AgentSandbox], object]
) -> None:
    sandbox = AgentSandbox(wire, Spec(repo=Path()), "/repo")
    asked = asyncio.ensure_future(read(sandbox))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    hostile.say(announced(100 * MB, id=1))
    with pytest.raises(SandboxError, match="protocol"):
        await asked


async def test_output_beyond_its_window_ends_the_sandbox(wire: AgentConnection, hostile: Hostile) -> None:
    with little_memory():
        process = AgentProcess(wire, RUN, within_s=20, keep=1000)
        piece = hostile.frame(bytes(frames.CHUNK), id=1, event="output")
        hostile.say(*[piece] * (FLOOD // frames.CHUNK))
        while not process._stream._ended:
            await asyncio.sleep(0.001)
        with pytest.raises(SandboxError, match="more output than it has credit"):
            await process.wait()


async def test_output_in_pieces_of_a_byte_is_joined(wire: AgentConnection, hostile: Hostile) -> None:
    process = AgentProcess(wire, RUN, within_s=60, keep=frames.WINDOW)
    piece = hostile.frame(b"x", id=1, event="output") * 100
    hostile.say(*[piece] * 50, hostile.frame(id=1, exit_code=0, timed_out=False, duration_s=1.0))
    while not process._stream._ended:
        await asyncio.sleep(0.001)
    assert [len(chunk) for chunk in process._stream._chunks] == [5000]
    assert (await process.wait()).output == "x" * 5000


async def test_a_frame_without_a_request_is_dropped_as_it_comes(
    wire: AgentConnection, hostile: Hostile
) -> None:
    asked = asyncio.create_task(wire.request({"op": "state"}, within_s=60))
    await asyncio.sleep(0)
    flood = [bytes(MB)] * (FLOOD // MB)
    with little_memory():
        hostile.say(
            *[announced(FLOOD, id=77), *flood],
            *[announced(FLOOD, id=0, event="data", stream=1), *flood],
            hostile.frame(id=1, tree="t"),
        )
        assert (await asked)[0]["tree"] == "t"


@pytest.mark.parametrize(
    "header",
    [b"[]", b"7", b"null", b"{", b"[" * 60_000, b'{"id": []}', b'{"event": "output"}', b"\xff"],
    ids=lambda header: repr(header[:10]),
)
async def test_an_invalid_header_ends_the_sandbox(
    wire: AgentConnection, hostile: Hostile, header: bytes
) -> None:
    asked = asyncio.create_task(wire.request({"op": "state"}, within_s=20))
    await asyncio.sleep(0)
    if b"id" in header:
        header = header.replace(b"}", b', "generation": "one"}')
    hostile.say(frames._PREFIX.pack(frames.MAGIC, len(header), 0) + header)
    with pytest.raises(SandboxError, match="protocol"):
        await asked


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"exit_code": "0", "duration_s": 1},
        {"exit_code": True, "duration_s": 1},
        {"exit_code": 0, "duration_s": float("nan")},
        {"exit_code": float("inf"), "duration_s": 1},
    ],
)
async def test_an_invalid_response_is_no_result(
    wire: AgentConnection, hostile: Hostile, answer: dict[str, object]
) -> None:
    process = AgentProcess(wire, RUN, within_s=20, keep=10)
    hostile.say(hostile.frame(id=1, **answer))
    with pytest.raises(SandboxError, match="protocol"):
        await process.wait()


async def test_more_input_taken_than_sent_ends_the_sandbox(wire: AgentConnection, hostile: Hostile) -> None:
    process = AgentProcess(wire, RUN, within_s=20, keep=10)
    hostile.say(hostile.frame(id=1, event="taken", bytes=1 << 40))
    with pytest.raises(SandboxError, match="more input than it was sent"):
        await process.wait()


class Examined:
    """A guest's agent with a worker that floods, behind the real `ExamCalls`."""

    def __init__(self, end: socket.socket, flood: int) -> None:
        self._end, self._flood = end, flood
        self.worker, self._agents = socket.socketpair()
        self._watch = Poller()
        self._link = AgentLink(end.fileno(), end.fileno())
        self._calls: ExamCalls | None = None
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()
        threading.Thread(target=self._say, daemon=True).start()

    def close(self) -> None:
        """Close the sockets, once the agent has seen the end of its connection and reads no more."""
        self._serving.join()
        for each in (self.worker, self._agents):
            each.close()

    def _serve(self) -> None:
        self._link.send({"id": 0, "ready": True})
        self._watch.add(self._link.incoming, select.POLLIN, self._hear)
        while self._link.open:
            self._watch.poll_once(0.1)

    def _hear(self, _: int) -> None:
        for request, body in self._link.receive():
            match request["op"]:
                case "worker":
                    self._calls = ExamCalls(
                        request["id"], self._agents, request["window"], self._watch, self._link.send
                    )
                case "input" if self._calls is not None:
                    self._calls.feed(body)
                case "credit" if self._calls is not None:
                    self._calls.credit(request["bytes"])

    def _say(self) -> None:
        with suppress(OSError):
            for _ in range(self._flood // MB):
                self.worker.sendall(bytes(MB))


async def test_output_of_a_worker_that_is_not_read_waits_in_its_guest(hostile: Hostile) -> None:
    """An exam's worker may send gigabytes while the judge is busy."""
    examined = Examined(hostile.theirs, FLOOD)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(AgentConnection, sock=hostile.ours)
    await wire.wait_until_ready(20)
    judge, calls = socket.socketpair()
    request = {"op": "worker", "variation": 0, "stdin": True}
    with little_memory():
        worker = AgentProcess(wire, request, within_s=60, keep=0)
        working = asyncio.create_task(between(calls, worker))
        before = -1
        while (held := worker._output_window) != before or before == frames.WINDOW + frames.DRAIN:
            before = held  # until nothing more comes
            await asyncio.sleep(0.2)
        assert worker._output_window >= frames.DRAIN  # an honest agent never needs more than its window
    judge.close()
    await working
    calls.close()
    await wire.close("the test is over")
    examined.close()


async def test_calls_and_results_of_any_size_pass_between_judge_and_worker(hostile: Hostile) -> None:
    examined = Examined(hostile.theirs, 0)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(AgentConnection, sock=hostile.ours)
    await wire.wait_until_ready(20)
    judge, calls = socket.socketpair()
    worker = AgentProcess(wire, {"op": "worker", "variation": 0, "stdin": True}, within_s=60, keep=0)
    working = asyncio.create_task(between(calls, worker))
    large = os.urandom(3 * MB)

    def echo() -> None:
        data = b""
        while len(data) < len(large):
            data += examined.worker.recv(MB)
        examined.worker.sendall(data)
        examined.worker.shutdown(socket.SHUT_WR)

    def ask() -> bytes:
        judge.sendall(large)
        data = b""
        while piece := judge.recv(MB):
            data += piece
        return data

    threading.Thread(target=echo, daemon=True).start()
    assert await asyncio.to_thread(ask) == large
    await working
    calls.close()
    await wire.close("the test is over")
    judge.close()
    examined.close()


async def test_a_response_to_a_call_that_was_just_cancelled_is_dropped(wire: AgentConnection) -> None:
    """The cancelled call runs only in the next round of the loop, so its request is still known."""
    asked = asyncio.create_task(wire.request({"op": "usage"}, within_s=20))
    await asyncio.sleep(0)
    asked.cancel()
    wire.data_received(frames.pack({"id": 1}, b""))
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert wire._end_reason is None
