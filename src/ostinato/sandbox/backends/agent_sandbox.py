"""A sandbox whose agent is at the other end of a connection, and the commands that run in it."""

import asyncio
import builtins
import math
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Any

from ostinato.sandbox.base import (
    MAX_FILE_BYTES,
    ExecResult,
    OnOutput,
    Process,
    Sandbox,
    SandboxError,
    Spec,
)
from ostinato.sandbox.egress.proxy_connection import ConnectionRecord
from ostinato.sandbox.egress.route import Route
from ostinato.sandbox.files.layer import MAX_RECORD
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection, Response
from ostinato.sandbox.protocol.frames import FrameError
from ostinato.sandbox.protocol.stream import OutputStream, follow

_MORE = 64 * 2**20
"""The bytes that a layer may have beside twice what may be written: for names, modes, and deletions."""
GRACE_S = 10.0
"""The seconds that an agent may take beyond a command's time limit, for example on a busy machine."""


class AgentProcess:
    """A command that runs in a sandbox (see `Process`)."""

    def __init__(
        self, connection: AgentConnection, request: Mapping[str, Any], *, within_s: float, keep: int
    ) -> None:
        self._connection = connection
        self._has_input = bool(request["stdin"])
        self._input_window = frames.WINDOW
        """Bytes of input that may be sent before the agent takes some."""
        self._output_window = frames.WINDOW + frames.DRAIN
        """Bytes of output that may come without another credit."""
        self._input_closed = False
        """True when the command reads no more input."""
        self._changed = asyncio.Event()
        self._stream = OutputStream(keep, self._credit)
        run = {"op": "run", **request, "window": frames.WINDOW}
        self._pending = connection.send_request(run, within_s=within_s, on_event=self._on_event)
        self._pending.response.add_done_callback(self._on_end)

    def _on_event(self, header: dict[str, Any], body: bytes) -> None:
        """Handle output, or a note that input was taken; raises FrameError for what no honest agent sends."""
        if header["event"] == "output":
            self._output_window -= len(body)
            if not body or self._output_window < 0:
                raise FrameError("a command sent more output than it has credit for")
            self._stream.feed(body)
            return
        self._input_window += header["bytes"]
        if self._input_window > frames.WINDOW:
            raise FrameError("a command took more input than it was sent")
        self._input_closed = self._input_closed or "broken" in header
        self._changed.set()

    def _on_end(self, response: "asyncio.Future[Response]") -> None:
        self._input_closed = True
        self._changed.set()
        error = response.exception()
        self._stream.end(error if isinstance(error, Exception) else None)

    def _credit(self, count: int) -> None:
        self._output_window += count
        self._send("credit", bytes=count)

    def _send(self, op: str, body: bytes = b"", **header: object) -> None:
        self._connection.send({"id": self._pending.number, "op": op, **header}, body)

    def output(self) -> AsyncIterator[bytes]:
        return self._stream.read()

    async def send(self, data: bytes) -> None:
        if not self._has_input:
            raise SandboxError("the command has no open standard input: start it with stdin=True")
        for start in range(0, len(data), frames.CHUNK):
            await self._send_input(data[start : start + frames.CHUNK])
        if not data:
            self._send("input")
            self._has_input = False

    async def _send_input(self, piece: bytes) -> None:
        while self._input_window < len(piece) and not self._input_closed:
            self._changed.clear()
            await self._changed.wait()
        if self._input_closed:
            raise BrokenPipeError("the command reads its standard input no more")
        self._input_window -= len(piece)
        self._send("input", piece)

    async def signal(self, number: int) -> None:
        self._send("signal", number=number)

    async def wait(self) -> ExecResult:
        return (await self.finish())[0]

    async def finish(self) -> tuple[ExecResult, Mapping[str, Any]]:
        """Wait as `wait` does, and return the header of the agent's response, too."""
        await self._stream.drain()
        header, _ = await self._connection.response(self._pending)
        return _result(header, self._stream.tail.text()), header


def _result(header: Mapping[str, Any], output: str) -> ExecResult:
    """Return the result that a response's header describes; raises FrameError when it is malformed."""
    return ExecResult(
        exit_code=int(_number(header, "exit_code")),
        output=output,
        timed_out=header.get("timed_out") is True,
        duration_s=_number(header, "duration_s"),
    )


def _number(header: Mapping[str, Any], name: str) -> float:
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FrameError(f"{name} is {value!r:.40}: the sandbox's agent does not speak the protocol")
    return value


class AgentSandbox:
    """All that needs nothing but the agent; backends add forks and the sandbox's end."""

    def __init__(
        self, connection: AgentConnection, spec: Spec, root: str, route: Route | None = None
    ) -> None:
        self.id = uuid.uuid4().hex
        self.root = root
        self._connection = connection
        self._route = route
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
        """Run a command; return its result and the header of the agent's response.

        With `state` the header contains the state of the tree, for which the agent reads all of it.
        """
        if on_output is not None:
            return await self._follow(command, timeout_s, on_output, state)
        self._check_running()
        request = {"op": "run", "window": None, **_request(command, timeout_s, state=state)}
        most = 4 * self._limits.output_bytes + frames.SMALL  # a byte that is not UTF-8 becomes four
        pending = self._connection.send_request(request, within_s=self._within(timeout_s), max_body=most)
        try:
            header, output = await self._connection.response(pending)
        except asyncio.CancelledError:
            self._connection.send({"id": pending.number, "op": "signal", "number": signal.SIGKILL})
            raise
        return _result(header, output.decode(errors="backslashreplace")), header

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
        within_s = self._within(request["timeout_s"])
        return AgentProcess(self._connection, request, within_s=within_s, keep=self._limits.output_bytes)

    def _within(self, timeout_s: float | None) -> float:
        """Return the seconds within which the agent has to respond to a command."""
        return (self._limits.wall_s if timeout_s is None else timeout_s) + GRACE_S

    def _check_running(self) -> None:
        if self._paused:
            raise SandboxError(f"sandbox {self.id} is being forked: wait for its forks")

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

    async def pack(self, file: int) -> None:
        """Write the layer of the sandbox to `file`, while its processes and the clocks of requests stand."""
        failed, size = list[OSError](), 0
        most = 2 * (self._limits.disk_mb << 20) + _MORE

        def write(_: Mapping[str, Any], body: bytes) -> None:
            nonlocal size
            size += len(body)
            if size > most:
                raise FrameError(f"a layer of more than {most} bytes: files with holes count whole")
            try:
                frames.write_all(file, body)
            except OSError as error:
                failed.append(error)

        await self._ask("pause")
        self._connection.pause()
        self._paused = True
        try:
            await self._connection.request_events(
                {"op": "pack"}, write, within_s=self._within_s, max_event=MAX_RECORD + frames.CHUNK
            )
        finally:
            await self._connection.request({"op": "resume"}, within_s=self._within_s)
            self._connection.resume()
            self._paused = False
        if failed:
            raise SandboxError(f"the files could not be written: {failed[0]}") from failed[0]

    @property
    def connections(self) -> list[ConnectionRecord]:
        """The latest thousand attempts to reach the network that have ended."""
        return [] if self._route is None else list(self._route.proxy.connections)

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of connections that were refused or cut, by host and port; complete once destroyed."""
        return {} if self._route is None else self._route.proxy.refusals

    async def destroy(self) -> None:
        if self._route is not None:
            await self._route.aclose()
        await self._connection.close("the sandbox is destroyed: create another")

    async def list(self, path: str = ".") -> builtins.list[str]:
        return frames.unpack_names((await self._ask("list", path=path, max_body=frames.MAX_NAMES))[1])


async def all_or_none(creating: Iterable[Awaitable[Sandbox]]) -> list[Sandbox]:
    """Wait until all sandboxes are created; if one fails, destroy the others and raise its error."""
    results = await asyncio.gather(*creating, return_exceptions=True)
    failed = [each for each in results if isinstance(each, BaseException)]
    created = [each for each in results if not isinstance(each, BaseException)]
    if failed:
        for sandbox in created:
            await sandbox.destroy()
        raise failed[0]
    return created


def _request(
    command: str, timeout_s: float | None, *, stdin: bool = False, state: bool = False
) -> dict[str, object]:
    return {"command": command, "timeout_s": timeout_s, "stdin": stdin, "state": state}
