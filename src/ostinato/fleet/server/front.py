"""The front: one address for a fleet. It places sandboxes and passes calls on to their nodes."""

from collections.abc import AsyncIterator

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ostinato.fleet.client.client import to
from ostinato.fleet.protocol import connect
from ostinato.fleet.server import bodies
from ostinato.fleet.server.access import Access
from ostinato.fleet.server.control import ControlError
from ostinato.fleet.server.fleet import Fleet
from ostinato.fleet.server.node import AGENT, agent_refused
from ostinato.fleet.server.node_client import NodeClient, to_control_error
from ostinato.fleet.server.rest import Endpoint, Rest, guarded, lifespan, read_body
from ostinato.sandbox.base import SandboxError

PASSED_HEADERS = ("content-type", "content-encoding", "connect-protocol-version", "connect-timeout-ms")
EXAM_S = 600.0


def create_front(fleet: Fleet, access: Access) -> Starlette:
    """Return the application. It owns the fleet's connections, not its nodes."""

    front = _Front(fleet, access)
    own = [
        Route("/node", front.guarded(front.report), methods=["GET"]),
        Route("/lost", front.guarded(front.lost), methods=["GET"]),
        Route("/exams", front.guarded(front.examine), methods=["POST"]),
    ]
    agent = [Route(path, front.pass_on, methods=["POST"]) for path in AGENT]
    agent += [
        Route("/files", front.pass_on, methods=["GET", "POST"]),
        Route("/health", front.pass_on, methods=["GET"]),
    ]
    return Starlette(
        routes=[*own, *Rest(fleet, access, fleet.templates).routes(), *agent],
        lifespan=lifespan(fleet.watch_nodes, fleet.aclose, before=fleet.poll),
    )


class _Front:
    def __init__(self, fleet: Fleet, access: Access) -> None:
        self._fleet, self._access = fleet, access

    def guarded(self, handler: Endpoint) -> Endpoint:
        """Guard a handler as `rest.guarded` does, and pass a node's refusal on as the front's own."""

        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)
            except ControlError:
                raise
            except SandboxError as error:
                raise to_control_error(error) from None  # a cause would become the refusal's `error_code`

        return guarded(self._access, endpoint)

    async def report(self, _: Request) -> Response:
        """Handle GET /node: respond with the report of one node, for the fields that all nodes share."""
        return JSONResponse({**self._fleet.some_node().report, "name": "front"})

    async def lost(self, _: Request) -> Response:
        return JSONResponse(self._fleet.lost())

    async def examine(self, request: Request) -> Response:
        """Handle POST /exams. An exam gets no place, since it is over before it could be measured."""
        body = await read_body(request, bodies.EXAM)
        node = self._fleet.some_node()
        for name in ("repo", "tests"):
            await node.provide(str(body.get(name)))
        return JSONResponse(await node.control("POST", "/exams", body, within_s=EXAM_S))

    async def pass_on(self, request: Request) -> Response:
        """Pass a call to a sandbox's agent on to its node, and the response back as it arrives."""
        name = request.headers.get("e2b-sandbox-id", "")
        try:
            self._access.check_agent(request.headers, name)
            response = await _forward(self._fleet.node_of(name), request, name)
        except ControlError as error:
            return agent_refused(error, name)
        except aiohttp.ClientError as error:
            silent = ControlError(503, f"the node of sandbox {name} does not respond: {error}")
            return agent_refused(silent, name)
        headers = {each: response.headers[each] for each in PASSED_HEADERS if each in response.headers}
        return StreamingResponse(_chunks(response, name), response.status, headers)


async def _forward(node: NodeClient, request: Request, name: str) -> aiohttp.ClientResponse:
    """Send a request on, its body as it arrives. Raise ControlError 413 when it is larger than any may be."""
    refused: list[ControlError] = []

    async def body() -> AsyncIterator[bytes]:
        try:
            async for piece in bodies.pieces(request, bodies.FILES):
                yield piece
        except ControlError as error:  # aiohttp hides the exceptions of a body that it sends
            refused.append(error)
            raise

    session = await node.client.session()
    headers = {each: request.headers[each] for each in PASSED_HEADERS if each in request.headers}
    try:
        return await session.request(
            request.method,
            node.client.url + request.url.path,
            params=dict(request.query_params),
            data=None if request.method == "GET" else body(),
            headers={**headers, **to(name)},
        )
    except aiohttp.ClientError as error:
        raise (refused[0] if refused else error) from error


async def _chunks(response: aiohttp.ClientResponse, name: str) -> AsyncIterator[bytes]:
    """Yield the body; append an error envelope to a stream that breaks off."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        failure = {"code": "unavailable", "message": f"the node of sandbox {name} is gone: {error}"}
        if response.content_type != connect.STREAM:
            raise
        yield connect.pack({"error": failure}, connect.END)
    finally:
        response.release()
