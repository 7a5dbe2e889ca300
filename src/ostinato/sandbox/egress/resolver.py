"""The resolver of a sandbox whose connections are turned: names become addresses that lead back to the name.

    program ──good.test?──► Names ──198.18.0.7──► program ──198.18.0.7:443──► Names ──good.test──► Rules

A question never travels further, so nothing can be told by asking; the name is resolved for real, outside,
when a connection to it is made. A name that the policy has no rule for does not exist (RFC 1035; the
addresses are those of RFC 2544, which lead nowhere).
"""

import ipaddress
import struct
from collections.abc import Callable

from ostinato.sandbox.egress.policy import Refused, plain_name

POOL = ipaddress.IPv4Network("198.18.0.0/15")
MAX_NAMES = 10_000
"""How many names one sandbox may ask for; wildcards allow any number."""
MAX_MESSAGE = 4096
DNS_PORT = 53
_TTL_S = 60
_HEADER = struct.Struct(">HHHHHH")
_IS_ANSWER, _OPERATION, _ANSWER_FLAGS, _RECURSION_DESIRED = 0x8000, 0x7800, 0x8080, 0x0100
_OK, _BROKEN, _FAILED, _NO_SUCH_NAME, _UNKNOWN = 0, 1, 2, 3, 4
_A, _INTERNET = 1, 1
_MAX_LABEL = 63


class Names:
    """What one sandbox has asked for. `known`: whether the policy has a rule for a name; `refused` is told
    each name that does not exist for it, once."""

    def __init__(self, known: Callable[[str], bool], refused: Callable[[str], None]) -> None:
        self._known = known
        self._refused = refused
        self._told: set[str] = set()
        self._hosts: list[str] = []
        self._places: dict[str, int] = {}

    def host(self, address: str) -> str:
        """The name that `address` was the answer to; an address that is no such answer stands for itself.

        Raises Refused for an address of ours that nobody was told.
        """
        number = ipaddress.IPv4Address(address)
        if number not in POOL:
            return address
        place = int(number) - int(POOL.network_address) - 1
        if not 0 <= place < len(self._hosts):
            raise Refused(f"{address} is the answer to no name: ask for the name first")
        return self._hosts[place]

    def answer(self, query: bytes) -> bytes:
        """A reply; empty for what is no question at all."""
        if len(query) < _HEADER.size:
            return b""
        number, flags, questions, *_ = _HEADER.unpack_from(query)
        if flags & _IS_ANSWER:
            return b""
        told = _ANSWER_FLAGS | (flags & _RECURSION_DESIRED)
        if flags & _OPERATION or questions != 1:
            return _HEADER.pack(number, told | _UNKNOWN, 0, 0, 0, 0)
        try:
            name, kind, question = _question(query)
        except (IndexError, struct.error):
            return _HEADER.pack(number, told | _BROKEN, 0, 0, 0, 0)
        status, address = self._look_up(name)
        answers = _record(address) if address and kind == (_A, _INTERNET) else b""
        return _HEADER.pack(number, told | status, 1, bool(answers), 0, 0) + question + answers

    def _look_up(self, host: str) -> tuple[int, bytes]:
        """Status and address: also for kinds of records that there are none of."""
        try:
            name = plain_name(host)
        except Refused:
            name = host
        if not self._known(name):
            self._tell(name)
            return _NO_SUCH_NAME, b""
        if name not in self._places:
            if len(self._hosts) >= MAX_NAMES:
                return _FAILED, b""
            self._places[name] = len(self._hosts)
            self._hosts.append(name)
        return _OK, (POOL.network_address + 1 + self._places[name]).packed

    def _tell(self, name: str) -> None:
        if name not in self._told and len(self._told) < MAX_NAMES:
            self._told.add(name)
            self._refused(name)


def _question(query: bytes) -> tuple[str, tuple[int, int], bytes]:
    """Name, type and class of the only question, and its bytes; raises IndexError, struct.error."""
    labels, place = list[str](), _HEADER.size
    while size := query[place]:
        if size > _MAX_LABEL or place + size >= len(query):
            raise IndexError
        labels.append(query[place + 1 : place + 1 + size].decode("latin-1"))
        place += 1 + size
    kind, space = struct.unpack_from(">HH", query, place + 1)
    return ".".join(labels), (kind, space), query[_HEADER.size : place + 5]


def _record(address: bytes) -> bytes:
    """For the name of the question, by a pointer to it."""
    return struct.pack(">HHHIH", 0xC000 | _HEADER.size, _A, _INTERNET, _TTL_S, len(address)) + address
