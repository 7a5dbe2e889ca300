"""The server name in the first bytes of a TLS connection (RFC 8446, section 4.1.2; RFC 6066, section 3).

A tunnel to an allowed host that requests another one there (domain fronting) is cut. An encrypted name (ECH)
cannot be read, so its outer name is checked.
"""

import struct

from ostinato.sandbox.egress.policy import PolicyRefusal

RECORD = 5
"""Bytes of a record's header."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_MAX_RECORD = 2**14


def begins(data: bytes) -> bool:
    """Return True if the bytes begin a TLS connection; one byte is enough."""
    return data[:1] == bytes([_HANDSHAKE])


def missing(data: bytes) -> int:
    """Return how many bytes of the first record are missing; 0 if it is not a TLS handshake."""
    if not begins(data):
        return 0
    if len(data) < RECORD:
        return RECORD - len(data)
    (length,) = struct.unpack_from(">H", data, 3)
    return max(0, RECORD + min(int(length), _MAX_RECORD) - len(data))


def check_name(data: bytes, host: str) -> None:
    """Raise PolicyRefusal when `data` begins with a ClientHello for another server than `host`."""
    if not begins(data):
        return
    try:
        name = _server_name(data[RECORD:])
    except (struct.error, IndexError):
        raise PolicyRefusal(f"a TLS greeting to {host} that cannot be read") from None
    if name is not None and name.lower().removesuffix(".") != host:
        raise PolicyRefusal(f"a tunnel to {host} requests {name[:100]!r}")


def _server_name(hello: bytes) -> str | None:
    if hello[0] != _CLIENT_HELLO:
        raise IndexError
    place = 4 + 2 + 32  # kind and length, version, random
    place += 1 + hello[place]  # session id
    place += 2 + _u16(hello, place)  # cipher suites
    place += 1 + hello[place]  # compression
    end = place + 2 + _u16(hello, place)
    place += 2
    while place + 4 <= end:
        kind, length = struct.unpack_from(">HH", hello, place)
        place += 4
        if kind == _SERVER_NAME and hello[place + 2] == _HOST_NAME:
            size = _u16(hello, place + 3)
            return hello[place + 5 : place + 5 + size].decode("latin-1")
        place += length
    return None


def _u16(data: bytes, place: int) -> int:
    (value,) = struct.unpack_from(">H", data, place)
    return int(value)
