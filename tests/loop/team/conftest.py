"""A team in a folder of its own, before a fake vLLM, and a home that is nobody's."""

import argparse
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.remote.fake_vllm import fake_vllm

from ostinato.cli import parser_of
from ostinato.loop.team.file import Team, make_team, open_team
from ostinato.model.tokenizer import IM_END, Tokenizer
from ostinato.store import Store

TOKENIZER = Tokenizer.train(["the file holds the answer " * 4], 300)
SAID = (*TOKENIZER.encode("the answer"), TOKENIZER.encode(IM_END)[0])


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    """The address of a vLLM that serves `smol`."""
    async with fake_vllm(TOKENIZER, SAID) as (url, _):
        yield url


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with the tokenizer of `smol`."""
    TOKENIZER.save(tmp_path / "smol")
    return tmp_path / "smol"


@pytest.fixture
def team(tmp_path: Path) -> Team:
    """A team whose engine is away."""
    terms = {"address": "https://models.example", "people": 20, "context": 4096}
    make_team(tmp_path / "at" / "team.toml", engine="http://127.0.0.1:9", model="smol", **terms)
    return open_team(tmp_path / "at" / "team.toml")


@pytest.fixture
def record(team: Team) -> Iterator[Store]:
    store = team.open_store()
    yield store
    store.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a person who has joined nothing."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "OSTINATO_URL", "OSTINATO_KEY"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def typed() -> Callable[..., argparse.Namespace]:
    """Return the options of a command as a person types it."""
    return lambda *words: parser_of(words[0]).parse_args(list(words))
