"""E2B's control calls over HTTP, for any `Control`: that of a node or that of a front."""

import asyncio
import json
import math
import secrets
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Lifespan

from ostinato.fleet.server import bodies
from ostinato.fleet.server.access import Access
from ostinato.fleet.server.control import (
    LONGEST_S,
    TIMEOUT_S,
    Control,
    ControlError,
    SandboxInfo,
    SandboxRequest,
    SandboxState,
    bad_request,
    read_request,
    stamp,
)
from ostinato.fleet.server.templates import Templates
from ostinato.sandbox.base import Snapshot, SnapshotKind

MOST_FORKS = 100
Body = Mapping[str, Any]
Handler = Callable[[Request, Body], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def fresh_id() -> str:
    """Return an id that was never used before, not even before a restart."""
    return "i" + secrets.token_hex(10)


class Rest:
    """The routes: each checks the key, reads the body, calls `control` and responds with its result."""

    def __init__(self, control: Control, access: Access, templates: Templates) -> None:
        self._control, self._access, self._templates = control, access, templates

    def routes(self) -> list[Route]:
        one = "/sandboxes/{id}"
        table: list[tuple[str, str, Handler]] = [
            ("POST", "/sandboxes", self.create),
            ("POST", "/v2/sandboxes", self.create),
            ("GET", "/sandboxes", self.every),
            ("GET", "/v2/sandboxes", self.every),
            ("GET", one, self.info),
            ("DELETE", one, self.kill),
            ("POST", one + "/pause", self.pause),
            ("POST", one + "/resume", self.resume),
            ("POST", one + "/connect", self.resume),
            ("POST", "/v2" + one + "/connect", self.resume),
            ("POST", one + "/timeout", self.extend),
            ("POST", one + "/snapshots", self.snapshot),
            ("POST", one + "/fork", self.fork),
            ("GET", one + "/logs", self.logs),
            ("GET", "/v2" + one + "/logs", self.logs),
            ("DELETE", "/templates/{id}", self.forget),
            ("POST", "/sweep", self.sweep),
        ]
        whole = [("GET", self.has_template), ("PUT", self.put_template)]
        return [
            *(Route(path, self._reading(handler), methods=[verb]) for verb, path, handler in table),
            *(Route("/templates/{id}", guarded(self._access, each), methods=[verb]) for verb, each in whole),
        ]

    def _reading(self, handler: Handler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return await handler(request, await read_body(request))

        return guarded(self._access, endpoint)

    def _body(self, info: SandboxInfo) -> dict[str, Any]:
        return info.body(self._access.token(info.request.id))

    async def create(self, _: Request, body: Body) -> Response:
        return JSONResponse(self._body(await self._control.create(read_request(body, fresh_id()))), 201)

    async def every(self, request: Request, _: Body) -> Response:
        """List the sandboxes, filtered by `metadata` (a query string in a query string) and `state`."""
        wanted = dict(urllib.parse.parse_qsl(request.query_params.get("metadata", "")))
        wanted = {urllib.parse.unquote(name): urllib.parse.unquote(text) for name, text in wanted.items()}
        states = ",".join(request.query_params.getlist("state")) or ",".join(SandboxState)
        infos = [
            info
            for info in await self._control.every()
            if wanted.items() <= info.request.metadata.items() and info.state in states.split(",")
        ]
        return JSONResponse([self._body(info) for info in sorted(infos, key=lambda info: -info.started_at)])

    async def info(self, request: Request, _: Body) -> Response:
        return JSONResponse(self._body(await self._control.info(request.path_params["id"])))

    async def kill(self, request: Request, _: Body) -> Response:
        await self._control.kill(request.path_params["id"])
        return Response(status_code=204)

    async def pause(self, request: Request, _: Body) -> Response:
        await self._control.pause(request.path_params["id"])
        return Response(status_code=204)

    async def resume(self, request: Request, body: Body) -> Response:
        timeout_s = _seconds(body["timeout"]) if "timeout" in body else None
        return JSONResponse(self._body(await self._control.resume(request.path_params["id"], timeout_s)), 201)

    async def extend(self, request: Request, body: Body) -> Response:
        await self._control.extend(request.path_params["id"], _seconds(body.get("timeout")))
        return Response(status_code=204)

    async def snapshot(self, request: Request, body: Body) -> Response:
        """Take a snapshot, with the memory if E2B's field `memory` is true, else of the files."""
        kind = SnapshotKind.FULL if body.get("memory") is True else SnapshotKind.FILESYSTEM
        snapshot = await self._control.snapshot(request.path_params["id"], kind)
        return JSONResponse(snapshot_body(snapshot), 201)

    async def fork(self, request: Request, body: Body) -> Response:
        parent = await self._control.info(request.path_params["id"])
        count = body.get("count", 1)
        if not isinstance(count, int) or not 1 <= count <= MOST_FORKS:
            raise bad_request(f"a fork into {count!r}: give a count of 1 to {MOST_FORKS}")
        timeout_s = _seconds(body.get("timeout", TIMEOUT_S))
        names = (body.get("ostinato") or {}).get("sandboxIDs") or [fresh_id() for _ in range(count)]
        children = [
            SandboxRequest(
                id=name,
                template=parent.request.template,
                timeout_s=timeout_s,
                metadata=parent.request.metadata,
                limits=parent.request.limits,
            )
            for name in names
        ]
        results = await self._control.fork(parent.request.id, children)
        return JSONResponse([self._fork_body(result) for result in results], 201)

    def _fork_body(self, result: SandboxInfo | ControlError) -> dict[str, Any]:
        if isinstance(result, SandboxInfo):
            return {"sandbox": self._body(result)}
        return {"error": {"code": result.status, "message": result.message}}

    async def logs(self, request: Request, _: Body) -> Response:
        lines = await self._control.logs(request.path_params["id"])
        return JSONResponse(
            {
                "logs": [{"timestamp": stamp(at), "at": at, "line": line} for at, line in lines],
                "logEntries": [
                    {"timestamp": stamp(at), "message": line, "level": "info", "fields": {}}
                    for at, line in lines
                ],
            }
        )

    async def has_template(self, request: Request) -> Response:
        name = request.path_params["id"]
        if self._templates.find(name) is None:
            raise ControlError(404, f"there is no template {name}")
        return JSONResponse({"templateID": name})

    async def put_template(self, request: Request) -> Response:
        await self._templates.put(request.path_params["id"], request)
        return JSONResponse({"templateID": request.path_params["id"]}, 201)

    async def forget(self, request: Request, _: Body) -> Response:
        await self._control.forget(request.path_params["id"])
        return Response(status_code=204)

    async def sweep(self, _: Request, body: Body) -> Response:
        """Handle our own call: `{label, value}` ends the sandboxes that a crashed run has left behind."""
        ended = await self._control.sweep(str(body.get("label", "")), str(body.get("value", "")))
        return JSONResponse({"ended": ended})


def lifespan(
    watch: Callable[[], Coroutine[Any, Any, None]],
    close: Callable[[], Awaitable[None]],
    before: Callable[[], Awaitable[None]] | None = None,
) -> Lifespan[Starlette]:
    """Return a lifespan: await `before`, run `watch` while the application serves, then call `close`."""

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        if before is not None:
            await before()
        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await close()

    return running


def guarded(access: Access, handler: Endpoint) -> Endpoint:
    """Return an endpoint that demands a known key and responds to a ControlError with a refusal."""

    async def endpoint(request: Request) -> Response:
        try:
            access.check_control(request.headers)
            return await handler(request)
        except ControlError as error:
            return refused(error)

    return endpoint


def snapshot_body(snapshot: Snapshot) -> dict[str, Any]:
    extra = {
        "kind": str(snapshot.kind),
        "backend": snapshot.backend,
        "template": snapshot.template,
        "bytes": snapshot.bytes,
        "created": snapshot.created,
    }
    return {"snapshotID": snapshot.id, "names": [], "ostinato": extra}


async def read_body(request: Request, most: int = bodies.CONTROL) -> Body:
    """Return the JSON object of a request, empty without a body. Raise ControlError 400 or 413."""
    if request.headers.get("content-type", "").startswith("application/gzip"):
        return {}
    raw = await bodies.whole(request, most)
    try:
        body = json.loads(raw) if raw else {}
    except (ValueError, RecursionError) as error:
        raise bad_request(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("not a JSON object")
    return body


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_S:
        raise bad_request(f"a timeout of {value!r}: give 1 to {LONGEST_S:g} seconds")
    return float(value)


def refused(error: ControlError) -> Response:
    """Return a refusal with E2B's body, and Retry-After in whole seconds, rounded up.

    `retryAfterS` has the exact seconds for our own client.
    """
    cause = type(error.__cause__).__name__ if error.__cause__ else ""
    body: dict[str, Any] = {"code": error.status, "message": error.message, "error_code": cause}
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
        body["retryAfterS"] = error.retry_after_s
    return JSONResponse(body, error.status, headers)
