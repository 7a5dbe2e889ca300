"""HTTP bodies: read within a limit, without their gzip, parsed and encoded as JSON."""

import zlib

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ostinato.gateway.errors import ApiError, invalid
from ostinato.web.values import TooManyValuesError, parse_values

DRAINED = 32
"""The multiple of the limit that is read and dropped, since most clients read no reply before they sent
everything."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the whole body, without its gzip.

    Raise ApiError 413 for more than `most` bytes, 415 for any other encoding, 400 for one that is broken.
    """
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > DRAINED * most:
            break
    if size > most:
        raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")
    encoding = request.headers.get("content-encoding", "").lower() or "identity"
    if encoding == "identity":
        return bytes(body)
    if encoding != "gzip":
        raise ApiError(415, f"Content-Encoding is {encoding}: use gzip or none", code="invalid_encoding")
    return _unpacked(bytes(body), most)


def _unpacked(body: bytes, most: int) -> bytes:
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        text = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise ApiError(400, f"the body is not gzip: {error}", code="invalid_encoding") from None
    if len(text) > most:
        raise ApiError(413, f"the body is larger than {most} bytes unpacked", code="body_too_large")
    if not reader.eof or reader.unused_data:
        raise ApiError(400, "the body is gzip that was cut, or more than one", code="invalid_encoding")
    return text


def parse_json(body: bytes) -> object:
    """Return the JSON value.

    Raise ApiError 400 when it is none or a string is no text, 413 for too many values.
    """
    try:
        return parse_values(body)
    except TooManyValuesError as error:
        raise ApiError(413, str(error), code="body_too_large") from None
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None


def encode(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
