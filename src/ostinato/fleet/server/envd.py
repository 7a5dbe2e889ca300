"""The process calls of envd, E2B's agent in a sandbox. Here the node itself plays the agent.

Standard output and error of a command form one stream, in order, which is sent as `stdout`, because that is
how the sandboxes deliver it.
"""

import asyncio
import base64
import binascii
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ostinato.fleet.protocol import connect
from ostinato.fleet.protocol.connect import ConnectError
from ostinato.fleet.server import bodies
from ostinato.fleet.server.commands import Command, RunningCommand
from ostinato.fleet.server.control import ControlError, SandboxState, texts
from ostinato.fleet.server.sandboxes import HostedSandbox
from ostinato.sandbox.base import ExecResult

KEEPALIVE_S = 50.0
SIGNALS = {"SIGNAL_SIGKILL": signal.SIGKILL, "SIGNAL_SIGTERM": signal.SIGTERM}
Message = Mapping[str, Any]
Unary = Callable[[HostedSandbox, Message], Awaitable[Message]]


def unary(method: Unary) -> Callable[[HostedSandbox, Request], Awaitable[Response]]:
    """Return an endpoint that takes one message and responds with one."""

    async def endpoint(hosted: HostedSandbox, request: Request) -> Response:
        try:
            return JSONResponse(
                await method(hosted, connect.parse(await bodies.whole(request, bodies.MESSAGE)))
            )
        except Exception as error:
            return JSONResponse(*refusal(error))

    return endpoint


def refusal(error: Exception) -> tuple[dict[str, str], int]:
    """Return the body and status of a failed call. Raise the error again if it is a bug."""
    if isinstance(error, ControlError):
        exhausted = error.status in (413, 429)
        error = ConnectError("resource_exhausted" if exhausted else "internal", error.message)
    failure = connect.to_error(error)
    if failure is None:
        raise error
    return failure.body(), connect.STATUS[failure.code]


def _stream(events: AsyncIterator[Message]) -> Response:
    return StreamingResponse(_envelopes(events), media_type=connect.STREAM)


async def _envelopes(events: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    """Yield an envelope for each event, and a last one that says how the stream ended."""
    try:
        async for event in events:
            yield connect.pack({"event": event})
        yield connect.pack({}, connect.END)
    except Exception as error:
        body, _ = refusal(error)
        yield connect.pack({"error": body}, connect.END)


# --- processes ----------------------------------------------------------------------------------------------


async def start(hosted: HostedSandbox, request: Request) -> Response:
    """Handle process.Process/Start.

    `Connect-Timeout-Ms` limits the command and makes its timeout an error. `timeoutS` limits it as well, but
    a timeout is then part of the result.
    """
    try:
        message = connect.unpack(await bodies.whole(request, bodies.MESSAGE))
        if message.get("pty"):
            raise ConnectError("unimplemented", "there is no terminal in these sandboxes: start without pty")
        timeout_ms = request.headers.get("connect-timeout-ms")
        limit_s = message.get("timeoutS", int(timeout_ms) / 1000 if timeout_ms else None)
        running = await hosted.run(
            _command(message.get("process") or {}, hosted),
            timeout_s=limit_s,
            stdin=bool(message.get("stdin", False)),
            tag=str(message.get("tag", "")),
        )
    except Exception as error:
        return _failed(error)
    return _stream(_follow(hosted, running, timeout_is_result=timeout_ms is None))


def _failed(error: Exception) -> Response:
    """Return a stream that ends at once with an error."""
    body, _ = refusal(error)
    return Response(connect.pack({"error": body}, connect.END), media_type=connect.STREAM)


def _command(config: Message, hosted: HostedSandbox) -> Command:
    try:
        envs = {**hosted.environment, **texts(config.get("envs"))}
        if not config.get("cmd"):
            raise TypeError("cmd is missing")
        args = tuple(str(each) for each in config.get("args", ()))
    except TypeError as error:
        raise ConnectError("invalid_argument", f"not a process: {error}") from error
    return Command(
        cmd=str(config["cmd"]), args=args, envs=envs, cwd=str(config.get("cwd") or hosted.sandbox.root)
    )


async def attach(hosted: HostedSandbox, request: Request) -> Response:
    """Handle process.Process/Connect: stream the further output of a running command."""
    try:
        running = _selected(hosted, connect.unpack(await bodies.whole(request, bodies.MESSAGE)))
    except Exception as error:
        return _failed(error)
    return _stream(_follow(hosted, running, timeout_is_result=True))


async def _follow(
    hosted: HostedSandbox, running: RunningCommand, *, timeout_is_result: bool
) -> AsyncIterator[Message]:
    """Yield the start, data and end events of a command."""
    yield {"start": {"pid": running.pid}}
    async for event in _data(running):
        yield event
    result = await running.wait()
    hosted.say(result.output)
    if result.timed_out and not timeout_is_result:
        raise ConnectError("deadline_exceeded", f"the command was ended after {result.duration_s:.1f} s")
    yield {"end": _end(result)}


async def _data(running: RunningCommand) -> AsyncIterator[Message]:
    """Yield the output, and a keepalive event after each KEEPALIVE_S without any."""
    chunks = running.watch()
    following: asyncio.Task[bytes | None] = asyncio.create_task(_next(chunks))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=KEEPALIVE_S)
            if not done:
                yield {"keepalive": {}}
                continue
            chunk = following.result()
            if chunk is None:
                return
            following = asyncio.create_task(_next(chunks))
            yield {"data": {"stdout": base64.b64encode(chunk).decode()}}
    finally:
        following.cancel()
        await asyncio.wait({following})
        await chunks.aclose()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _end(result: ExecResult) -> Message:
    """Return E2B's end event. Its field `result` is ours and carries what E2B's fields cannot."""
    exited = result.exit_code >= 0
    status = f"exit status {result.exit_code}" if exited else f"signal: {-result.exit_code}"
    event = {
        "exitCode": result.exit_code if exited else 128 - result.exit_code,
        "exited": exited,
        "status": status,
        "result": {
            "exitCode": result.exit_code,
            "timedOut": result.timed_out,
            "durationS": result.duration_s,
        },
    }
    return event if exited else {**event, "error": status}


def _selected(hosted: HostedSandbox, message: Message) -> RunningCommand:
    selector = message.get("process") or {}
    for running in hosted.processes.values():
        if running.pid == selector.get("pid") or (running.tag and running.tag == selector.get("tag")):
            return running
    raise ConnectError("not_found", f"no process {dict(selector)} in sandbox {hosted.request.id}")


async def processes(hosted: HostedSandbox, _: Message) -> Message:
    """Handle process.Process/List: return the commands that run."""
    return {"processes": [_listed(each) for each in hosted.processes.values() if not each.ended]}


def _listed(running: RunningCommand) -> Message:
    command = running.command
    config = {
        "cmd": command.cmd,
        "args": list(command.args),
        "envs": dict(command.envs),
        "cwd": command.cwd,
    }
    return {"config": config, "pid": running.pid, **({"tag": running.tag} if running.tag else {})}


async def send_input(hosted: HostedSandbox, message: Message) -> Message:
    """Handle process.Process/SendInput."""
    try:
        data = base64.b64decode((message.get("input") or {}).get("stdin", ""), validate=True)
    except (binascii.Error, TypeError) as error:
        raise ConnectError("invalid_argument", f"input.stdin is not base64: {error}") from error
    if data:
        await _selected(hosted, message).process.send(data)
    return {}


async def close_input(hosted: HostedSandbox, message: Message) -> Message:
    """Handle process.Process/CloseStdin."""
    await _selected(hosted, message).process.send(b"")
    return {}


async def send_signal(hosted: HostedSandbox, message: Message) -> Message:
    """Handle process.Process/SendSignal. Our field `number` may be any signal; E2B has names for two."""
    running = _selected(hosted, message)
    if running.ended:
        raise ConnectError("not_found", f"process {running.pid} has ended")
    number = message.get("number") or SIGNALS.get(str(message.get("signal")))
    if not isinstance(number, int):
        raise ConnectError("invalid_argument", f"unknown signal {message.get('signal')!r}")
    await running.process.signal(number)
    return {}


# --- the sandbox as a whole ---------------------------------------------------------------------------------


def check_running(hosted: HostedSandbox) -> None:
    """Raise ControlError 409 while the sandbox is paused: its processes would never respond."""
    if hosted.state is not SandboxState.RUNNING:
        raise ControlError(409, f"sandbox {hosted.request.id} is paused: connect to it, which resumes it")


async def init(hosted: HostedSandbox, message: Message) -> Message:
    """Handle POST /init: set variables for every later command. Other fields are ignored."""
    try:
        hosted.environment.update(texts(message.get("envVars")))
    except TypeError as error:
        raise ConnectError("invalid_argument", str(error)) from error
    return {}


async def usage(hosted: HostedSandbox, _: Message) -> Message:
    """Handle ostinato.Sandbox/Usage."""
    return asdict(await hosted.sandbox.usage())
