"""What clients send, in bounded memory: a body is read as it comes, and no further than what it may be."""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from starlette.requests import ClientDisconnect, Request

from ostinato.fleet.protocol import bundle
from ostinato.fleet.server.wishes import ControlError
from ostinato.sandbox.base import MAX_FILE_BYTES

MIB = 2**20
CONTROL = MIB
"""Bytes of a control call."""
MESSAGE = 8 * MIB
"""Of a call to a sandbox's agent: what it carries most is input for a command."""
FILES = 2 * MAX_FILE_BYTES
"""Of files on their way in, several at once in a form."""
EXAM = 96 * MIB
"""Of an exam: a usual sandbox's disk in base64."""


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """A body as it comes. ControlError 413 when it has, or says that it has, more than `most` bytes."""
    told = request.headers.get("content-length", "")
    size = int(told) if told.isascii() and told.isdigit() else 0
    if size <= most:
        size = 0
        try:
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    break
                yield piece
        except ClientDisconnect:
            raise ControlError(400, "the client hung up within a body") from None
    if size > most:
        raise ControlError(413, f"more than {most} bytes in one request: send less at once")


async def whole(request: Request, most: int) -> bytes:
    """A body of at most `most` bytes. ControlError 413."""
    body = bytearray()
    async for piece in pieces(request, most):
        body += piece
    return bytes(body)


async def archive(request: Request, folder: Path) -> tuple[IO[bytes], str]:
    """A template's archive in a file without a name in `folder`, and what it is called. ControlError 413."""
    file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller closes it
    state = hashlib.sha256()
    try:
        async for piece in pieces(request, bundle.MAX_BYTES):
            file.write(piece)
            state.update(piece)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, bundle.PREFIX + state.hexdigest()
