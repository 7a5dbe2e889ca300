"""The whole circle in small, with processes killed in the middle; `make wheel` kills and resumes a run.

Covers loop/pipeline.py, loop/stages/problems.py,
loop/stages/teach.py, loop/stages/practise.py, demo/commands.py and demo/report.py.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ostinato.config import load
from ostinato.demo.developers import live_traffic
from ostinato.demo.report import as_json, finish
from ostinato.loop.config import HELD_OUT, RunConfig
from ostinato.loop.folder import open_run, owned
from ostinato.loop.pipeline import run_pipeline
from ostinato.loop.show import Show
from ostinato.store import Store

pytestmark = pytest.mark.slow
SMALL = Path(__file__).parent / "small.toml"


def pids(module: str, directory: Path) -> list[int]:
    """Processes of `module` that work for the run in `directory`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            if module in words and any(str(directory) in word for word in words):
                found.append(int(entry.name))
    return found


async def turn(directory: Path, *overrides: str) -> dict[str, Any]:
    config = load(RunConfig, SMALL, overrides)
    console = Console(quiet=True)
    with owned(directory, "run") as run:
        opened = open_run(run, config, fresh=False)
        result = await run_pipeline(config, run, Show(console), live_traffic, resumed=opened.resumed)
        finish(run, result, console)
    return as_json(result)


async def kill_each_once(directory: Path) -> list[str]:
    """Kills the gateway, the practising engine and the learner once each, when practice has begun."""
    while not (directory / "learner-practice" / "learner.jsonl").exists():
        await asyncio.sleep(0.05)
    killed = []
    for module in ("ostinato.engine.server", "ostinato.gateway.server", "ostinato.train.learner"):
        for pid in pids(module, directory):
            os.kill(pid, signal.SIGKILL)
            killed.append(module)
        await asyncio.sleep(0.7)
    return killed


async def test_the_circle_turns_though_every_process_is_killed_once(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    killing = asyncio.create_task(kill_each_once(directory))
    report = await turn(directory)
    assert len(set(await killing)) >= 2
    whole = report["integrity"]
    assert whole["turns_unaccounted"] == 0
    assert whole["prompts_trained_twice"] == 0
    assert whole["digest_mismatches"] == 0
    assert whole["requests_failed_by_swap"] == 0
    for when in ("before", "after"):
        held = report["held_out"][when]
        assert set(held) == {*HELD_OUT, "mined"}
        assert held["seeds"]["n"] == 12
    (cycle,) = report["cycles"]  # of a dozen tasks nothing is shown: tests/loop/test_cycle.py has the rest
    assert cycle["live"]["sessions"] > 0 and cycle["live"]["signals"] > 0
    assert cycle["gate"]["decision"] in {"hold", "roll_back"} and report["trials"] == []
    assert (cycle["champion"], cycle["candidate"], report["served"]["version"]) == (4, 5, 4)
    assert Store.open(directory / "store.db").accounts.keys() == []  # a person's keys are not lost among ours
    written = json.loads((directory / "report.json").read_text())
    assert written["seed"] == report["seed"]
    assert all((directory / f"{name}.png").stat().st_size > 1000 for name in ("practice", "solved"))
    assert "| split | after teaching | after practice |" in (directory / "report.md").read_text()
    assert "Held-out tasks solved" in (directory / "report.html").read_text()


def in_the_background() -> None:
    """Ignore SIGINT, as a shell does for a command that ends in `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "ostinato.cli", "demo", "--directory", str(directory)]
    process = await asyncio.create_subprocess_exec(
        *command, "--set", "sandbox.backend=process", stdout=subprocess.DEVNULL, preexec_fn=in_the_background
    )
    while not list(directory.glob("tasks/lessons/pebble-*")):
        assert process.returncode is None
        await asyncio.sleep(0.05)
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 300) == 130
    for module in ("ostinato.train.sft", "ostinato.gateway.server"):
        assert not pids(module, directory)


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ostinato.cli", "demo", "--directory", str(tmp_path / "run")]
    done = subprocess.run([*command, "--set", "teach.step=3"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "teach.steps" in done.stderr
    assert not (tmp_path / "run").exists()
