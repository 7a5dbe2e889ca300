"""The service as an ASGI application. Responses are JSON; an error is `{"error": {message, code, …}}`."""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ostinato.search.index import Index, MissingFiles, SearchError, SearchHit, UnknownTree
from ostinato.web.origin import LocalOnly
from ostinato.web.values import TooManyValuesError, parse_values

MAX_BODY_BYTES = 8 * 2**20
MAX_QUERY = 2_000
Authenticate = Callable[[str], Awaitable[bool]]
"""A function that returns True when an API key may search."""


class RequestRefused(Exception):  # noqa: N818
    """An error with the status and the body that the client receives."""

    def __init__(self, status: int, message: str, code: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "code": code, **more}}


class SearchService:
    """The endpoints. Work on the index is done in threads, one request at a time."""

    def __init__(self, index: Index, authenticate: Authenticate) -> None:
        self._index = index
        self._authenticate = authenticate
        self._turn = asyncio.Lock()

    async def trees(self, request: Request) -> Response:
        body = await self._body(request)
        files = _field(body, "files", dict)
        if not all(isinstance(digest, str) for digest in files.values()):
            raise RequestRefused(422, "files must map each path to its content hash", "invalid_request")
        tree, missing = await self._work(self._index.register, files)
        return _respond({"tree": tree, "missing": missing})

    async def files(self, request: Request) -> Response:
        body = await self._body(request)
        values = _field(body, "files", list)
        files = await self._work(lambda: [_file(value) for value in values])
        await self._work(self._index.add, files)
        return _respond({"added": len(files)})

    async def search(self, request: Request) -> Response:
        body = await self._body(request)
        query, k = _field(body, "query", str), _field(body, "k", int, 10)
        if not query.strip() or len(query) > MAX_QUERY:
            raise RequestRefused(
                422, f"query must be text of at most {MAX_QUERY} characters", "invalid_request"
            )
        tree, path = _field(body, "tree", str), _field(body, "path", str, ".")
        hits = await self._work(lambda: self._index.query(tree, query, path=path, k=k))
        return _respond({"tree": tree, "hits": [_hit(hit) for hit in hits]})

    async def healthz(self, _: Request) -> Response:
        return _respond({"status": "ok"})

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:
            return await asyncio.to_thread(function, *arguments)

    async def _body(self, request: Request) -> Mapping[str, Any]:
        await self._check_key(request)
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > MAX_BODY_BYTES:
                raise RequestRefused(
                    413, f"the body is larger than {MAX_BODY_BYTES} bytes: send less at once", "too_large"
                )
        try:
            value = await asyncio.to_thread(parse_values, bytes(data))
        except TooManyValuesError as error:
            raise RequestRefused(413, str(error), "too_large") from None
        except ValueError as error:
            raise RequestRefused(400, f"the body is not JSON: {error}", "invalid_json") from None
        if not isinstance(value, dict):
            raise RequestRefused(400, "the body must be a JSON object", "invalid_json")
        return value

    async def _check_key(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not await self._authenticate(key.strip()):
            raise RequestRefused(401, "send your API key as 'Authorization: Bearer KEY'", "invalid_api_key")


def create_app(index: Index, authenticate: Authenticate) -> ASGIApp:
    """Return the application. The caller closes the index."""
    service = SearchService(index, authenticate)
    routes = [
        Route("/v1/search", service.search, methods=["POST"]),
        Route("/v1/search/trees", service.trees, methods=["POST"]),
        Route("/v1/search/files", service.files, methods=["POST"]),
        Route("/healthz", service.healthz, methods=["GET"]),
    ]
    handlers: Any = {
        RequestRefused: _refused,
        SearchError: _unacceptable,
        UnknownTree: _unknown,
        MissingFiles: _missing,
        HTTPException: _http_error,
        ClientDisconnect: _gone,
    }
    return LocalOnly(Starlette(routes=routes, exception_handlers=handlers))


def _field(body: Mapping[str, Any], name: str, kind: type, default: object = None) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RequestRefused(422, f"{name} must be of type {kind.__name__}", "invalid_request", param=name)
    return value


def _file(value: object) -> tuple[str, bytes]:
    if not isinstance(value, dict) or not isinstance(value.get("path"), str):
        raise RequestRefused(
            422, "each of files needs a path and a content", "invalid_request", param="files"
        )
    try:
        return value["path"], base64.b64decode(value.get("content"), validate=True)  # type: ignore[arg-type]
    except (TypeError, binascii.Error, ValueError):
        raise RequestRefused(
            422, f"{value['path']!r:.200}: content must be base64", "invalid_request"
        ) from None


def _hit(hit: SearchHit) -> dict[str, object]:
    return {"path": hit.path, "first": hit.first, "last": hit.last, "score": round(hit.score, 4)}


def _respond(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status_code=status, media_type="application/json")


async def _refused(_: Request, error: RequestRefused) -> Response:
    return _respond(error.body, error.status)


async def _unacceptable(request: Request, error: SearchError) -> Response:
    return await _refused(request, RequestRefused(422, str(error), "invalid_request"))


async def _unknown(request: Request, error: UnknownTree) -> Response:
    return await _refused(request, RequestRefused(404, str(error), "unknown_tree"))


async def _missing(request: Request, error: MissingFiles) -> Response:
    return await _refused(request, RequestRefused(409, str(error), "missing_files", missing=error.paths))


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    return await _refused(request, RequestRefused(error.status_code, message, "not_found"))


async def _gone(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=499)
