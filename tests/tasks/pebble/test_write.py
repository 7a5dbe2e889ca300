import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ostinato.tasks.pebble import KINDS, SPLITS, Pebble, generate, write
from ostinato.tasks.teaching.visible_state import Failure, VisibleState
from ostinato.types import Task

ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env=ENVIRONMENT | environment
    )
    return done.stdout + done.stderr


def reward(task: Task, logs: Path) -> str:
    output = run("sh", str(task.tests / "test.sh"), cwd=task.directory, REPO=str(task.repo), LOGS=str(logs))
    return (logs / "reward.txt").read_text().strip() if logs.exists() else output


def solve(task: Task) -> str:
    return run("sh", str(task.directory / "solution" / "solve.sh"), cwd=task.directory, REPO=str(task.repo))


def test_the_layout_is_harbors(tmp_path: Path) -> None:
    task = write(generate("question", "train", 3), tmp_path / "task")
    files = {str(path.relative_to(task.directory)) for path in task.directory.rglob("*") if path.is_file()}
    wanted = {
        *("instruction.md", "task.toml", "environment/Dockerfile"),
        *("tests/test_hidden.py", "tests/test.sh", "solution/solve.sh"),
    }
    assert wanted == {name for name in files if not name.startswith("environment/repo")}
    settings = tomllib.loads((task.directory / "task.toml").read_text())
    assert settings["schema_version"] == "1.1"
    assert set(settings["metadata"]["ostinato"]) == {
        *("id", "kind", "split", "key", "test_ids", "protected", "answer", "intent", "cluster", "needs")
    }


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_solution_makes_the_gold_changes_and_no_other(tmp_path: Path, kind: str, split: str) -> None:
    pebble = generate(kind, split, 11)
    task = write(pebble, tmp_path / "task")
    output = solve(task)
    expected = pebble.files
    for change in pebble.changes:
        expected[change.path] = expected[change.path].replace(change.old, change.new)
    assert {p.name: p.read_text() for p in task.repo.iterdir() if p.is_file()} == expected
    assert output == (f"{pebble.targets[0].name} uses {pebble.answer}\n" if pebble.answer else "")


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_tests_fail_before_and_pass_after_the_solution(tmp_path: Path, kind: str) -> None:
    task = write(generate(kind, "larger", 2), tmp_path / "task")
    assert reward(task, tmp_path / "before") == ("1" if kind == "question" else "0")
    solve(task)
    assert reward(task, tmp_path / "after") == "1"


def test_hidden_tests_are_run_by_a_shell_script(tmp_path: Path) -> None:
    task = write(generate("fix", "seeds", 2), tmp_path / "task")
    assert reward(task, tmp_path / "before") == "0"
    solve(task)
    assert reward(task, tmp_path / "after") == "1"


def failures_in(output: str) -> list[Failure]:
    state = VisibleState()
    state.note("bash", {"command": "pytest"}, output)
    return state.failures


def one_of_each_family() -> list[Pebble]:
    pebbles: dict[str, Pebble] = {}
    for split in ("train", "families"):
        for seed in range(40):
            pebble = generate("fix", split, seed)
            pebbles.setdefault(pebble.targets[0].family.name, pebble)
    return list(pebbles.values())


@pytest.mark.parametrize("pebble", one_of_each_family(), ids=lambda pebble: pebble.targets[0].family.name)
def test_the_real_pytest_prints_the_evidence_in_one_line(tmp_path: Path, pebble: Pebble) -> None:
    task = write(pebble, tmp_path / "task")
    family, target = pebble.targets[0].family, pebble.targets[0]
    marks, header, failed = run("python", "-m", "pytest", cwd=task.repo).splitlines()
    got, wanted = (family.compute(option, family.visible) for option in (target.shown, target.wanted))
    assert (
        failed.replace("AssertionError: ", "")
        == f"FAILED test_{target.path}::test_{target.name} - assert {got!r} == {wanted!r}"
    )
    assert sorted(marks) == [".", ".", "F"]
    assert [f.wanted for f in failures_in(failed)] == [repr(wanted)]
    assert header == " short test summary info ".center(80, "=")


def test_a_green_run_prints_dots_only_and_leaves_no_trace(tmp_path: Path) -> None:
    task = write(generate("ambiguous", "train", 2), tmp_path / "task")
    assert run("python", "-m", "pytest", cwd=task.repo, PYTHONDONTWRITEBYTECODE="").strip() == ".."
    assert run("git", "status", "--porcelain", cwd=task.repo) == ""


def test_the_same_pebble_makes_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for name in ("one", "two"):
        directory = write(generate("spread", "train", 4), tmp_path / name).directory
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        trees.append([(path.relative_to(directory), path.read_bytes()) for path in paths])
    assert trees[0] == trees[1]


def test_a_directory_that_holds_a_task_is_refused(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 1)
    write(pebble, tmp_path / "task")
    with pytest.raises(FileExistsError):
        write(pebble, tmp_path / "task")
