"""The command line: what a person reads who mistyped, and which errors are sentences.

Covers loop/commands.py, search/commands.py and web/port.py.
"""

import argparse
import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.loop import commands as serve_commands

BARE = {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
"""An environment where Python finds the package and, with `-S`, nothing of others."""
KEYED = {**os.environ, "OSTINATO_KEY": "k"}


def ostinato(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostinato", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=KEYED)


def test_alone_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "serve a run's version, a checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_what_asks_for_no_command_imports_no_room(word: str) -> None:
    code = f"""import sys
from ostinato import cli
try:
    cli.main([{word!r}])
except SystemExit:
    ours = {{name for name in sys.modules if name.startswith("ostinato.")}}
    assert ours == {{"ostinato.cli"}}, ours
    foreign = {{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names
    print(sorted(foreign - {{"ostinato", "__main__"}}), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, env=BARE
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_every_command_has_its_help_and_the_room_that_adds_it() -> None:
    parser = cli.whole_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, cli.Commands)]
    assert set(commands.choices) == set(cli.COMMANDS)
    for name in cli.COMMANDS:
        (alone,) = [each for each in cli.parser_of(name)._actions if isinstance(each, cli.Commands)]
        assert name in alone.choices


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for inner in (inner for group in groups for inner in group.choices.values()):
        yield from leaves(inner)
    if not groups:
        yield parser


def test_every_command_has_an_example_and_every_argument_its_help_and_default() -> None:
    parser = cli.whole_parser()
    for line in cli.EXAMPLES:
        parser.parse_args(shlex.split(line)[1:])
    for leaf in leaves(parser):
        told = " ".join(leaf.format_help().split())
        assert f"examples: {leaf.prog}" in told
        for action in leaf._actions:
            assert action.help, (leaf.prog, action)
            if action.option_strings and action.default not in (None, False, "", [], argparse.SUPPRESS):
                assert f"(default: {action.default}" in told or "(default: " in action.help


def test_the_help_is_a_whole_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert f"{cli.DESCRIPTION}\n" in capsys.readouterr().out.replace("\n", " ").replace(". ", ".\n")
    assert cli.DESCRIPTION.endswith(".")


@pytest.mark.parametrize(
    "words", [["serve", "--bogus"], ["keys", "list", "--bogus"], ["hooks", "status", "--bogus"]]
)
def test_an_unknown_argument_shows_the_usage_of_its_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "unknown argument: --bogus" in told
    assert f"usage: ostinato {words[0]}" in told


@pytest.mark.parametrize("port", ["99999", "-1", "http", "1.5", ""])
def test_an_impossible_port_is_named(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", f"--port={port}"])
    assert f"{port!r} is no port: give a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("value", serve_commands.OF_A_MODEL.values())
def test_serve_refuses_what_it_would_ignore_without_a_model(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = {"--backend": "vllm", "--dtype": "float32", "--draft": "none"}.get(value, "1")
    assert cli.main(["serve", "--directory", str(tmp_path / "none"), value, word]) == 2
    told = capsys.readouterr().err
    assert f"{value}: no effect without --model" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--engine", "http://a", "--slots", "4", "--context", "9"],
            "--slots, --context: no effect beside --engine",
        ),
        (["--version", "3"], "--version: no effect without --engine"),
    ],
)
def test_serve_refuses_what_its_model_would_ignore(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", "--model", "m", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("positions", "words", "context"),
    [(1024, [], 1024), (8192, [], 4096), (None, [], 4096), (1024, ["--context", "2048"], 2048)],
)
def test_a_model_of_few_positions_is_served_with_those(
    positions: int | None, words: list[str], context: int, tmp_path: Path
) -> None:
    if positions is not None:
        (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": positions}))
    options = cli.whole_parser().parse_args(["serve", "--model", str(tmp_path), *words])
    given = {"context": options.context} if words else {}
    assert serve_commands._of_model(options, given).context == context


def test_the_hook_command_explains_itself() -> None:
    done = ostinato("hook", "--help")
    assert done.returncode == 0
    assert "a git hook ran" in done.stdout


def test_expected_errors_are_one_sentence(tmp_path: Path) -> None:
    missing = ostinato("serve", "--directory", str(tmp_path / "nowhere"))
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1 and "is no record" in missing.stderr
    (tmp_path / "store.db").write_bytes(b"garbage" * 999)
    garbage = ostinato("keys", "list", "--store", str(tmp_path / "store.db"))
    assert garbage.returncode == 2
    assert garbage.stderr.count("\n") == 1 and "store.db" in garbage.stderr
    unreadable = ostinato("demo", "--directory", str(tmp_path / "store.db" / "below"))
    assert unreadable.returncode == 2
    assert unreadable.stderr.count("\n") == 1 and "Not a directory" in unreadable.stderr


def test_a_defect_keeps_its_traceback() -> None:
    assert cli._expected(KeyError("x"), "code") is None
    assert cli._expected(OSError(errno.EPIPE, "broken pipe"), "code") is None


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = ostinato("search", "serve", "--port", port, "--cache", str(tmp_path / "cache.db"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and port in done.stderr


def test_an_interrupted_command_says_what_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ostinato", "search", "serve", "--port", "0"]
    command += ["--cache", str(tmp_path / "cache.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=KEYED) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert "goes on from here" not in told and "Traceback" not in told
