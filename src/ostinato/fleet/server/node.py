"""A node: the control calls, the agent's calls and the calls of a front, for the sandboxes of one machine."""

import os
from collections.abc import Awaitable, Callable
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
from ostinato.fleet.server.control import ControlError, read_request
from ostinato.fleet.server.envd import unary
from ostinato.fleet.server.rest import Rest, guarded, lifespan, read_body, snapshot_body
from ostinato.fleet.server.sandboxes import HostedSandbox, HostedSandboxes
from ostinato.sandbox.base import ChangesError, EndedWithinError, Exam, Limits, SandboxError, SandboxPathError
from ostinato.sandbox.protocol.entries import unpacked

GONE = "The sandbox was not found"
"""The words by which E2B's clients tell a sandbox that is gone from one that is unreachable."""
Endpoint = Callable[[HostedSandbox, Request], Awaitable[Response]]

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


def create_node(sandboxes: HostedSandboxes, access: Access, gauge: Gauge) -> Starlette:
    """Return the application. It owns the sandboxes: they end with it."""
    node = _Node(sandboxes, access, gauge)
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
    return Starlette(
        routes=[*own, *Rest(sandboxes, access, sandboxes.templates).routes(), *agent],
        lifespan=lifespan(sandboxes.watch_time, sandboxes.aclose),
    )


async def _healthy(_: HostedSandbox, __: Request) -> Response:
    return Response(status_code=204)


class _Node:
    def __init__(self, sandboxes: HostedSandboxes, access: Access, gauge: Gauge) -> None:
        self._sandboxes, self._access, self._gauge = sandboxes, access, gauge
        self._boot = os.urandom(8).hex()

    def agent(self, call: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that calls the sandbox named in the header, or responds 502 if that is gone."""

        async def endpoint(request: Request) -> Response:
            name = request.headers.get("e2b-sandbox-id", "")
            try:
                self._access.check_agent(request.headers, name)
                hosted = self._sandboxes.get(name)
                envd.check_running(hosted)
            except ControlError as error:
                return agent_refused(error, name)
            return await call(hosted, request)

        return endpoint

    async def report(self, _: Request) -> Response:
        """Handle GET /node: report all that a scheduler needs to know about this machine."""
        hosted = self._sandboxes
        ages, infos = hosted.ages(), await hosted.every()
        return JSONResponse(
            {
                "name": hosted.name,
                "boot": self._boot,
                "backend": hosted.backend.name,
                "capabilities": _plain(asdict(hosted.backend.capabilities)),
                "capacity": list(self._gauge.capacity()),
                "pressure": asdict(self._gauge.read()),
                "pods": [
                    {
                        "wish": info.request.body(),
                        "age_s": ages[info.request.id],
                        "state": str(info.state),
                        "left_s": info.end_at - info.started_at - ages[info.request.id],
                    }
                    for info in infos
                ],
                "snapshots": [snapshot_body(each) for each in hosted.snapshots()],
                "templates": hosted.templates.names(),
            }
        )

    async def claim(self, request: Request) -> Response:
        """Handle POST /claims with `{warm, wish}`: give a warm sandbox to the request in `wish`."""
        body = await read_body(request)
        try:
            wanted = read_request(body["wish"], "")
            info = await self._sandboxes.claim(str(body["warm"]), wanted)
        except KeyError as error:
            raise ControlError(400, f"{error.args[0]} is missing") from error
        return JSONResponse(info.body(self._access.token(wanted.id)), 201)

    async def examine(self, request: Request) -> Response:
        """Handle POST /exams: run hidden tests on a repository with changes; both are templates here."""
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
            return JSONResponse({"runs": await self._sandboxes.backend.examine(exam)})
        except (ChangesError, EndedWithinError, SandboxPathError) as error:
            return JSONResponse({"fault": str(error)})  # the candidate's fault: an error would void the exam
        except (KeyError, TypeError, ValueError) as error:
            raise ControlError(400, f"not an exam: {error}") from error
        except SandboxError as error:
            if isinstance(error, ControlError):
                raise
            raise ControlError(500, str(error)) from error

    def _template(self, name: str) -> Path:
        path = self._sandboxes.templates.find(name)
        if path is None:
            raise ControlError(404, f"there is no template {name}: send it first")
        return path


def _plain(value: Any) -> Any:
    """Return the mapping with sets as sorted lists."""
    return {name: sorted(each) if isinstance(each, frozenset) else each for name, each in value.items()}


def agent_refused(error: ControlError, name: str) -> Response:
    """Return the response that E2B's proxy in front of an agent would send."""
    if error.status == 404:
        return JSONResponse({"sandboxId": name, "message": f"{GONE}: {error.message}", "code": 502}, 502)
    codes = {401: "unauthenticated", 409: "failed_precondition", 413: "resource_exhausted"}
    code = codes.get(error.status, "unavailable")
    return JSONResponse({"code": code, "message": error.message}, error.status)
