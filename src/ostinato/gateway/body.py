"""Bodies in and out."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ostinato.gateway.errors import ApiError, invalid

DRAINED = 32
"""Times the limit that is read and dropped, since most clients hear no answer before they sent all."""


async def read_json(request: Request, most: int) -> object:
    """The body as JSON. ApiError 400 for anything else, 413 for more than `most` bytes."""
    return parse_json(await read_body(request, most))


async def read_body(request: Request, most: int) -> bytes:
    """The whole body. ApiError 413 for more than `most` bytes."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > DRAINED * most:
            break
    if size > most:
        raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")
    return bytes(body)


def parse_json(body: bytes) -> object:
    """ApiError 400 for what is not JSON, or whose strings are not text."""
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None


def encode(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
