"""What the proxy reads of HTTP."""

import pytest

from ostinato.sandbox.egress import http
from ostinato.sandbox.egress.policy import PolicyRefusal


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
