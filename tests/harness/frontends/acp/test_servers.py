"""The MCP servers of an editor are offered to the model, or the editor reads why not."""

import pytest
from acp import RequestError, schema

from ostinato.harness.frontends.acp.servers import safe_name, servers_of

STDIO = schema.McpServerStdio(
    name="my tickets", command="/bin/tickets", args=["--stdio"], env=[schema.EnvVariable(name="T", value="1")]
)
HTTP = schema.HttpMcpServer(
    type="http", name="docs", url="http://127.0.0.1:1/mcp", headers=[schema.HttpHeader(name="A", value="b")]
)


def test_programs_and_addresses_are_taken():
    program, address = servers_of([STDIO, HTTP])
    assert (program.name, program.command, program.env) == (
        "my-tickets",
        ("/bin/tickets", "--stdio"),
        {"T": "1"},
    )
    assert (address.url, address.headers) == ("http://127.0.0.1:1/mcp", {"A": "b"})
    assert servers_of(None) == ()


def test_what_cannot_be_used_is_said():
    sse = schema.SseMcpServer(type="sse", name="old", url="http://x", headers=[])
    for offered, message in (([sse], "stdio or http, not sse"), ([STDIO, STDIO], "same name")):
        with pytest.raises(RequestError, match=message):
            servers_of(offered)


@pytest.mark.parametrize(("name", "carried"), [("a__b", "a-b"), ("é!", "server"), ("x" * 99, "x" * 32)])
def test_names(name: str, carried: str):
    assert safe_name(name) == carried
