"""Covers deploy/commands.py: `ostinato arms`."""

import json
from pathlib import Path

import pytest

from ostinato.cli import main
from ostinato.store import Store
from ostinato.types import Arm

OLD = Arm(name="champion", version=1, share=1.0, engines=("http://a:1",))


@pytest.fixture
def path(tmp_path: Path) -> str:
    store = Store.open(tmp_path / "store.db")
    store.set_arms([OLD])
    store.close()
    return str(tmp_path / "store.db")


def arms(path: str) -> dict[str, Arm]:
    store = Store.open(path)
    found = {arm.name: arm for arm in store.arms()}
    store.close()
    return found


def test_an_arm_is_made_split_and_listed(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    new = ["--version", "2", "--engine", "http://b:1", "--engine", "http://b:2/"]
    assert main(["arms", "set", "challenger", *new, "--store", path]) == 0
    assert arms(path)["challenger"] == Arm(
        name="challenger", version=2, share=0.0, engines=("http://b:1", "http://b:2")
    )
    assert main(["arms", "split", "champion=0.7", "challenger=0.3", "--store", path]) == 0
    capsys.readouterr()
    assert main(["arms", "list", "--json", "--store", path]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["name"], row["share"]) for row in rows] == [("champion", 0.7), ("challenger", 0.3)]


def test_a_replica_that_is_left_out_goes_and_the_rest_of_the_arm_stays(path: str) -> None:
    assert main(["arms", "set", "champion", "--engine", "http://c:1", "--store", path]) == 0
    assert arms(path)["champion"] == Arm(name="champion", version=1, share=1.0, engines=("http://c:1",))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["set", "new"], "give its --version"),
        (["set", "champion", "--engine", "c:1"], "'c:1' is no address of an engine"),
        (["split", "champion=0.7"], "add up to 1"),
        (["split", "champion=much"], "'champion=much' is no NAME=SHARE"),
        (["split", "other=1"], "there is no arm 'other', only champion"),
    ],
)
def test_a_wrong_command_changes_nothing_and_says_why(
    path: str, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["arms", *words, "--store", path]) == 2
    assert complaint in capsys.readouterr().err
    assert arms(path) == {"champion": OLD}


def test_a_store_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["arms", "list", "--store", "nowhere/store.db"]) == 2
    assert "nowhere/store.db is no record" in capsys.readouterr().err
