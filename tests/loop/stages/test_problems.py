"""Practice leaves out the tasks that its reward does not pay for, and a run says which and why."""

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from ostinato.loop.config import PracticeConfig, RunConfig, SourceConfig, TasksConfig
from ostinato.loop.stages.problems import paid, unpaid
from ostinato.tasks.packed import PackedSource, pack
from ostinato.tasks.pebble import generate, write
from ostinato.tasks.source import TRAIN, FolderSource, SourceError
from ostinato.types import Grade

WAYS = {
    Grade.JUDGED: "",
    Grade.GUARDED: '[metadata.ostinato.suite]\nrunner = "pytest"\n',
    Grade.FORGEABLE: '[metadata.ostinato.check]\ncommand = "make test"\nreport = "junit"\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six guarded tasks, one forgeable and two judged."""
    grades = [Grade.GUARDED] * 6 + [Grade.FORGEABLE] + [Grade.JUDGED] * 2
    for number, grade in enumerate(grades):
        task = write(generate("fix", TRAIN, number), tmp_path / "tasks" / f"task-{number}")
        for path in task.tests.glob("test_*.py"):
            (task.tests / "suite").mkdir(exist_ok=True)
            (task.tests / "suite" / path.name).write_bytes(path.read_bytes())
        with (task.directory / "task.toml").open("a") as settings:
            settings.write(f"\n{WAYS[grade]}")
    return tmp_path / "tasks"


def run_on(path: Path, **practice: Path) -> RunConfig:
    sources = {"mine": SourceConfig(path=path)}
    return RunConfig(tasks=TasksConfig(sources=sources), practice=PracticeConfig(**practice))


def test_what_pays_nothing_is_named_with_the_reason_and_left_out(folder: Path) -> None:
    config = run_on(folder)
    guarded, forgeable = unpaid(config)
    assert re.search(r"6 of 9 stored tasks pay nothing .* `guarded` .*from `judged` on: .* 1 more", guarded)
    assert re.search(r"1 of 9 stored tasks pay nothing .* `forgeable` ", forgeable)
    assert {problem.grade for problem in islice(paid(config), 2)} == {Grade.JUDGED}


def test_a_file_may_pay_for_less(folder: Path, tmp_path: Path) -> None:
    reward = tmp_path / "mine.toml"
    reward.write_text('name = "mine"\nlowest_grade = "guarded"\n[weights]\nsolved = 1.0\n')
    config = run_on(folder, reward=reward)
    (forgeable,) = unpaid(config)
    assert "from `guarded` on" in forgeable
    assert len([*islice(paid(config), 8)]) == 8


def test_practice_that_can_pay_for_nothing_is_refused(folder: Path) -> None:
    config = run_on(folder)
    low = {problem.id for problem in FolderSource(folder).stored(TRAIN) if problem.grade is Grade.GUARDED}
    alone = folder.parent / "alone"
    alone.mkdir()
    for task in FolderSource(folder).tasks:
        if task.id in low:
            (alone / task.directory.name).symlink_to(task.directory)
    config = replace(config, tasks=TasksConfig(sources={"mine": SourceConfig(path=alone)}))
    with pytest.raises(SourceError, match="no task that its reward pays for: 6 of 6"):
        unpaid(config)
    mixed = {"mine": SourceConfig(path=alone), "pebbles": SourceConfig()}
    assert len(unpaid(replace(config, tasks=TasksConfig(sources=mixed)))) == 1
    assert unpaid(RunConfig()) == []


def test_a_packed_task_has_the_grade_that_it_has_when_it_is_loaded(folder: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    for name, tested in (("with", True), ("without", False)):
        task = write(generate("fix", TRAIN, 20 + tested), foreign / name)
        settings = task.directory / "task.toml"
        settings.write_text(settings.read_text().split("[metadata.ostinato]")[0])
        (task.directory / "instruction.md").write_text(f"do it {name}")
        for path in () if tested else task.tests.glob("test_*.py"):
            path.unlink()
    tasks = (*FolderSource(folder).tasks, *FolderSource(foreign).tasks)
    (tmp_path / "all.jsonl").write_text("\n".join(map(pack, tasks)))
    packed = PackedSource(tmp_path / "all.jsonl")
    grades = {problem.id: problem.grade for split in packed.splits for problem in packed.stored(split)}
    assert grades == {task.id: task.grade for task in tasks}
    assert list(grades.values()).count(Grade.FORGEABLE) == 2


def test_a_task_whose_tests_let_the_code_decide_is_named_with_the_line(tmp_path: Path) -> None:
    weak, strong = (write(generate("fix", TRAIN, n), tmp_path / "tasks" / f"task-{n}") for n in (30, 31))
    text = (weak.tests / "test_hidden.py").read_text()
    module = weak.protected[0].removeprefix("test_").removesuffix(".py")
    asserted = re.sub(r"== .*", f"== {module}.WANTED", f"import {module}\n{text}")
    (weak.tests / "test_hidden.py").write_text(asserted)
    packed = tmp_path / "packed.jsonl"
    packed.write_text("".join(f"{pack(each)}\n" for each in (weak, strong)))
    for config in (run_on(tmp_path / "tasks"), run_on(packed)):
        (said,) = unpaid(config)
        assert f"{weak.id} (test_hidden.py::test_" in said and "both sides of a comparison" in said
        assert {problem.id for problem in islice(paid(config), 1)} == {strong.id}
