"""What E2B's agent answers inside a sandbox: processes, the file tree, whole files. The agent is us.

Output and error of a command arrive as one stream, in order, as `stdout`: so sandboxes here hand it on.
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
from ostinato.fleet.server.pods import Pod
from ostinato.fleet.server.running import Command, Running
from ostinato.fleet.server.wishes import ControlError, State, texts
from ostinato.sandbox.base import ExecResult

KEEPALIVE_S = 50.0
SIGNALS = {"SIGNAL_SIGKILL": signal.SIGKILL, "SIGNAL_SIGTERM": signal.SIGTERM}
Message = Mapping[str, Any]
Unary = Callable[[Pod, Message], Awaitable[Message]]


def unary(method: Unary) -> Callable[[Pod, Request], Awaitable[Response]]:
    """An endpoint that takes one message and answers one."""

    async def endpoint(pod: Pod, request: Request) -> Response:
        try:
            return JSONResponse(await method(pod, connect.parse(await bodies.whole(request, bodies.MESSAGE))))
        except Exception as error:
            return JSONResponse(*refusal(error))

    return endpoint


def refusal(error: Exception) -> tuple[dict[str, str], int]:
    """Body and status of a failed call; raises what is a bug."""
    if isinstance(error, ControlError):
        exhausted = error.status in (413, 429)
        error = ConnectError("resource_exhausted" if exhausted else "internal", error.message)
    told = connect.to_error(error)
    if told is None:
        raise error
    return told.body(), connect.STATUS[told.code]


def _stream(events: AsyncIterator[Message]) -> Response:
    return StreamingResponse(_envelopes(events), media_type=connect.STREAM)


async def _envelopes(events: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    """Messages, and at the end how it ended."""
    try:
        async for event in events:
            yield connect.pack({"event": event})
        yield connect.pack({}, connect.END)
    except Exception as error:
        body, _ = refusal(error)
        yield connect.pack({"error": body}, connect.END)


# --- processes ----------------------------------------------------------------------------------------------


async def start(pod: Pod, request: Request) -> Response:
    """process.Process/Start. `Connect-Timeout-Ms` limits the command, `timeoutS` the same with an answer."""
    try:
        message = connect.unpack(await bodies.whole(request, bodies.MESSAGE))
        if message.get("pty"):
            raise ConnectError("unimplemented", "there is no terminal in these sandboxes: start without pty")
        told = request.headers.get("connect-timeout-ms")
        limit_s = message.get("timeoutS", int(told) / 1000 if told else None)
        running = await pod.run(
            _command(message.get("process") or {}, pod),
            timeout_s=limit_s,
            stdin=bool(message.get("stdin", False)),
            tag=str(message.get("tag", "")),
        )
    except Exception as error:
        return _failed(error)
    return _stream(_follow(pod, running, answer_late=told is None))


def _failed(error: Exception) -> Response:
    """A stream that ends at once."""
    body, _ = refusal(error)
    return Response(connect.pack({"error": body}, connect.END), media_type=connect.STREAM)


def _command(config: Message, pod: Pod) -> Command:
    try:
        envs = {**pod.environment, **texts(config.get("envs"))}
        if not config.get("cmd"):
            raise TypeError("cmd is missing")
        args = tuple(str(each) for each in config.get("args", ()))
    except TypeError as error:
        raise ConnectError("invalid_argument", f"not a process: {error}") from error
    return Command(
        cmd=str(config["cmd"]), args=args, envs=envs, cwd=str(config.get("cwd") or pod.sandbox.root)
    )


async def attach(pod: Pod, request: Request) -> Response:
    """process.Process/Connect: what a running command still writes."""
    try:
        running = _selected(pod, connect.unpack(await bodies.whole(request, bodies.MESSAGE)))
    except Exception as error:
        return _failed(error)
    return _stream(_follow(pod, running, answer_late=True))


async def _follow(pod: Pod, running: Running, *, answer_late: bool) -> AsyncIterator[Message]:
    """Start, data, end. One that was over its time is an error, or is told with its end."""
    yield {"start": {"pid": running.pid}}
    async for event in _data(running):
        yield event
    result = await running.wait()
    pod.say(result.output)
    if result.timed_out and not answer_late:
        raise ConnectError("deadline_exceeded", f"the command was ended after {result.duration_s:.1f} s")
    yield {"end": _end(result)}


async def _data(running: Running) -> AsyncIterator[Message]:
    """What is written, and a sign of life when nothing is."""
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
    """E2B's end event; what it has no word for is `result`."""
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


def _selected(pod: Pod, message: Message) -> Running:
    selector = message.get("process") or {}
    for running in pod.processes.values():
        if running.pid == selector.get("pid") or (running.tag and running.tag == selector.get("tag")):
            return running
    raise ConnectError("not_found", f"no process {dict(selector)} in sandbox {pod.wish.id}")


async def processes(pod: Pod, _: Message) -> Message:
    """process.Process/List: those that run."""
    return {"processes": [_listed(each) for each in pod.processes.values() if not each.ended]}


def _listed(running: Running) -> Message:
    command = running.command
    config = {
        "cmd": command.cmd,
        "args": list(command.args),
        "envs": dict(command.envs),
        "cwd": command.cwd,
    }
    return {"config": config, "pid": running.pid, **({"tag": running.tag} if running.tag else {})}


async def send_input(pod: Pod, message: Message) -> Message:
    """process.Process/SendInput."""
    try:
        data = base64.b64decode((message.get("input") or {}).get("stdin", ""), validate=True)
    except (binascii.Error, TypeError) as error:
        raise ConnectError("invalid_argument", f"input.stdin is not base64: {error}") from error
    if data:
        await _selected(pod, message).process.send(data)
    return {}


async def close_input(pod: Pod, message: Message) -> Message:
    """process.Process/CloseStdin."""
    await _selected(pod, message).process.send(b"")
    return {}


async def send_signal(pod: Pod, message: Message) -> Message:
    """process.Process/SendSignal. `number` is any signal, E2B's names are two."""
    running = _selected(pod, message)
    if running.ended:
        raise ConnectError("not_found", f"process {running.pid} has ended")
    number = message.get("number") or SIGNALS.get(str(message.get("signal")))
    if not isinstance(number, int):
        raise ConnectError("invalid_argument", f"unknown signal {message.get('signal')!r}")
    await running.process.signal(number)
    return {}


# --- what both kinds need -----------------------------------------------------------------------------------


def check_running(pod: Pod) -> None:
    """ControlError 409 while it is paused: its processes would never answer."""
    if pod.state is not State.RUNNING:
        raise ControlError(409, f"sandbox {pod.wish.id} is paused: connect to it, which resumes it")


async def init(pod: Pod, message: Message) -> Message:
    """POST /init: variables for every later command; the rest of it concerns virtual machines."""
    try:
        pod.environment.update(texts(message.get("envVars")))
    except TypeError as error:
        raise ConnectError("invalid_argument", str(error)) from error
    return {}


async def usage(pod: Pod, _: Message) -> Message:
    """ostinato.Sandbox/Usage."""
    return asdict(await pod.sandbox.usage())
