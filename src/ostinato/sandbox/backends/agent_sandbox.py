"""A sandbox whose agent is at the other end of a connection, and its commands: the same for every engine."""

import asyncio
import builtins
import math
import signal
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ostinato.sandbox.base import (
    MAX_FILE_BYTES,
    ExecResult,
    OnOutput,
    Process,
    SandboxError,
    Spec,
    Usage,
)
from ostinato.sandbox.egress.proxy_connection import ConnectionRecord
from ostinato.sandbox.egress.route import Route
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection, Response
from ostinato.sandbox.protocol.frames import FrameError
from ostinato.sandbox.protocol.stream import OutputStream, follow

GRACE_S = 10.0
"""How much longer than a command's time limit an agent is waited for, e.g. on a busy machine."""


class AgentProcess:
    """A command under way in a sandbox. See `Process`."""

    def __init__(
        self, connection: AgentConnection, request: Mapping[str, Any], *, within_s: float, keep: int
    ) -> None:
        self._connection = connection
        self._input = bool(request["stdin"])
        self._room = frames.WINDOW
        self._owed = frames.WINDOW + frames.DRAIN
        """Bytes of output that may still come without another credit."""
        self._broken = False
        self._changed = asyncio.Event()
        self._stream = OutputStream(keep, self._credit)
        run = {"op": "run", **request, "window": frames.WINDOW}
        self._pending = connection.send_request(run, within_s=within_s, on_event=self._heard)
        self._pending.response.add_done_callback(self._ended)

    def _heard(self, header: dict[str, Any], body: bytes) -> None:
        """Raises FrameError for what no honest agent says."""
        if header["event"] == "output":
            self._owed -= len(body)
            if not body or self._owed < 0:
                raise FrameError("a command says more than it may")
            self._stream.feed(body)
            return
        self._room += header["bytes"]
        if self._room > frames.WINDOW:
            raise FrameError("a command took more than it was given")
        self._broken = self._broken or "broken" in header
        self._changed.set()

    def _ended(self, answer: "asyncio.Future[Response]") -> None:
        self._broken = True
        self._changed.set()
        error = answer.exception()
        self._stream.end(error if isinstance(error, Exception) else None)

    def _credit(self, count: int) -> None:
        self._owed += count
        self._order("credit", bytes=count)

    def _order(self, op: str, body: bytes = b"", **header: object) -> None:
        self._connection.send({"id": self._pending.number, "op": op, **header}, body)

    def output(self) -> AsyncIterator[bytes]:
        return self._stream.read()

    async def send(self, data: bytes) -> None:
        if not self._input:
            raise SandboxError("the command has no open standard input: start it with stdin=True")
        for start in range(0, len(data), frames.CHUNK):
            await self._send(data[start : start + frames.CHUNK])
        if not data:
            self._order("input")
            self._input = False

    async def _send(self, piece: bytes) -> None:
        while self._room < len(piece) and not self._broken:
            self._changed.clear()
            await self._changed.wait()
        if self._broken:
            raise BrokenPipeError("the command reads its standard input no more")
        self._room -= len(piece)
        self._order("input", piece)

    async def signal(self, number: int) -> None:
        self._order("signal", number=number)

    async def wait(self) -> ExecResult:
        return (await self.finish())[0]

    async def finish(self) -> tuple[ExecResult, Mapping[str, Any]]:
        """`wait`, and the agent's whole answer."""
        await self._stream.drain()
        answer, _ = await self._connection.response(self._pending)
        return _result(answer, self._stream.tail.text()), answer


def _result(answer: Mapping[str, Any], output: str) -> ExecResult:
    """Raises FrameError for an answer that is none."""
    return ExecResult(
        exit_code=int(_number(answer, "exit_code")),
        output=output,
        timed_out=answer.get("timed_out") is True,
        duration_s=_number(answer, "duration_s"),
    )


def _number(answer: Mapping[str, Any], name: str) -> float:
    value = answer.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FrameError(f"{name} is {value!r:.40}: the sandbox's agent does not speak the protocol")
    return value


class AgentSandbox:
    """Everything that an agent does by itself; engines add snapshots, forks and their own end."""

    def __init__(self, connection: AgentConnection, spec: Spec, root: str, way: Route | None = None) -> None:
        self.id = uuid.uuid4().hex
        self.root = root
        self._connection = connection
        self._way = way
        self._spec = spec
        self._limits = spec.limits
        self._within_s = spec.limits.wall_s + GRACE_S
        self._paused = False
        self._born = time.monotonic()

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        return (await self._run(command, timeout_s, on_output))[0]

    async def _run(
        self, command: str, timeout_s: float | None, on_output: OnOutput | None, *, state: bool = False
    ) -> tuple[ExecResult, Mapping[str, Any]]:
        """The result, and the agent's whole answer; `state`: it says what the tree is now, by a walk through
        all of it."""
        if on_output is not None:
            return await self._follow(command, timeout_s, on_output, state)
        self._check_running()
        request = {"op": "run", "window": None, **_request(command, timeout_s, state=state)}
        most = 3 * self._limits.output_bytes + frames.SMALL  # what is no UTF-8 has three bytes for each
        pending = self._connection.send_request(request, within_s=self._patience_s(timeout_s), max_body=most)
        try:
            answer, output = await self._connection.response(pending)
        except asyncio.CancelledError:
            self._connection.send({"id": pending.number, "op": "signal", "number": signal.SIGKILL})
            raise
        return _result(answer, output.decode(errors="replace")), answer

    async def _follow(
        self, command: str, timeout_s: float | None, on_output: OnOutput, state: bool
    ) -> tuple[ExecResult, Mapping[str, Any]]:
        process = self._start(_request(command, timeout_s, state=state))
        await follow(process, on_output)
        return await process.finish()

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        return self._start(_request(command, timeout_s, stdin=stdin))

    def _start(self, request: Mapping[str, Any]) -> AgentProcess:
        self._check_running()
        within_s = self._patience_s(request["timeout_s"])
        return AgentProcess(self._connection, request, within_s=within_s, keep=self._limits.output_bytes)

    def _patience_s(self, timeout_s: float | None) -> float:
        return (self._limits.wall_s if timeout_s is None else timeout_s) + GRACE_S

    def _check_running(self) -> None:
        if self._paused:
            raise SandboxError(f"sandbox {self.id} is paused: resume it first")

    async def _ask(
        self, op: str, body: bytes = b"", *, max_body: int = frames.SMALL, **request: object
    ) -> Response:
        self._check_running()
        return await self._connection.request(
            {"op": op, **request}, body, within_s=self._within_s, max_body=max_body
        )

    async def read(self, path: str) -> bytes:
        return (await self._ask("read", path=path, max_body=MAX_FILE_BYTES))[1]

    async def write(self, path: str, data: bytes) -> None:
        await self._ask("write", data, path=path)

    async def files(self) -> list[str]:
        return frames.unpack_names((await self._ask("files", max_body=frames.MAX_NAMES))[1])

    async def tree_hash(self) -> str:
        return str((await self._ask("state"))[0].get("tree"))

    async def changes(self) -> dict[str, bytes | None]:
        most = (self._limits.disk_mb << 20) + frames.MAX_NAMES
        return frames.unpack_files((await self._ask("changes", max_body=most))[1])

    async def pause(self) -> None:
        if self._paused:
            return
        await self._ask("pause")
        self._connection.pause()
        self._paused = True

    async def resume(self) -> None:
        if not self._paused:
            return
        await self._connection.request({"op": "resume"}, within_s=self._within_s)
        self._connection.resume()
        self._paused = False

    async def usage(self) -> Usage:
        answer, _ = await self._connection.request({"op": "usage"}, within_s=self._within_s)
        return Usage(
            cpu_s=_number(answer, "cpu_s"),
            memory_bytes=int(_number(answer, "memory_bytes")),
            disk_bytes=int(_number(answer, "disk_bytes")),
            processes=int(_number(answer, "processes")),
            wall_s=time.monotonic() - self._born,
        )

    @property
    def connections(self) -> list[ConnectionRecord]:
        """Its attempts to get out that have ended, the latest thousand."""
        return [] if self._way is None else list(self._way.proxy.connections)

    async def destroy(self) -> None:
        if self._way is not None:
            await self._way.aclose()
        await self._connection.close("the sandbox is destroyed: create another")

    async def list(self, path: str = ".") -> builtins.list[str]:
        return frames.unpack_names((await self._ask("list", path=path, max_body=frames.MAX_NAMES))[1])


def _request(
    command: str, timeout_s: float | None, *, stdin: bool = False, state: bool = False
) -> dict[str, object]:
    return {"command": command, "timeout_s": timeout_s, "stdin": stdin, "state": state}
