"""The Connect protocol, as far as E2B's in-sandbox services use it: JSON, unary and server-streaming.

    unary     POST /package.Service/Method, application/json ─► 200 JSON, or a status and {code, message}
    stream    POST, application/connect+json: one envelope ─► 200, envelopes, the last one with END set
    envelope  flags u8 | length u32 big-endian | JSON

Source: connectrpc.com/docs/protocol. In an envelope with END, `{"error": {code, message}}` says what failed.
Errors carry one field more than the protocol has, `kind`: the name of the exception, so that our exceptions
arrive as they were raised.
"""

import json
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ostinato.sandbox.base import (
    ChangesError,
    EndedWithinError,
    SandboxError,
    SandboxPathError,
    Unsupported,
)

END, COMPRESSED = 0x02, 0x01
MAX_ENVELOPE = 32 * 2**20
STREAM = "application/connect+json"
_PREFIX = struct.Struct(">BI")

STATUS = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "not_found": 404,
    "already_exists": 409,
    "failed_precondition": 400,
    "resource_exhausted": 429,
    "internal": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""Connect's codes and the HTTP status of a unary call that failed so."""

_CODES: list[tuple[type[Exception], str]] = [
    (FileNotFoundError, "not_found"),
    (ProcessLookupError, "not_found"),
    (IsADirectoryError, "invalid_argument"),
    (NotADirectoryError, "invalid_argument"),
    (SandboxPathError, "invalid_argument"),
    (ChangesError, "failed_precondition"),
    (EndedWithinError, "failed_precondition"),
    (BrokenPipeError, "failed_precondition"),
    (Unsupported, "unimplemented"),
    (SandboxError, "internal"),
]


class RemoteUnsupported(Unsupported):
    """An `Unsupported` error from another machine."""

    def __init__(self, message: str) -> None:
        SandboxError.__init__(self, message)


_KINDS: Mapping[str, type[Exception]] = {
    **{kind.__name__: kind for kind, _ in _CODES},
    "Unsupported": RemoteUnsupported,
}


class ConnectError(Exception):
    """A call that failed, with one of Connect's codes."""

    def __init__(self, code: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.kind = code, message, kind

    def body(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, **({"kind": self.kind} if self.kind else {})}


def to_error(error: Exception) -> ConnectError | None:
    """Return a sandbox's exception in its wire form; None for an exception that is a bug."""
    if isinstance(error, ConnectError):
        return error
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    name = "Unsupported" if isinstance(error, Unsupported) else type(error).__name__
    return ConnectError(code, _message(error), name)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
    return str(error)


def from_error(body: Mapping[str, Any]) -> Exception:
    """Return the exception that `to_error` converted; SandboxError for one of a foreign server."""
    kind = _KINDS.get(str(body.get("kind") or body.get("error_code") or ""), None)
    message = str(body.get("message", "no message"))
    if kind is None:
        kind = FileNotFoundError if body.get("code") == "not_found" else SandboxError
    return kind(message)


def pack(message: Mapping[str, Any], flags: int = 0) -> bytes:
    """Return a message as one envelope."""
    body = json.dumps(message).encode()
    return _PREFIX.pack(flags, len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """Return the one message of a streaming request. Raises ConnectError."""
    if len(body) < _PREFIX.size:
        raise ConnectError("invalid_argument", "not an envelope: send application/connect+json")
    flags, length = _PREFIX.unpack_from(body)
    if flags & COMPRESSED:
        raise ConnectError("unimplemented", "compressed envelopes are not read: send them plain")
    if len(body) != _PREFIX.size + length:
        raise ConnectError("invalid_argument", "an envelope whose length is not the stated one")
    return parse(body[_PREFIX.size :])


def parse(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ConnectError."""
    try:
        message = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise ConnectError("invalid_argument", f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ConnectError("invalid_argument", "not a JSON object")
    return message


async def messages(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a stream. Raises the server's error at its end; SandboxError if it broke off."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _PREFIX.size:
            flags, length = _PREFIX.unpack_from(buffer)
            if length > MAX_ENVELOPE:
                raise SandboxError(f"the server sent an envelope of {length} bytes: not a sandbox server")
            end = _PREFIX.size + length
            if len(buffer) < end:
                break
            message = parse(bytes(buffer[_PREFIX.size : end]))
            del buffer[:end]
            if flags & END:
                if "error" in message:
                    raise from_error(message["error"])
                return
            yield message
    raise SandboxError("the connection to the sandbox broke off: it, or its machine, is gone")
