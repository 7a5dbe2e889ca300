"""Frames over a blocking stream socket: the connection of judge and worker, and of judge and verifier.

frame = u32 big-endian length, then that many bytes of JSON (see `ostinato.sandbox.exam.judged.values`)
"""

import socket
import struct
import time
from typing import Any

from ostinato.sandbox.exam.judged import values

MAX_FRAME = 16 * 2**20
_LENGTH = struct.Struct(">I")


class ChannelError(Exception):
    """The other side is gone, late, or does not follow the protocol."""


def send(sock: socket.socket, value: object, pack_other: values.PackOther = values.refuse) -> None:
    """Send one value.

    Raises ChannelError when it is too large or the other side is gone, NotPlainError for a value that cannot
    be packed.
    """
    body = values.encode(value, pack_other).encode()
    if len(body) > MAX_FRAME:
        raise ChannelError(f"a frame of {len(body)} bytes, the limit is {MAX_FRAME}")
    try:
        sock.sendall(_LENGTH.pack(len(body)) + body)
    except OSError as error:
        raise ChannelError(f"the other side is gone: {error}") from error


def receive(
    sock: socket.socket, deadline: float | None = None, builders: values.Builders | None = None
) -> Any:
    """Receive the next value.

    Raises ChannelError at the end of the stream, after `deadline` (monotonic) and for a malformed frame.
    """
    return read(receive_frame(sock, deadline), builders)


def receive_frame(sock: socket.socket, deadline: float | None = None) -> bytes:
    """Receive the next frame unread. Raises ChannelError at the end and after `deadline` (monotonic)."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size, deadline))
    if length > MAX_FRAME:
        raise ChannelError(f"a frame of {length} bytes, the limit is {MAX_FRAME}")
    return _exactly(sock, length, deadline)


def read(frame: bytes, builders: values.Builders | None = None) -> Any:
    """Return the value in a frame. Raises ChannelError if it is malformed."""
    try:
        return values.decode(frame.decode(), builders)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ChannelError(f"not a frame: {error}") from error


def _exactly(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        sock.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        try:
            part = sock.recv(min(count - len(data), 1 << 20))
        except TimeoutError:
            raise ChannelError("no response in time") from None
        except OSError as error:
            raise ChannelError(f"the other side is gone: {error}") from error
        if not part:
            raise ChannelError("the other side is gone")
        data += part
    return bytes(data)
