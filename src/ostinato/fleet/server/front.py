"""The front: one address for a fleet. It places sandboxes and passes on what is said to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ostinato.fleet.client.client import to
from ostinato.fleet.protocol import connect
from ostinato.fleet.server import bodies
from ostinato.fleet.server.access import Access
from ostinato.fleet.server.fleet import Fleet
from ostinato.fleet.server.link import Link, passed_on
from ostinato.fleet.server.node import AGENT, agent_refused
from ostinato.fleet.server.rest import Endpoint, Rest, guarded, read_body
from ostinato.fleet.server.wishes import ControlError
from ostinato.sandbox.base import SandboxError

KEPT_HEADERS = ("content-type", "content-encoding", "connect-protocol-version", "connect-timeout-ms")
EXAM_S = 600.0


def create_front(fleet: Fleet, access: Access) -> Starlette:
    """The application. It owns the fleet's connections, not its nodes."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await fleet.poll()
        watch = asyncio.create_task(fleet.watch_nodes())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await fleet.aclose()

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
    return Starlette(routes=[*own, *Rest(fleet, access, fleet.templates).routes(), *agent], lifespan=lifespan)


class _Front:
    def __init__(self, fleet: Fleet, access: Access) -> None:
        self._fleet, self._access = fleet, access

    def guarded(self, handler: Endpoint) -> Endpoint:
        """As `rest.guarded`; what a node answered is the front's answer."""

        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)
            except ControlError:
                raise
            except SandboxError as error:
                raise passed_on(error) from None  # a cause would be told as this refusal's code

        return guarded(self._access, endpoint)

    async def report(self, _: Request) -> Response:
        """A node's report, with what all nodes have in common."""
        return JSONResponse({**self._fleet.some_node().report, "name": "front"})

    async def lost(self, _: Request) -> Response:
        return JSONResponse(self._fleet.lost())

    async def examine(self, request: Request) -> Response:
        """An exam needs no place of its own: it is over before a scheduler could measure it."""
        body = await read_body(request, bodies.EXAM)
        link = self._fleet.some_node()
        for name in ("repo", "tests"):
            await link.provide(str(body.get(name)))
        return JSONResponse(await link.control("POST", "/exams", body, within_s=EXAM_S))

    async def pass_on(self, request: Request) -> Response:
        """A call to the agent of the sandbox that the header names, to its node and back as it comes."""
        name = request.headers.get("e2b-sandbox-id", "")
        try:
            self._access.check_agent(request.headers, name)
            link = self._fleet.link_of(name)
            answer = await _ask(link, request, name)
        except ControlError as error:
            return agent_refused(error, name)
        except aiohttp.ClientError as error:
            gone = ControlError(503, f"the node of sandbox {name} does not answer: {error}")
            return agent_refused(gone, name)
        headers = {each: answer.headers[each] for each in KEPT_HEADERS if each in answer.headers}
        return StreamingResponse(_chunks(answer, name), answer.status, headers)


async def _ask(link: Link, request: Request, name: str) -> aiohttp.ClientResponse:
    """The body goes on as it comes. ControlError 413 when there is more than any call may have."""
    refused: list[ControlError] = []

    async def body() -> AsyncIterator[bytes]:
        try:
            async for piece in bodies.pieces(request, bodies.FILES):
                yield piece
        except ControlError as error:  # what sends it hides it
            refused.append(error)
            raise

    session = await link.client.session()
    headers = {each: request.headers[each] for each in KEPT_HEADERS if each in request.headers}
    try:
        return await session.request(
            request.method,
            link.client.url + request.url.path,
            params=dict(request.query_params),
            data=None if request.method == "GET" else body(),
            headers={**headers, **to(name)},
        )
    except aiohttp.ClientError as error:
        raise (refused[0] if refused else error) from error


async def _chunks(answer: aiohttp.ClientResponse, name: str) -> AsyncIterator[bytes]:
    """The body; a stream that breaks off is told so in its own words."""
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        gone = {"code": "unavailable", "message": f"the node of sandbox {name} is gone: {error}"}
        if answer.content_type != connect.STREAM:
            raise
        yield connect.pack({"error": gone}, connect.END)
    finally:
        answer.release()
