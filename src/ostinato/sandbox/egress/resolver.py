"""The resolver of a sandbox whose connections are redirected: each name gets an address of its own.

    program ──good.test?──► SandboxNames ──198.18.0.7──► program ──198.18.0.7:443──► SandboxNames
    ──good.test──► Rules

A query never leaves the sandbox, so it cannot carry data out; the name is resolved for real, outside, when a
connection to it is made. A name without a rule in the policy does not exist (RFC 1035; the addresses are
those of RFC 2544, which lead nowhere).
"""

import ipaddress
import struct
from collections.abc import Callable

from ostinato.sandbox.egress.policy import PolicyRefusal, plain_name

POOL = ipaddress.IPv4Network("198.18.0.0/15")
MAX_NAMES = 10_000
"""Limit for the names of one sandbox, since wildcards allow any number."""
MAX_MESSAGE = 4096
DNS_PORT = 53
_TTL_S = 60
_HEADER = struct.Struct(">HHHHHH")
_IS_ANSWER, _OPERATION, _ANSWER_FLAGS, _RECURSION_DESIRED = 0x8000, 0x7800, 0x8080, 0x0100
_OK, _BROKEN, _FAILED, _NO_SUCH_NAME, _UNKNOWN = 0, 1, 2, 3, 4
_A, _INTERNET = 1, 1
_MAX_LABEL = 63


class SandboxNames:
    """The names of one sandbox and their addresses.

    `known` returns True if the policy has a rule for a name; `on_refused` is called once for every other
    name.
    """

    def __init__(self, known: Callable[[str], bool], on_refused: Callable[[str], None]) -> None:
        self._known = known
        self._on_refused = on_refused
        self._reported: set[str] = set()
        self._hosts: list[str] = []
        self._places: dict[str, int] = {}

    def host(self, address: str) -> str:
        """Return the name that got `address`; an address outside of the pool stands for itself.

        Raises PolicyRefusal for an address of the pool that no name has.
        """
        number = ipaddress.IPv4Address(address)
        if number not in POOL:
            return address
        place = int(number) - int(POOL.network_address) - 1
        if not 0 <= place < len(self._hosts):
            raise PolicyRefusal(f"{address} belongs to no name: look up the name first")
        return self._hosts[place]

    def respond(self, query: bytes) -> bytes:
        """Return the response to a query; empty if it is not a query."""
        if len(query) < _HEADER.size:
            return b""
        number, flags, questions, *_ = _HEADER.unpack_from(query)
        if flags & _IS_ANSWER:
            return b""
        reply = _ANSWER_FLAGS | (flags & _RECURSION_DESIRED)
        if flags & _OPERATION or questions != 1:
            return _HEADER.pack(number, reply | _UNKNOWN, 0, 0, 0, 0)
        try:
            name, kind, question = _question(query)
        except (IndexError, struct.error):
            return _HEADER.pack(number, reply | _BROKEN, 0, 0, 0, 0)
        status, address = self._look_up(name)
        answers = _record(address) if address and kind == (_A, _INTERNET) else b""
        return _HEADER.pack(number, reply | status, 1, bool(answers), 0, 0) + question + answers

    def _look_up(self, host: str) -> tuple[int, bytes]:
        """Return status and address, which also says if the name exists for other kinds of records."""
        try:
            name = plain_name(host)
        except PolicyRefusal:
            name = host
        if not self._known(name):
            self._report(name)
            return _NO_SUCH_NAME, b""
        if name not in self._places:
            if len(self._hosts) >= MAX_NAMES:
                return _FAILED, b""
            self._places[name] = len(self._hosts)
            self._hosts.append(name)
        return _OK, (POOL.network_address + 1 + self._places[name]).packed

    def _report(self, name: str) -> None:
        if name not in self._reported and len(self._reported) < MAX_NAMES:
            self._reported.add(name)
            self._on_refused(name)


def _question(query: bytes) -> tuple[str, tuple[int, int], bytes]:
    """Return name, type and class of the only question, and its bytes. Raises IndexError, struct.error."""
    labels, place = list[str](), _HEADER.size
    while size := query[place]:
        if size > _MAX_LABEL or place + size >= len(query):
            raise IndexError
        labels.append(query[place + 1 : place + 1 + size].decode("latin-1"))
        place += 1 + size
    kind, space = struct.unpack_from(">HH", query, place + 1)
    return ".".join(labels), (kind, space), query[_HEADER.size : place + 5]


def _record(address: bytes) -> bytes:
    """Return an A record for the name of the question, by a pointer to it."""
    return struct.pack(">HHHIH", 0xC000 | _HEADER.size, _A, _INTERNET, _TTL_S, len(address)) + address
