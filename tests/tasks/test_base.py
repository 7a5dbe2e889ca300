import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.tasks.base import IMPORTED, TaskError, load_task
from ostinato.tasks.pebble import KINDS, SPLITS, generate, write
from ostinato.types import Grade


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(generate("fix", "train", 1), tmp_path / "task")
    return tmp_path / "task"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_written_task_reads_back_the_same(tmp_path: Path, kind: str, split: str) -> None:
    written = write(generate(kind, split, 5), tmp_path / "task")
    assert load_task(tmp_path / "task") == written


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (shutil.rmtree, "no such directory"),
    "no instruction": (lambda d: (d / "instruction.md").unlink(), "instruction.md is missing"),
    "broken instruction": (
        lambda d: (d / "instruction.md").write_bytes(b"\xff\xfe fix it"),
        "instruction.md is not UTF-8",
    ),
    "empty instruction": (lambda d: (d / "instruction.md").write_text(" \n"), "instruction.md is missing"),
    "a suite without tests": (
        lambda d: (d / "task.toml").write_text('[metadata.ostinato.suite]\nrunner = "pytest"'),
        "a suite without test_ids",
    ),
    "a suite and a check": (
        lambda d: (d / "task.toml").write_text(
            '[metadata.ostinato.suite]\nrunner = "pytest"\n[metadata.ostinato.check]\ncommand = "true"'
        ),
        "both `suite` and `check`",
    ),
    "a suite's test in no file": (
        lambda d: (d / "task.toml").write_text(
            '[metadata.ostinato]\ntest_ids = ["t/a.py::x"]\n[metadata.ostinato.suite]\nrunner = "pytest"'
        ),
        "missing files: ['t/a.py']",
    ),
    "no settings": (lambda d: (d / "task.toml").unlink(), "task.toml is missing"),
    "broken settings": (lambda d: (d / "task.toml").write_text("a = "), "task.toml is not TOML"),
    "binary settings": (lambda d: (d / "task.toml").write_bytes(b"\xff\xfe"), "task.toml is not TOML"),
    "metadata is no table": (lambda d: (d / "task.toml").write_text("metadata = 3"), "`metadata`"),
    "ids are no list": (
        lambda d: (d / "task.toml").write_text('[metadata.ostinato]\ntest_ids = "all"'),
        "`test_ids`",
    ),
    "ids name a missing file": (
        lambda d: (d / "task.toml").write_text('[metadata.ostinato]\ntest_ids = ["test_x.py::test_a"]'),
        "test_x.py",
    ),
    "timeout below zero": (
        lambda d: (d / "task.toml").write_text("[verifier]\ntimeout_sec = -1"),
        "timeout_sec is -1",
    ),
    "memory that is no number": (
        lambda d: (d / "task.toml").write_text('[environment]\nmemory_mb = "2G"'),
        "memory_mb is '2G'",
    ),
    "no repository": (lambda d: shutil.rmtree(d / "environment" / "repo"), "environment/repo is missing"),
    "no git": (lambda d: shutil.rmtree(d / "environment" / "repo" / ".git"), "has no .git"),
    "no tests": (lambda d: (d / "tests" / "test_hidden.py").unlink(), "no hidden tests"),
    "no tests folder": (lambda d: shutil.rmtree(d / "tests"), "no hidden tests"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_error_names_directory_fault_and_remedy(directory: Path, fault: str) -> None:
    damage, problem = FAULTS[fault]
    damage(directory)
    with pytest.raises(TaskError) as raised:
        load_task(directory)
    assert str(directory) in str(raised.value) and problem in str(raised.value)
    assert "; " in str(raised.value)
    assert raised.value.directory == directory


def test_a_foreign_task_needs_no_table_of_ostinato(directory: Path) -> None:
    (directory / "task.toml").write_text('schema_version = "1.1"\n[verifier]\ntimeout_sec = 9\n')
    (directory / "tests" / "test_hidden.py").write_text(
        "def test_a(): ...\ndef helper(): ...\ndef test_b(): ...\n"
    )
    task = load_task(directory)
    assert (task.id, task.kind, task.split, task.timeout_s) == ("task", IMPORTED, IMPORTED, 9.0)
    assert task.test_ids == ("test_hidden.py::test_a", "test_hidden.py::test_b")
    assert task.protected == () and task.metadata.keys() == {"undecided"}
    assert len(task.undecided) == 2 and task.grade is Grade.GUARDED  # neither asserts anything


@pytest.mark.parametrize("text", ["x = 1\n", "def test_a(:\n"])
def test_a_foreign_task_without_a_readable_test_function_is_refused(directory: Path, text: str) -> None:
    (directory / "task.toml").write_text("")
    (directory / "tests" / "test_hidden.py").write_text(text)
    with pytest.raises(TaskError, match=r"test function|not Python"):
        load_task(directory)


def test_a_suite_names_tests_by_their_path_in_the_repository(directory: Path) -> None:
    (directory / "tests/suite/t").mkdir(parents=True)
    (directory / "tests/suite/t/test_a.py").write_text("def test_x(): pass\n")
    (directory / "task.toml").write_text(
        '[metadata.ostinato]\ntest_ids = ["t/test_a.py::test_x"]\n'
        '[metadata.ostinato.suite]\nrunner = "pytest"\n'
    )
    task = load_task(directory)
    assert task.test_ids == ("t/test_a.py::test_x",)
    assert task.metadata["suite"] == {"runner": "pytest"}
