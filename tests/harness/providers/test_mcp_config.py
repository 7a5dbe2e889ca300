import json
from pathlib import Path

import pytest

from ostinato.config import ConfigError
from ostinato.harness.providers.mcp_config import McpServer, load, of_person


def test_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKETS_TOKEN", "s3")
    toml, other = tmp_path / "mcp.toml", tmp_path / "mcp.json"
    toml.write_text(
        '[servers.tickets]\ncommand = ["tickets-mcp", "--stdio"]\nenv = { TOKEN = "env:TICKETS_TOKEN" }\n'
        '[servers.docs]\nurl = "http://127.0.0.1/mcp"\ntimeout_s = 5\n'
    )
    ticket = {"command": "tickets-mcp", "args": ["--stdio"], "env": {"TOKEN": "env:TICKETS_TOKEN"}}
    other.write_text(json.dumps({"mcpServers": {"tickets": ticket}}))
    tickets = McpServer(name="tickets", command=("tickets-mcp", "--stdio"), env={"TOKEN": "s3"})
    assert load(toml) == [tickets, McpServer(name="docs", url="http://127.0.0.1/mcp", timeout_s=5.0)]
    assert load(other) == [tickets]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert of_person() == []
    (tmp_path / "ostinato").mkdir()
    toml.rename(tmp_path / "ostinato" / "mcp.toml")
    assert of_person()[0] == tickets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[servers", "cannot be read"),
        ("servers = 3", r"one table \[servers.NAME\]"),
        ('[servers.a_b]\nurl = "x"', "server a_b: a name is"),
        ('[servers.a]\nurl = "x"\ncommand = ["y"]', "server a: give either command or url"),
        ("[servers.a]\n", "server a: give either command or url"),
        ('[servers.a]\nurl = "x"\nkind = "y"', "server a: unknown kind; use args, command"),
        ("[servers.a]\ncommand = [3]", "server a: 3 is not text"),
        ('[servers.a]\nurl = "x"\ntimeout_s = "long"', "server a: could not convert"),
        ('[servers.a]\nurl = "x"\nheaders = { K = "env:NO_SUCH_NAME" }', "NO_SUCH_NAME is not set"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mcp.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
