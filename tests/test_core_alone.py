"""Every command, in an environment with the core's packages alone: it works, or names the extra it needs.

Covers extras.py.
"""

import argparse
import json
import os
import shlex
import subprocess
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ostinato import cli, extras
from ostinato.tasks.pebble import generate, provide

ROOT = Path(__file__).parents[1]
EXTRAS = set(distribution("ostinato").metadata.get_all("Provides-Extra") or ())
DRIVER = """
import json, os, sys, traceback
import scipy.stats, ostinato.loop.pipeline, ostinato.loop.serving.serve  # once for all of them
from ostinato import cli

cli.whole_parser()

for number, words in enumerate(json.loads(sys.argv[1])):
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"{number}.out", os.O_CREAT | os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            status = cli.main(words)
        except SystemExit as ended:
            status = ended.code
        except BaseException:
            traceback.print_exc()
            status = 70
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Runs commands one after the other, each in a fork, and prints the exit status of each."""
CYCLE = ("status", "pause", "resume", "abort", "promote", "rollback")
CALLS: dict[str, tuple[str, str]] = {
    "run": ("run.toml", "demo"),
    "demo": ("", "demo"),
    "sft": ("sft.toml", "demo"),
    "init": ("new.toml", "practice"),
    "code": ("hello --url http://127.0.0.1:9 --directory repo", ""),
    "background list": ("", ""),
    **{f"background {verb}": ("x", "") for verb in ("show", "follow", "stop", "take", "drop")},
    "session list": ("", ""),
    "session show": ("x", ""),
    "session replay": ("x", ""),
    "session export": ("x --format atif", ""),
    "hook": ("--git post-commit", ""),
    "hooks": ("status repo", ""),
    "lineage": ("0", ""),
    "serve": ("--model repo", "train"),
    "dashboard": ("", "dashboard"),
    "report": ("runs/demo", "dashboard"),
    "arms list": ("", ""),
    "arms set": ("a --version 0", ""),
    "arms split": ("a=1", ""),
    "plan ab": ("--baseline 0.5 --lift 5% --users 20", ""),
    "plan cluster": ("--model demo", ""),
    **{f"cycle {verb}": ("", "") for verb in CYCLE},
    "cycle confirm": ("7", ""),
    "cycle demote": ("7", ""),
    "fidelity": ("run.toml", ""),
    "rewards explain": ("x", ""),
    "rewards score": ("x", ""),
    "bench seal": ("suite", ""),
    "bench run": ("suite --url m@http://127.0.0.1:9/v1", "practice"),
    "bench mine": ("repo --out mined", ""),
    "bench refresh": ("suite", ""),
    "bench looks": ("--versions 1 --directory runs/demo", "train"),
    "bench calibrate": ("m@http://127.0.0.1:9/v1", ""),
    "bench pairs": ("suite --out pairs", ""),
    "data build": ("corpus.toml --out corpus", "data"),
    "pretrain": ("pretrain.toml", "train"),
    "select": ("repo --code repo", "train"),
    "acp": ("", "code"),
    "search query": ("header --directory repo", ""),
    "search serve": ("--model minilm", "search"),
    "tasks build": ("suite", ""),
    "tasks mine": ("repo --out mined", "practice"),
    "tasks pack": ("suite packed.jsonl", ""),
    "team init": ("--engine http://127.0.0.1:9 --model m --file teams/team.toml", ""),
    "team up": ("--file teams/team.toml", "train"),
    "team add": ("ada --file teams/team.toml", ""),
    "team status": ("--file teams/team.toml", ""),
    "team remove": ("ada --file teams/team.toml", ""),
    "join": ("http://127.0.0.1:9 join_x", ""),
    "keys add": ("ann", ""),
    "keys list": ("", ""),
    "keys revoke": ("x", ""),
    "consent show": ("", ""),
    "consent set": ("yes --user ann", ""),
    "purge": ("--user ann", ""),
    "export": ("sessions", ""),
    "import": ("codex none --user ann", ""),
    "store info": ("", ""),
    "store compact": ("--older-than 9", ""),
    "store expire": ("--older-than 9", ""),
    "doctor": ("", "practice"),
    "weights list": ("objects", "train"),
    "weights collect": ("objects", "train"),
    "weights mirror": ("objects other", "train"),
    "weights import": ("model.gguf imported", "train"),
    "weights draft": ("imported draft", "train"),
}
"""The arguments with which each command begins its work, and the extra that it names, if it needs one."""


def core() -> set[str]:
    """Return the distributions that the core alone brings."""
    found, waiting = set[str](), ["ostinato"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needed = map(Requirement, distribution(name).requires or ())
            waiting += [
                each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return found


def environment(folder: Path) -> Path:
    """Make an environment with links to the core's packages, and return its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "ostinato.pth").write_text("\n".join(str(ROOT / name) for name in ("src", "lab")))
    for name in core() - {"ostinato"}:
        here = distribution(name)
        for top in {file.parts[0] for file in here.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(here.locate_file(top)))
    return folder / "bin/python"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Return the exit status and the output of each command."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run(["git", "init", "-q", "repo"], cwd=folder, check=True)
    provide(generate("fix", "seeds", 1), folder / "suite" / "task")
    (folder / "run.toml").write_text("seed = 1\n")
    (folder / "sft.toml").write_text('start = "repo"\n[sources.own]\ntasks = "suite"\n')
    calls = [[*name.split(), *arguments.split()] for name, (arguments, _) in CALLS.items()]
    command = [environment(folder / "python"), "-c", DRIVER, json.dumps(calls)]
    home = {
        **os.environ,
        "HOME": str(folder),
        "COLUMNS": "2000",
        "OSTINATO_KEY": "k",
        "OSTINATO_JUDGE_KEY": "k",
    }
    done = subprocess.run(
        command, cwd=folder, env=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    outputs = [(folder / f"{number}.out").read_text() for number in range(len(calls))]
    return dict(zip(CALLS, zip(map(int, done.stdout.split()), outputs, strict=True), strict=True))


def leaves(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not groups:
        yield " ".join(words)
    for group in groups:
        for name, each in group.choices.items():
            yield from leaves(each, (*words, name))


def test_every_command_is_tried() -> None:
    assert set(leaves(cli.whole_parser())) == set(CALLS)


def test_a_command_works_or_names_its_extra_in_one_sentence(told: dict[str, tuple[int, str]]) -> None:
    for name, (status, text) in told.items():
        assert status in (0, 1, 2) and "Traceback" not in text and "usage:" not in text, (name, status, text)
        if extra := CALLS[name][1]:
            sentences = [line for line in text.splitlines() if f"[{extra}]" in line and "pip install" in line]
            assert len(sentences) == 1 or name == "doctor", (name, text)
            assert status == 2 or name == "doctor", (name, text)
        else:
            assert "pip install" not in text, (name, text)


def test_the_advice_names_extras_that_there_are() -> None:
    assert set(extras.EXTRAS.values()) <= EXTRAS
    assert extras.install("practice") == f"pip install -e {shlex.quote(f'{ROOT}[practice]')}"
