"""`ostinato cycle` over a real run: its words, its state, and that it goes on wherever it was killed."""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.foreign import checkpoint
from sqlalchemy import select
from tests.loop.test_people_cycle import SESSIONS, served, turned, work

from ostinato.cli import main
from ostinato.config import read
from ostinato.demo.cycle_commands import _seconds
from ostinato.loop.config import RunConfig
from ostinato.loop.run import Run, write_whole
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log, log_cycle, said_now
from ostinato.store.sql import schema
from ostinato.types import Decision, Verdict

PATIENCE_S = 300
SOON = """
name = "soon"
train_after_s = 0.5
[parts.kept]
weight = 1.0
[parts.complaint]
weight = -0.3
"""
"""A definition whose sessions are trained on half a second after their end."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(directory=tmp_path)
    store = run.open_store()
    log_cycle(store, said_now("cycle", CycleAction.STAGE_BEGAN, "cycle-1", "gate"))
    store.close()
    return run


def test_a_word_is_logged_with_its_author_and_reason(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--directory", str(run.directory), "--by", "ada", "--reason", "a holiday"]
    assert main(["cycle", "pause", *words]) == 0
    assert main(["cycle", "status", "--directory", str(run.directory)]) == 0
    assert "cycle-1, gate, paused" in capsys.readouterr().out
    assert main(["cycle", "status", "--directory", str(run.directory), "--json"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert state["paused"] and state["log"][-1]["by"] == "ada" and state["log"][-1]["detail"] == "a holiday"
    assert main(["cycle", "resume", *words]) == 0


def test_the_status_names_the_trial_beside_the_cycle(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A word about a candidate is then about the one in the trial."""
    store = run.open_store()
    for action, cycle, detail in (
        (CycleAction.TRIAL_OPENED, "trial-of-4", "version 4 against version 0"),
        (CycleAction.STAGE_BEGAN, "trial-of-4", "release"),
        (CycleAction.STAGE_BEGAN, "cycle-2", "collect"),
    ):
        log_cycle(store, said_now("cycle", action, cycle, detail))
    where = ["--directory", str(run.directory)]
    assert main(["cycle", "status", *where]) == 0
    assert capsys.readouterr().out.startswith("cycle-2, collect\nbeside it trial-of-4, release\n")
    assert main(["cycle", "abort", *where, "--by", "ada"]) == 0
    assert cycle_log(store)[-1].cycle == "trial-of-4"
    log_cycle(store, said_now("cycle", CycleAction.TRIAL_CLOSED, "trial-of-4", "roll_back: ada"))
    assert main(["cycle", "abort", *where, "--by", "ada"]) == 0
    assert cycle_log(store)[-1].cycle == "cycle-2"
    store.close()


def test_a_word_that_nothing_can_obey_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cycle", "promote", "--directory", str(run.directory)]) == 2
    assert "no trial is under way" in capsys.readouterr().err


def test_a_promotion_is_settled_once_and_the_status_says_by_whom(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    store = run.open_store()
    for version, known in ((7, {"replaced": 3}), (9, {})):
        id_ = f"e{version}"
        won = Verdict(version=version, decision=Decision.PROMOTE, reason="better", id=id_)
        store.add_verdict(replace(won, evidence={"release": id_, **known}))
    store.close()
    where = ["--directory", str(run.directory)]
    assert main(["cycle", "demote", "9", *where]) == 2
    assert "nothing tells which version 9 replaced" in capsys.readouterr().err
    assert main(["cycle", "demote", "7", *where, "--by", "ada", "--reason", "complaints"]) == 0
    assert "version 7: ada said demote: complaints" in capsys.readouterr().out
    assert main(["cycle", "confirm", "7", *where, "--by", "bob"]) == 2
    assert "settled before: ada said demote" in capsys.readouterr().err
    assert main(["cycle", "confirm", "8", *where]) == 2
    assert main(["cycle", "status", *where]) == 0
    text = capsys.readouterr().out
    assert "version 7: demoted: ada said demote: complaints" in text and "bob  confirm" in text


@pytest.mark.parametrize("words", [["status"], ["pause"], []])
def test_a_folder_without_a_run_is_named(tmp_path: Path, words: list[str]) -> None:
    assert main(["cycle", *words, "--directory", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("30m", 1800), ("5h", 18_000), ("1.5d", 129_600)])
def test_durations(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


async def cycle(folder: Path, *, killed_in: str = "") -> int | None:
    """Run one cycle; kill it once it has begun that stage. Return its exit status."""
    command = ("-m", "ostinato", "cycle", "--directory", str(folder), "--cycles", "1")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=quiet, stderr=quiet)
    began, store = time.time(), Store.open(folder / "store.db")
    try:
        async with asyncio.timeout(PATIENCE_S):
            while process.returncode is None and killed_in:
                entries = cycle_log(store, since=began)
                if any((e.action, e.detail) == (CycleAction.STAGE_BEGAN, killed_in) for e in entries):
                    os.kill(process.pid, signal.SIGKILL)
                    break
                await asyncio.sleep(0.05)
            return await process.wait()
    finally:
        store.close()


@pytest.mark.slow
async def test_a_cycle_that_is_killed_in_any_stage_goes_on(tmp_path: Path) -> None:
    """Real `kill -9` of the process while it collects, trains and measures; nothing is trained on twice."""
    folder = tmp_path / "run"
    (tmp_path / "soon.toml").write_text(SOON)
    settings = {
        "sandbox": {"backend": "process"},
        "model": {"path": str(checkpoint(tmp_path / "llama", "Llama"))},
        "engine": {"slots": 8, "context": 3072},
        "tasks": {"held_out": {"seeds": 2}},
        "harness": {"profile": "short", "max_context": 2048, "max_turns": 2},
        "bench": {"passes": 1},
        "live": {
            "developers": "people",
            "sessions": SESSIONS,
            "ab_sessions": 4,
            "canary_sessions": 0,
            "versions": 1,
            "reward": str(tmp_path / "soon.toml"),
        },
        "schedule": {"stages": ["after"]},
    }
    config = read(RunConfig, settings, "the test")
    await turned(folder, config)
    write_whole(Run(directory=folder).report, "{}")  # as `ostinato run` leaves it
    store = Store.open(folder / "store.db")
    store.accounts.set_consent(user="local", granted=True, by="local")
    async with served(folder) as (url, key):
        await work(url, key, tmp_path / "tasks", config)
    for stage in ("collect", "refine", "gate"):
        assert await cycle(folder, killed_in=stage) == -signal.SIGKILL
    assert await cycle(folder) == 0
    assert await cycle(folder) == 2, "its one cycle is done, and nothing starts afresh"
    log = cycle_log(store)
    done = Counter(entry.detail for entry in log if entry.action is CycleAction.STAGE_DONE)
    assert done["collect"] == done["refine"] == done["gate"] == 1
    assert [entry.cycle for entry in log if entry.action is CycleAction.CYCLE_DONE] == ["cycle-1"]
    with store.database.read() as connection:
        prompts = list(connection.scalars(select(schema.trainings.c.prompt)))
    assert len(prompts) == len(set(prompts)) == SESSIONS
    (verdict,) = store.verdicts()
    assert verdict.version == 1 and not verdict.decision.promotes
    (arm,) = [each for each in store.arms() if each.share > 0]
    assert arm.version == 0  # never the rejected weights
    store.close()
