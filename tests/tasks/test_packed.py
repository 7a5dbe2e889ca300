"""A packed dataset is written out as the same tasks, and a hostile line is refused."""

import json
from pathlib import Path
from random import Random

import pytest

from ostinato.cli import main
from ostinato.loop.config import EXAMPLE_TASKS, SourceConfig, TasksConfig, sources
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.packed import PackedSource, pack
from ostinato.tasks.pebble import PebbleSource, generate, write
from ostinato.tasks.source import SourceError
from ostinato.tasks.teaching.demonstrate import demonstrator


def test_a_task_comes_back_to_the_byte(tmp_path: Path) -> None:
    task = write(generate("fix", "train", 1), tmp_path / "tasks" / "pebble-fix-train-1")
    (task.tests / "data.bin").write_bytes(b"\xff\0")
    assert main(["tasks", "pack", str(tmp_path / "tasks"), str(tmp_path / "all.jsonl")]) == 0
    source = PackedSource(tmp_path / "all.jsonl")
    assert source.splits == ("train",)
    (problem,) = source.problems("train", 1)
    for _ in range(2):
        again = problem.provide(tmp_path / "out")
    assert (again.key, again.test_ids) == (task.key, task.test_ids)
    for path in task.directory.rglob("*"):
        if path.is_file():
            assert (again.directory / path.relative_to(task.directory)).read_bytes() == path.read_bytes()
    assert any("def " in text for text in source.text(1, 1, Random(1)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "../evil"}, "leads out"),
        ({"files": {"../evil": ""}}, "leads out"),
        ({"files": {"environment/repo/../../../evil": ""}}, "leads out"),
        ({"files": 3}, "not a packed task"),
        ({"key": None}, ""),
    ],
)
def test_a_hostile_line_is_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    row = json.loads(pack(write(generate("fix", "train", 1), tmp_path / "task")))
    text = json.dumps({name: value for name, value in {**row, **change}.items() if value is not None})
    (tmp_path / "all.jsonl").write_text(text)
    with pytest.raises(SourceError, match=reason or "not a packed task"):
        PackedSource(tmp_path / "all.jsonl")


def test_a_file_that_is_empty_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("")
    with pytest.raises(SourceError, match="holds no task"):
        PackedSource(tmp_path / "all.jsonl")
    with pytest.raises(SourceError, match="cannot be read"):
        PackedSource(tmp_path / "none.jsonl")
    (tmp_path / "all.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(SourceError, match=r"all.jsonl cannot be read: 'utf-8'"):
        PackedSource(tmp_path / "all.jsonl")
    assert main(["tasks", "pack", str(tmp_path), str(tmp_path / "all.txt")]) == 2


async def test_the_example_tells_before_from_after(tmp_path: Path) -> None:
    source = PackedSource(EXAMPLE_TASKS)
    assert source.splits == ("mined",)
    problems = list(source.problems("mined", 1))
    assert len(problems) == 12
    tasks = [problem.provide(tmp_path) for problem in problems]
    assert all(demonstrator(task, Random(1)) is not None for task in tasks)
    backend = ProcessBackend()
    verifier = Verifier(backend, variations=0)
    for task in tasks[:2]:
        patch = (task.directory / "solution" / "solution.patch").read_text()
        path = patch.splitlines()[0].rpartition(" b/")[2]
        (whole,) = {
            (other.repo / path).read_bytes()
            for other in tasks
            if f"b/{path}" not in (other.directory / "solution" / "solution.patch").read_text()
        }
        assert not (await verifier.verify(task, {})).passed
        assert (await verifier.verify(task, {path: whole})).passed
    await backend.aclose()


def test_the_example_changes_nothing_of_what_training_draws() -> None:
    both = sources(TasksConfig(sources={"pebbles": SourceConfig(), "example": SourceConfig()}))
    alone = PebbleSource()
    mixed, plain = both.problems("train", 7), alone.problems("train", 7)
    assert [next(mixed).key for _ in range(20)] == [next(plain).key for _ in range(20)]
    assert list(both.text(5, 1, Random(1))) == list(alone.text(5, 1, Random(1)))
