"""Sealed tasks follow from the run's secret and the claim, are opened once for it, and are counted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.loop.test_cycle import scene

from ostinato.loop.config import RunConfig, SourceConfig, TasksConfig
from ostinato.loop.results import Claimed
from ostinato.loop.run import Run
from ostinato.loop.stages.problems import (
    HELD_OUT_SEED,
    KEY_FILE,
    has_shared_tasks,
    held_out,
    sealed,
)
from ostinato.loop.stages.sealed import Opening, claim, claim_stage, opened, openings
from ostinato.store import Store
from ostinato.tasks.pebble import generate, write
from ostinato.tasks.source import SourceError
from ostinato.types import Task

CONFIG = RunConfig(tasks=TasksConfig(held_out={"seeds": 4, "pairs": 3}))
CLAIM = "practice helps"


def keys(tasks: Sequence[Task]) -> list[str]:
    return [task.key for task in tasks]


def test_each_run_draws_its_own_tasks_and_keeps_them(tmp_path: Path) -> None:
    one, other = (Run(directory=tmp_path / name) for name in ("one", "other"))
    drawn = keys(held_out(CONFIG, one))
    assert len(drawn) == 7 and keys(held_out(CONFIG, one)) == drawn
    assert not set(drawn) & set(keys(held_out(CONFIG, other)))
    assert (one.directory / KEY_FILE).stat().st_mode & 0o077 == 0


def test_sealed_tasks_are_those_of_the_claim_and_none_by_which_the_run_develops(tmp_path: Path) -> None:
    run = Run(directory=tmp_path / "run")
    development, first = keys(held_out(CONFIG, run)), keys(sealed(CONFIG, run, CLAIM))
    assert keys(sealed(CONFIG, run, CLAIM)) == first and len(first) == 7
    others = keys(sealed(CONFIG, run, "it serves cheaper"))
    assert not set(first) & set(development) and not set(first) & set(others)


def test_a_run_that_began_with_the_shared_tasks_goes_on_with_them_and_says_so(tmp_path: Path) -> None:
    (old := Run(directory=tmp_path / "old")).directory.mkdir()
    (old.tasks / "held-out").mkdir(parents=True)
    assert has_shared_tasks(old)
    assert f"-{HELD_OUT_SEED}" in held_out(CONFIG, old)[0].id
    assert not set(keys(sealed(CONFIG, old, CLAIM))) & set(keys(held_out(CONFIG, old)))
    assert has_shared_tasks(Run(directory=tmp_path / "old")), "the next process knows it too"
    assert not has_shared_tasks(Run(directory=tmp_path / "new"))


def test_a_source_with_too_few_tasks_for_both_is_refused(tmp_path: Path) -> None:
    for number in range(3):
        write(generate("fix", "pairs", number), tmp_path / "tasks" / f"task-{number}")
    mine = {"mine": SourceConfig(path=tmp_path / "tasks")}
    config, run = RunConfig(tasks=TasksConfig(sources=mine, held_out={"pairs": 2})), Run(directory=tmp_path)
    assert len(held_out(config, run)) == 2
    with pytest.raises(SourceError, match=r"besides the 2 by which the run develops, and the sources have 1"):
        sealed(config, run, CLAIM)


def test_every_opening_is_counted_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    first = Opening(claim=CLAIM, first=0, newest=3, tasks="9f")
    assert [opened(store, first), opened(store, replace(first, claim="another")), opened(store, first)] == [
        1,
        2,
        1,
    ]
    assert [each.claim for each in openings(store)] == [CLAIM, "another"]
    store.close()


@pytest.mark.slow
async def test_a_claim_is_measured_on_the_split_without_overlap_first(tmp_path: Path) -> None:
    async with scene(tmp_path, lambda version: 1.0 if version else 0.0) as resources:
        tasks = replace(CONFIG.tasks, held_out={"seeds": 2, "pairs": 3})
        bench = replace(resources.config.bench, claim=CLAIM)
        resources.config = replace(resources.config, tasks=tasks, bench=bench)
        stage = claim_stage(CLAIM)
        claimed = await resources.stage(stage, Claimed, lambda: claim(resources, 0, 1))
        again = await resources.stage(stage, Claimed, lambda: claim(resources, 0, 1))
        assert claimed == again and len(openings(resources.store)) == 1
    assert claimed.headline.startswith(f"claim 1 on this record, {CLAIM!r}: sealed pairs 0% → 100%, +")
    assert claimed.tasks == 5 and list(claimed.changes) == ["seeds", "pairs"]
