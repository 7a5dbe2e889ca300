import stat

import pytest

from ostinato.cli import parser_of
from ostinato.config import ConfigError
from ostinato.harness.frontends.command_line import gateway_of
from ostinato.web.joined import LOCAL, Joined, JoinedError, joined, joined_path, keep


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OSTINATO_URL", raising=False)
    monkeypatch.delenv("OSTINATO_KEY", raising=False)


def test_the_environment_goes_before_the_file(monkeypatch) -> None:
    assert joined() == Joined(url="", key="")
    keep("http://a", "k")
    assert joined() == Joined(url="http://a", key="k")
    monkeypatch.setenv("OSTINATO_URL", "http://b")
    assert joined() == Joined(url="http://b", key="")
    monkeypatch.setenv("OSTINATO_KEY", "l")
    assert joined() == Joined(url="http://b", key="l")


def test_the_file_is_its_owners_alone_and_keeps_what_a_person_allowed() -> None:
    keep("http://a", "k")
    path = joined_path()
    path.write_text(path.read_text().replace("false", "true"))
    keep("http://b", "l")
    assert joined() == Joined(url="http://b", key="l", content=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [path] == list(path.parent.iterdir())


@pytest.mark.parametrize(("text", "why"), [("url = ", "gateway.toml"), ("token = 1", "unknown name 'token'")])
def test_a_file_that_is_wrong_is_named(text, why) -> None:
    joined_path().parent.mkdir(parents=True)
    joined_path().write_text(text)
    with pytest.raises(JoinedError, match=why):
        joined()


@pytest.mark.parametrize("command", ["code", "acp"])
def test_the_agent_goes_where_the_person_joined_and_takes_the_key_nowhere_else(command: str) -> None:
    def known(*words: str) -> Joined:
        return gateway_of(parser_of(command).parse_args([command, *words]))

    assert known() == Joined(url=LOCAL, key="")
    keep("https://team", "k")
    assert known() == Joined(url="https://team", key="k")
    assert known("--url", "https://team") == Joined(url="https://team", key="k")
    assert known("--url", "https://elsewhere") == Joined(url="https://elsewhere", key="")
    with pytest.raises(ConfigError):
        known("--key-file", "missing")
