"""Names become addresses that lead back, and only names that the policy knows."""

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress import http, resolver
from ostinato.sandbox.egress.authority import Authority
from ostinato.sandbox.egress.policy import Refused, Rules
from ostinato.sandbox.egress.resolver import Names

A, AAAA, TXT = 1, 28, 16


def query(name: str, kind: int = A, *, flags: int = 0x0100, count: int = 1) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">6H", 7, flags, count, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def answered(told: bytes) -> tuple[int, int]:
    """Status and number of answers."""
    number, flags, _, answers, _, _ = struct.unpack_from(">6H", told)
    assert number == 7 and flags & 0x8000
    return flags & 15, answers


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
def asked(refused: list[str]) -> Names:
    rules = Rules(Egress(allow=("good.test:443", "*.wild.test:80")))
    return Names(rules.names, refused.append)


def test_an_address_leads_back_to_its_name(asked: Names) -> None:
    for place, name in enumerate(("good.test", "a.wild.test", "GOOD.test"), start=1):
        told = asked.answer(query(name))
        assert answered(told) == (0, 1)
        assert told[-4:] == bytes([198, 18, 0, place if place < 3 else 1])
    assert asked.host("198.18.0.2") == "a.wild.test"
    assert asked.host("192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize("address", ["198.18.0.0", "198.18.0.1", "198.19.255.255"])
def test_an_address_that_nobody_was_told_is_refused(asked: Names, address: str) -> None:
    with pytest.raises(Refused, match="ask for the name first"):
        asked.host(address)


def test_other_names_do_not_exist_and_are_told_once(asked: Names, refused: list[str]) -> None:
    for name in ("evil.test", "wild.test", "evil.test", "xgood.test", "a.good.test"):
        assert answered(asked.answer(query(name))) == (3, 0)
    assert refused == ["evil.test", "wild.test", "xgood.test", "a.good.test"]


def test_there_are_no_other_records(asked: Names) -> None:
    assert answered(asked.answer(query("good.test", AAAA))) == (0, 0)
    assert answered(asked.answer(query("good.test", TXT))) == (0, 0)
    assert answered(asked.answer(query("good.test", flags=0x2800))) == (4, 0)
    assert answered(asked.answer(query("good.test", count=2))) == (4, 0)
    assert asked.answer(query("good.test", flags=0x8000)) == b""


def test_names_are_bounded(asked: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_NAMES", 2)
    found = [answered(asked.answer(query(f"{n}.wild.test")))[0] for n in range(3)]
    assert found == [0, 0, 2]
    assert answered(asked.answer(query("0.wild.test"))) == (0, 1)


@given(st.binary(max_size=80))
def test_nonsense_is_answered_or_dropped(data: bytes) -> None:
    told = Names(lambda _: True, lambda _: None).answer(data)
    assert not told or told[:2] == data[:2]


def test_a_request_to_a_server_names_that_server() -> None:
    def read(target: str, *hosts: str) -> str:
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        return http.origin(http.parse(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode()), "a.test", 443)

    assert read("/x?y", "a.test") == read("/x?y", "A.test:443") == "/x?y"
    for target, *hosts in (("/",), ("/", "a.test", "a.test"), ("/", "b.test"), ("/", "a.test:80")):
        with pytest.raises(Refused, match=r"Host|asks there"):
            read(target, *hosts)
    for target in ("http://a.test/", "a.test:443", "x"):
        with pytest.raises(Refused, match="not a path"):
            read(target, "a.test")


def test_what_begins_like_http() -> None:
    assert http.begins(b"GET / HTTP/1.1") and http.begins(b"OPTIONS * HTTP/1.1")
    assert not any(map(http.begins, (b"", b"SSH-2.0-x", b"\x16\x03\x01", b"EHLO me", b"NICK me")))


@pytest.mark.parametrize("host", ["good.test", "192.0.2.1", "2001:db8::1", "x" * 63 + ".test"])
def test_a_certificate_holds_for_its_host_alone(host: str) -> None:
    """By Python's own client, as strict as it can be made."""
    pytest.importorskip("cryptography", reason="certificates need it")
    authority = Authority("test")
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shaken(client, authority.inside(host), host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shaken(client, authority.inside(host), "other.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(client, Authority("another").inside(host), host)


def shaken(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """A handshake without a network; raises ssl.SSLError."""
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
