"""Request bodies in bounded memory: a body is read as it arrives, and no further than its limit."""

import hashlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from starlette.requests import ClientDisconnect, Request

from ostinato.fleet.protocol import archive
from ostinato.fleet.server.control import ControlError
from ostinato.sandbox.base import MAX_FILE_BYTES

MIB = 2**20
CONTROL = MIB
"""Limit in bytes for a control call."""
MESSAGE = 8 * MIB
"""Limit for a call to a sandbox's agent: the largest ones carry input for a command."""
FILES = 2 * MAX_FILE_BYTES
"""Limit for uploaded files, several of them in one form."""
EXAM = 96 * MIB
"""Limit for an exam: the disk of a usual sandbox in base64."""


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield a body as it arrives. Raise ControlError 413 if it has or announces more than `most` bytes."""
    length = request.headers.get("content-length", "")
    size = int(length) if length.isascii() and length.isdigit() else 0
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
    """Return a body of at most `most` bytes. Raise ControlError 413 when it is larger."""
    body = bytearray()
    async for piece in pieces(request, most):
        body += piece
    return bytes(body)


async def store_archive(request: Request, folder: Path) -> tuple[IO[bytes], str]:
    """Write a template's archive to an unnamed file in `folder`; return the file and the archive's name.

    Raise ControlError 413 when it is larger than `archive.MAX_BYTES`.
    """
    file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller closes it
    state = hashlib.sha256()
    try:
        async for piece in pieces(request, archive.MAX_BYTES):
            file.write(piece)
            state.update(piece)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file, archive.PREFIX + state.hexdigest()
