"""The resolver of a sandbox: each name of the policy gets an address that leads back to it.

Covers sandbox/egress/authority.py and, in part, sandbox/egress/http.py as well.
"""

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http, resolver
from ostinato.sandbox.egress.authority import Authority
from ostinato.sandbox.egress.policy import PolicyRefusal, Rules
from ostinato.sandbox.egress.resolver import SandboxNames

A, AAAA, TXT = 1, 28, 16


def query(name: str, kind: int = A, *, flags: int = 0x0100, count: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">6H", 7, flags, count, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def status_of(response: bytes) -> tuple[int, int]:
    """Return the status and the number of answers."""
    number, flags, _, answers, _, _ = struct.unpack_from(">6H", response)
    assert number == 7 and flags & 0x8000
    return flags & 15, answers


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
def names(refused: list[str]) -> SandboxNames:
    rules = Rules(Egress(allow=("good.test:443", "*.wild.test:80")))
    return SandboxNames(rules.has_rule_for, refused.append)


def test_an_address_leads_back_to_its_name(names: SandboxNames) -> None:
    for place, name in enumerate(("good.test", "a.wild.test", "GOOD.test"), start=1):
        response = names.respond(query(name))
        assert status_of(response) == (0, 1)
        assert response[-4:] == bytes([198, 18, 0, place if place < 3 else 1])
    assert names.host("198.18.0.2") == "a.wild.test"
    assert names.host("192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize("address", ["198.18.0.0", "198.18.0.1", "198.19.255.255"])
def test_an_address_without_a_name_is_refused(names: SandboxNames, address: str) -> None:
    with pytest.raises(PolicyRefusal, match="look up the name first"):
        names.host(address)


def test_other_names_do_not_exist_and_are_told_once(names: SandboxNames, refused: list[str]) -> None:
    for name in ("evil.test", "wild.test", "evil.test", "xgood.test", "a.good.test"):
        assert status_of(names.respond(query(name))) == (3, 0)
    assert refused == ["evil.test", "wild.test", "xgood.test", "a.good.test"]


def test_there_are_no_other_records(names: SandboxNames) -> None:
    assert status_of(names.respond(query("good.test", AAAA))) == (0, 0)
    assert status_of(names.respond(query("good.test", TXT))) == (0, 0)
    assert status_of(names.respond(query("good.test", flags=0x2800))) == (4, 0)
    assert status_of(names.respond(query("good.test", count=2))) == (4, 0)
    assert names.respond(query("good.test", flags=0x8000)) == b""


def test_names_are_bounded(names: SandboxNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_NAMES", 2)
    statuses = [status_of(names.respond(query(f"{n}.wild.test")))[0] for n in range(3)]
    assert statuses == [0, 0, 2]
    assert status_of(names.respond(query("0.wild.test"))) == (0, 1)


@given(st.binary(max_size=80))
def test_malformed_queries_are_refused_or_dropped(data: bytes) -> None:
    response = SandboxNames(lambda _: True, lambda _: None).respond(data)
    assert not response or response[:2] == data[:2]


def test_the_host_of_a_request_must_be_its_server() -> None:
    def read(target: str, *hosts: str) -> str:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        return http.origin(http.parse(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()), "a.test", 443)

    assert read("/x?y", "a.test") == read("/x?y", "A.test:443") == "/x?y"
    for target, *hosts in (("/",), ("/", "a.test", "a.test"), ("/", "b.test"), ("/", "a.test:80")):
        with pytest.raises(PolicyRefusal, match=r"Host|requests 'b.test'|requests 'a.test:80'"):
            read(target, *hosts)
    for target in ("http://a.test/", "a.test:443", "x"):
        with pytest.raises(PolicyRefusal, match="not a path"):
            read(target, "a.test")


def test_the_beginning_of_http_is_recognised() -> None:
    assert http.begins(b"GET / HTTP/1.1") and http.begins(b"OPTIONS * HTTP/1.1")
    assert not any(map(http.begins, (b"", b"SSH-2.0-x", b"\x16\x03\x01", b"EHLO me", b"NICK me")))


@pytest.mark.parametrize("host", ["good.test", "192.0.2.1", "2001:db8::1", "x" * 63 + ".test"])
def test_a_certificate_is_valid_only_for_its_host(host: str) -> None:
    """Python's own client checks it, as strictly as it can."""
    pytest.importorskip("cryptography", reason="certificates need it")
    authority = Authority("test")
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shake_hands(client, authority.inside(host), host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(client, authority.inside(host), "other.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, Authority("another").inside(host), host)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """Make a TLS handshake in memory. Raises ssl.SSLError."""
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(one, two, server_hostname=host),
        server.wrap_bio(two, one, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    return True
