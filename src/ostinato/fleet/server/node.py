"""A node: control calls, the agent's calls, and what a front asks, over the sandboxes of one machine."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ostinato.fleet.scheduler.pressure import Gauge
from ostinato.fleet.server import bodies, envd, files
from ostinato.fleet.server.access import Access
from ostinato.fleet.server.envd import unary
from ostinato.fleet.server.pods import Pod, Pods
from ostinato.fleet.server.rest import Rest, guarded, read_body, snapshot_body
from ostinato.fleet.server.wishes import ControlError, read_wish
from ostinato.sandbox.base import ChangesError, EndedWithinError, Exam, Limits, SandboxError, SandboxPathError
from ostinato.sandbox.protocol.entries import unpacked

GONE = "The sandbox was not found"
"""The words by which E2B's clients know that a sandbox is gone, not unreachable."""
Endpoint = Callable[[Pod, Request], Awaitable[Response]]

AGENT: dict[str, Endpoint] = {
    "/process.Process/Start": envd.start,
    "/process.Process/Connect": envd.attach,
    "/process.Process/List": unary(envd.processes),
    "/process.Process/SendInput": unary(envd.send_input),
    "/process.Process/CloseStdin": unary(envd.close_input),
    "/process.Process/SendSignal": unary(envd.send_signal),
    "/filesystem.Filesystem/Stat": unary(files.stat),
    "/filesystem.Filesystem/ListDir": unary(files.list_dir),
    "/filesystem.Filesystem/MakeDir": unary(files.make_dir),
    "/filesystem.Filesystem/Move": unary(files.move),
    "/filesystem.Filesystem/Remove": unary(files.remove),
    "/ostinato.Tree/Read": unary(files.tree),
    "/ostinato.Sandbox/Usage": unary(envd.usage),
    "/init": unary(envd.init),
}


def create_node(pods: Pods, access: Access, gauge: Gauge) -> Starlette:
    """The application. It owns `pods`: they are ended with it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(pods.watch_time())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await pods.aclose()

    node = _Node(pods, access, gauge)
    own = [
        Route("/node", guarded(access, node.report), methods=["GET"]),
        Route("/claims", guarded(access, node.claim), methods=["POST"]),
        Route("/exams", guarded(access, node.examine), methods=["POST"]),
    ]
    agent = [Route(path, node.agent(call), methods=["POST"]) for path, call in AGENT.items()]
    agent += [
        Route("/files", node.agent(files.download), methods=["GET"]),
        Route("/files", node.agent(files.upload), methods=["POST"]),
        Route("/health", node.agent(_healthy), methods=["GET"]),
    ]
    return Starlette(routes=[*own, *Rest(pods, access, pods.templates).routes(), *agent], lifespan=lifespan)


async def _healthy(_: Pod, __: Request) -> Response:
    return Response(status_code=204)


class _Node:
    def __init__(self, pods: Pods, access: Access, gauge: Gauge) -> None:
        self._pods, self._access, self._gauge = pods, access, gauge
        self._boot = os.urandom(8).hex()

    def agent(self, call: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """A call into the sandbox that the header names. 502 with E2B's words when it is gone."""

        async def endpoint(request: Request) -> Response:
            name = request.headers.get("e2b-sandbox-id", "")
            try:
                self._access.check_agent(request.headers, name)
                pod = self._pods.pod(name)
                envd.check_running(pod)
            except ControlError as error:
                return agent_refused(error, name)
            return await call(pod, request)

        return endpoint

    async def report(self, _: Request) -> Response:
        """What a scheduler needs to know of this machine."""
        pods = self._pods
        ages, infos = pods.ages(), await pods.every()
        return JSONResponse(
            {
                "name": pods.name,
                "boot": self._boot,
                "backend": pods.backend.name,
                "capabilities": _plain(asdict(pods.backend.capabilities)),
                "capacity": list(self._gauge.capacity()),
                "pressure": asdict(self._gauge.read()),
                "pods": [
                    {
                        "wish": info.wish.body(),
                        "age_s": ages[info.wish.id],
                        "state": str(info.state),
                        "left_s": info.end_at - info.started_at - ages[info.wish.id],
                    }
                    for info in infos
                ],
                "snapshots": [snapshot_body(each) for each in pods.snapshots()],
                "templates": pods.templates.names(),
            }
        )

    async def claim(self, request: Request) -> Response:
        """A front gives a warm sandbox away: `{warm, wish}`."""
        body = await read_body(request)
        try:
            wish = read_wish(body["wish"], "")
            info = await self._pods.claim(str(body["warm"]), wish)
        except KeyError as error:
            raise ControlError(400, f"{error.args[0]} is missing") from error
        return JSONResponse(info.body(self._access.token(wish.id)), 201)

    async def examine(self, request: Request) -> Response:
        """Hidden tests against a repository with changes; both came as templates."""
        body = await read_body(request, bodies.EXAM)
        try:
            repo, tests = (self._template(str(body[name])) for name in ("repo", "tests"))
            exam = Exam(
                repo=repo,
                tests=tests,
                changes={path: unpacked(data) for path, data in body["changes"].items()},
                limits=Limits(**body["limits"]),
                variations=int(body["variations"]),
            )
            return JSONResponse({"runs": await self._pods.backend.examine(exam)})
        except (ChangesError, EndedWithinError, SandboxPathError) as error:
            return JSONResponse({"fault": str(error)})  # the candidate's, which an error here would void
        except (KeyError, TypeError, ValueError) as error:
            raise ControlError(400, f"not an exam: {error}") from error
        except SandboxError as error:
            if isinstance(error, ControlError):
                raise
            raise ControlError(500, str(error)) from error

    def _template(self, name: str) -> Path:
        found = self._pods.templates.find(name)
        if found is None:
            raise ControlError(404, f"there is no template {name}: send it first")
        return found


def _plain(value: Any) -> Any:
    """Sets as sorted lists."""
    return {name: sorted(each) if isinstance(each, frozenset) else each for name, each in value.items()}


def agent_refused(error: ControlError, name: str) -> Response:
    """As a proxy in front of an agent answers."""
    if error.status == 404:
        return JSONResponse({"sandboxId": name, "message": f"{GONE}: {error.message}", "code": 502}, 502)
    codes = {401: "unauthenticated", 409: "failed_precondition", 413: "resource_exhausted"}
    code = codes.get(error.status, "unavailable")
    return JSONResponse({"code": code, "message": error.message}, error.status)
