"""The HTTP interface of any engine: /generate, /healthz, /stats, /load, /pause, /resume. Torch-free.

All but `/healthz` need the engine's secret as a bearer token, so that no other user of the machine and no web
page can pause it or take its tokens; a foreign `Host` or `Origin` is refused before that.
"""

import asyncio
import json
import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ostinato.engine.base import Engine, EngineError, LoadRefusedError, RequestError, Token
from ostinato.types import Completion, Distribution, GenerateRequest, from_json, to_json
from ostinato.web.origin import refusal
from ostinato.web.secret import ENGINE_SECRET, shows

log = logging.getLogger(__name__)
MAX_BODY = 64 * 2**20
LARGE = 100 * 2**10
"""Requests of more characters than this are parsed in a thread: they would keep the others waiting."""


class Loader(Protocol):
    """The source of new versions."""

    async def load(self, version: int) -> None:
        """Fetch a version, verify it and swap to it. Raises LoadRefusedError, and keeps the old one."""
        ...

    def stats(self) -> dict[str, float]:
        """Return counters beside the engine's own."""
        ...


@dataclass(slots=True)
class Running:
    """An engine that serves requests at `url` until `close`."""

    url: str
    port: int
    runner: web.AppRunner

    async def close(self) -> None:
        await self.runner.cleanup()


def create_app(engine: Engine, loader: Loader | None = None, *, secret: str = "") -> web.Application:
    """Return the application; without `loader` the engine serves one version for ever.

    Without `secret` every program of this machine may send requests: that is for engines in tests.
    """

    async def generate(request: web.Request) -> web.StreamResponse:
        try:
            text = await request.text()
            parsed, streams = _parse(text) if len(text) <= LARGE else await asyncio.to_thread(_parse, text)
        except (ValueError, KeyError, TypeError) as error:
            return _error(400, "InvalidRequestError", f"not a generate request: {error!r}")
        if streams:
            return await _stream(engine, parsed, request)
        return web.json_response(to_json(await engine.generate(parsed)))

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"version": engine.version, "abilities": to_json(engine.abilities)})

    async def stats(_: web.Request) -> web.Response:
        return web.json_response(engine.stats() | (loader.stats() if loader else {}))

    async def load_version(request: web.Request) -> web.Response:
        if loader is None:
            return _error(409, "LoadRefusedError", "this engine serves one version: start it with --objects")
        try:
            version = int(json.loads(await request.text())["version"])
        except (ValueError, KeyError, TypeError) as error:
            return _error(400, "InvalidRequestError", f'expected {{"version": int}}: {error!r}')
        try:
            await loader.load(version)
        except LoadRefusedError as error:
            log.error("serving version %d: %s", engine.version, error)
            return _error(409, "LoadRefusedError", str(error))
        return web.json_response({"version": engine.version})

    async def pause(_: web.Request) -> web.Response:
        await engine.pause()
        return web.json_response({"paused": True})

    async def resume(_: web.Request) -> web.Response:
        await engine.resume()
        return web.json_response({"paused": False})

    app = web.Application(client_max_size=MAX_BODY, middlewares=[_guard(secret), _report_errors])
    app.router.add_post("/generate", generate)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/stats", stats)
    app.router.add_post("/load", load_version)
    app.router.add_post("/pause", pause)
    app.router.add_post("/resume", resume)
    return app


def _parse(text: str) -> tuple[GenerateRequest, bool]:
    """Return a request, and True when it wants a stream."""
    body = json.loads(text)
    streams = bool(body.pop("stream", False))
    return from_json(GenerateRequest, body), streams


async def serve(app: web.Application, host: str, port: int) -> Running:
    """Listen and serve; port 0 takes a free one. Raises OSError when the port is taken."""
    # A request is cancelled when its client goes away, which frees its slot in the engine.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    bound = int(runner.addresses[0][1])
    return Running(url=f"http://{host}:{bound}", port=bound, runner=runner)


async def _stream(engine: Engine, parsed: GenerateRequest, request: web.Request) -> web.StreamResponse:
    """Send one JSON line per token, then one with the whole completion.

    An error before the first token is the whole response, a later one is the last line.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    async with aclosing(engine.stream(parsed)) as events:
        try:
            async for event in events:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(_line(event))
        except EngineError as error:
            if not response.prepared:
                raise
            await response.write(_json_line(_error_body(_status(error), type(error).__name__, str(error))))
    await response.write_eof()
    return response


def _line(event: Token | Completion) -> bytes:
    if isinstance(event, Token):
        line: dict[str, object] = {"id": event.id, "logprob": event.logprob, "version": event.version}
        if event.distribution is not Distribution.TEMPERED:
            line["distribution"] = event.distribution.value
        return _json_line(line)
    return _json_line(to_json(event))


def _json_line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _status(error: EngineError) -> int:
    """Return 400 for an error that the caller has to correct, 503 where another attempt may succeed."""
    return 400 if isinstance(error, RequestError) else 503


def _guard(secret: str) -> Middleware:
    """Return a middleware that refuses web pages with 403 and callers without `secret` with 401.

    It does so before a body is read.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert request.transport is not None
        local = request.transport.get_extra_info("sockname")[0]
        why = refusal(request.headers.get("Host", ""), request.headers.get("Origin", ""), local)
        if why is not None:
            return _error(403, "ForeignHostError", why)
        if (
            secret
            and request.path != "/healthz"
            and not shows(request.headers.get("Authorization", ""), secret)
        ):
            return _error(401, "SecretError", f"show the engine's secret, {ENGINE_SECRET}, as a bearer")
        return await handler(request)

    return guard


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an EngineError into a response whose status says whose fault it was."""
    try:
        return await handler(request)
    except EngineError as error:
        return _error(_status(error), type(error).__name__, str(error))


def _error(status: int, kind: str, message: str) -> web.Response:
    headers = {"Retry-After": "1"} if status == 503 else {}
    return web.json_response(_error_body(status, kind, message), status=status, headers=headers)


def _error_body(status: int, kind: str, message: str) -> dict[str, dict[str, str | int]]:
    """Return the body of an error, with the status, because a stream has no other place for it."""
    return {"error": {"type": kind, "message": message, "status": status}}
