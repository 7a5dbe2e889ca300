"""`ostinato search query`: in place and from a service, the same hits."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.search.toolbox import FILES, running

from ostinato.cli import main, parser_of
from ostinato.config import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to search, one of them with a name and a text of a stranger, and what is never searched."""
    odd = {"odd/x\x1b[2J.md": b"# Sunday\n\nThe header of \x1b[2Ja till.\n"}
    hidden = {".env": b"HEADER=1\n", ".gitignore": b"*.log\n", "a.log": b"parse a header\n"}
    for name, data in (FILES | odd | hidden).items():
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_bytes(data)
    return tmp_path / "repo"


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSTINATO_SEARCH_URL", raising=False)
    monkeypatch.setenv("OSTINATO_KEY", "key")


def test_a_folder_is_searched_in_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    assert main(["search", "query", "parse a header", "--directory", str(folder), "--k", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("shop/calc.py:11-13\n    def parse_header(line):\n") and "a.log" not in shown
    assert sorted(folder.rglob("*")) == before
    assert main(["search", "query", "Sunday", "--directory", str(folder), "--path", "odd"]) == 0
    assert "\x1b" not in (odd := capsys.readouterr().out) and odd.startswith("odd/x␛[2J.md:")
    assert main(["search", "query", "xylophone", "--directory", str(folder)]) == 0
    assert "nothing in 4 files" in capsys.readouterr().out


def run(words: list[str]) -> int:
    """Run a command in a thread, where `main` cannot set signal handlers."""
    options = parser_of(words[0]).parse_args(words)
    status: int = options.run(options)
    return status


async def test_a_service_gives_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["search", "query", "coins of the till", "--directory", str(folder), "--json"]
    assert await asyncio.to_thread(run, words) == 0
    here = json.loads(capsys.readouterr().out)
    async with running(tmp_path / "search.db") as service:
        assert await asyncio.to_thread(run, [*words, "--url", service.url]) == 0
    assert json.loads(capsys.readouterr().out) == here and here["hits"][0]["path"] == "shop/calc.py"
    monkeypatch.setenv("OSTINATO_KEY", "")
    with pytest.raises(ConfigError, match="wants an API key"):
        await asyncio.to_thread(run, [*words, "--url", service.url])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--k", "0"], "k must be 1 to"),
        (["--model", "psychic"], "unknown model psychic"),
        (["--url", "http://127.0.0.1:9"], "the search service does not answer"),
        (["--directory", "/nowhere"], "no repository at /nowhere"),
    ],
)
def test_what_cannot_be_searched_is_said(
    folder: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "query", "header", "--directory", str(folder), *words]) == 2
    assert complaint in capsys.readouterr().err
