"""Sources of tasks: what they yield depends on the split and the seed alone, and each key comes once."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from ostinato.tasks.base import TaskError
from ostinato.tasks.pebble import PebbleSource, generate, write
from ostinato.tasks.source import TRAIN, FolderSource, MixtureSource, Problem, SourceError, mixture


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Five tasks of the split `train` and one of `seeds`, one of them a level deeper."""
    for seed in range(4):
        write(generate("fix", TRAIN, seed), tmp_path / "dataset" / f"task-{seed}")
    write(generate("question", TRAIN, 9), tmp_path / "dataset" / "more" / "task-9")
    write(generate("fix", "seeds", 1), tmp_path / "dataset" / "held")
    return tmp_path / "dataset"


def keys(problems: Iterator[Problem], count: int = 99) -> list[str]:
    return [problem.key for problem in islice(problems, count)]


def test_a_folder_yields_each_task_once_in_the_order_of_the_seed(dataset: Path) -> None:
    source = FolderSource(dataset)
    assert source.splits == ("seeds", TRAIN)
    first = keys(source.problems(TRAIN, 1))
    assert first == keys(FolderSource(dataset).problems(TRAIN, 1)) and len(set(first)) == 5
    assert any(keys(source.problems(TRAIN, seed)) != first for seed in range(2, 9))
    assert keys(source.problems("names", 1)) == []


def test_a_task_of_a_folder_is_linked_where_it_was_given(dataset: Path, tmp_path: Path) -> None:
    (problem,) = FolderSource(dataset).problems("seeds", 0)
    for _ in range(2):
        task = problem.provide(tmp_path / "given")
        assert task.directory == dataset / "held"
    assert (tmp_path / "given" / task.id).resolve() == task.directory.resolve()


def test_one_task_is_a_source_too(dataset: Path) -> None:
    assert len(FolderSource(dataset / "held").tasks) == 1


def test_foreign_tasks_take_the_split_that_is_given_to_them(dataset: Path) -> None:
    settings = dataset / "held" / "task.toml"
    settings.write_text(settings.read_text().split("[metadata.ostinato]")[0])
    assert "imported" in FolderSource(dataset).splits
    assert len(keys(FolderSource(dataset, foreign=TRAIN).problems(TRAIN, 0))) == 6


def test_an_empty_or_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no task"):
        FolderSource(tmp_path)
    with pytest.raises(TaskError, match="no such directory"):
        FolderSource(tmp_path / "none")


def test_pebbles_come_without_end_and_are_written_when_they_are_provided(tmp_path: Path) -> None:
    source = PebbleSource()
    drawn = list(islice(source.problems(TRAIN, 100), 30))
    assert len({problem.key for problem in drawn}) == 30
    assert drawn[0].provide(tmp_path).key == drawn[0].key and list(tmp_path.iterdir())
    assert list(source.problems("no such split", 1)) == []


def test_a_mixture_draws_by_weight_and_goes_on_with_what_is_left(dataset: Path) -> None:
    folder, source = FolderSource(dataset), PebbleSource()
    mixed = MixtureSource([(source, 3.0), (folder, 1.0)])
    assert set(mixed.splits) == set(source.splits)
    drawn = keys(mixed.problems(TRAIN, 7), 60)
    assert drawn == keys(mixed.problems(TRAIN, 7), 60)
    of_the_folder = {task.key for task in folder.tasks}
    assert sum(key in of_the_folder for key in drawn[:12]) >= 1
    assert {key for key in drawn if key in of_the_folder} == set(keys(folder.problems(TRAIN, 7)))


def test_one_source_alone_is_itself_and_a_weight_of_zero_is_refused() -> None:
    source = PebbleSource()
    assert mixture({"pebbles": (source, 1.0)}) is source
    with pytest.raises(SourceError, match="above zero"):
        mixture({"a": (source, 1.0), "b": (source, 0.0)})


def test_the_text_of_a_folder_has_requests_and_repositories(dataset: Path) -> None:
    text = "\n".join(FolderSource(dataset).text(3, 1, Random(1)))
    assert "def test_" in text and "import " in text
    assert text == "\n".join(FolderSource(dataset).text(3, 1, Random(1)))
