"""Web pages and foreign host names are refused; programs of this machine are served."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from ostinato.web.origin import LocalOnly, refusal


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80", "localhost:8080", "LOCALHOST", "[::1]:9", "127.9.9.9", "app.localhost", ""]
)
def test_this_machine_is_served(host: str) -> None:
    assert refusal(host, "", "127.0.0.1") is None
    assert refusal(host, f"http://{host}" if host else "", "127.0.0.1") is None


@pytest.mark.parametrize(
    "host", ["evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[::"]
)
def test_a_foreign_name_is_refused_on_loopback(host: str) -> None:
    assert "is not this machine" in str(refusal(host, "", "127.0.0.1"))
    assert "is not this machine" in str(refusal(host, f"http://{host}", "::1"))


def test_another_address_may_have_any_name_but_no_foreign_page() -> None:
    assert refusal("gateway.corp:8080", "", "10.0.0.7") is None
    assert refusal("gateway.corp:8080", "http://gateway.corp:8080", "10.0.0.7") is None
    assert "may not call" in str(refusal("gateway.corp:8080", "http://evil.example", "10.0.0.7"))
    assert "may not call" in str(refusal("127.0.0.1:80", "http://127.0.0.1:81", "127.0.0.1"))
    assert "may not call" in str(refusal("127.0.0.1:80", "null", "127.0.0.1"))
    for origin in ("http://[", "http://]", "http://[::1", "http://a[b]", "http://\u2100.example"):
        assert "may not call" in str(refusal("127.0.0.1:80", origin, "127.0.0.1"))
        assert "may not call" in str(refusal("", origin, "127.0.0.1"))


def test_an_allowed_name_is_served() -> None:
    assert refusal("gateway.corp", "", "127.0.0.1", ("gateway.corp",)) is None
    assert refusal("gateway.corp", "https://gateway.corp", "127.0.0.1", ("gateway.corp",)) is None


def test_the_refusal_says_what_to_do() -> None:
    async def ok(_: Request) -> Response:
        return Response("ok")

    app = LocalOnly(Starlette(routes=[Route("/", ok)]), ("proxy.corp",))
    client = TestClient(app, base_url="http://127.0.0.1:80")
    assert client.get("/").text == "ok"
    assert client.get("/", headers={"Host": "proxy.corp"}).text == "ok"
    refused = client.get("/", headers={"Origin": "https://evil.example"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_host")
