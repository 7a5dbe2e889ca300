"""Covers store/config.py and store/commands.py: every command means the same record."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.cli import main, whole_parser
from ostinato.demo.commands import NEXT
from ostinato.store import Store
from ostinato.store.commands import FOLDER_HELP
from ostinato.store.config import RECORD

ARGUMENTS = {
    "arms set": "champion", "arms split": "champion=1", "bench mine": "repo --out tasks",
    "bench looks": "--versions 1",
    "bench refresh": "suite", "bench run": "suite --versions 1", "consent set": "yes",
    "cycle confirm": "7", "cycle demote": "7", "keys add": "ada",
    "export": "out", "import": "codex none --user ada",
    "keys revoke": "ab12", "lineage": "7", "purge": "--user ada", "rewards explain": "told/1",
    "store compact": "--older-than 1", "store expire": "--older-than 1",
}  # fmt: skip
"""What a command needs beside the record."""
SEALED = {"bench run", "bench refresh"}
"""Commands that open a suite before they ask for a record."""


def commands(parser: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    """Yield each command that reads the record of a run folder which no flag has to name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from commands(each, f"{words} {name}".strip())
        elif FOLDER_HELP in (action.help or ""):
            yield words


COMMANDS = sorted(set(commands(whole_parser())))


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in SEALED])
def test_every_command_lists_the_records_when_none_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(RECORD, raising=False)
    (tmp_path / "repo").mkdir()
    words = [*command.split(), *shlex.split(ARGUMENTS.get(command, ""))]
    assert main(words) == 2
    assert "no folder below runs/ holds a record" in capsys.readouterr().err
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        Store.open(tmp_path / "runs" / name / "store.db").close()
    assert main(words) == 2
    assert "runs/one, runs/two hold a record" in capsys.readouterr().err
    monkeypatch.setenv(RECORD, "runs/three")
    assert main(words) == 2
    assert "runs/three is no record" in capsys.readouterr().err


def test_the_commands_are_those_that_have_a_record() -> None:
    rooms = {each.split()[0] for each in COMMANDS}
    expected = "arms bench consent cycle dashboard export import keys lineage purge rewards serve store"
    assert rooms == set(expected.split())


def test_a_flag_goes_before_the_environment_and_that_before_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(RECORD, raising=False)
    for place in ("runs/only", "elsewhere"):
        Path(place).mkdir(parents=True)
        Store.open(f"{place}/store.db").close()
    for environment, flags, meant in (
        ("", (), "runs/only/store.db"),
        ("elsewhere", (), "elsewhere/store.db"),
        ("elsewhere/store.db", (), "elsewhere/store.db"),
        ("elsewhere", ("--directory", "runs/only"), "runs/only/store.db"),
        ("elsewhere", ("--store", "runs/only/store.db"), "runs/only/store.db"),
    ):
        monkeypatch.setenv(RECORD, environment)
        assert main(["keys", "list", *flags]) == 0
        assert capsys.readouterr().out.endswith(f"in {meant}\n")
    monkeypatch.setenv(RECORD, "elsewhere/store.db")
    assert main(["cycle", "status"]) == 2
    assert "this command needs a run folder" in capsys.readouterr().err


def test_what_a_run_advises_can_be_typed() -> None:
    """The commands that a run ends with name its folder, so that another record does not matter."""
    advice = NEXT.format("runs/short").split("`")[1]
    options = whole_parser().parse_args(shlex.split(advice)[1:])
    assert options.directory == Path("runs/short")
