from pathlib import Path

import pytest

from ostinato.bench.suite import MANIFEST, SuiteError, open_suite, seal, task_hash
from ostinato.tasks.base import TaskError
from ostinato.tasks.pebble import generate, provide


def tasks(folder: Path, n: int = 2) -> Path:
    for seed in range(n):
        pebble = generate("fix", "seeds", seed)
        provide(pebble, folder / pebble.id)
    return folder


def test_a_sealed_suite_is_read_back(tmp_path: Path) -> None:
    suite = seal(tasks(tmp_path), "small")
    assert (suite.label, len(suite.tasks)) == ("small 1", 2)
    assert open_suite(tmp_path) == suite == seal(tmp_path)
    assert suite.tasks[0].cluster == suite.tasks[0].metadata["cluster"]


@pytest.mark.parametrize("part", ["instruction.md", "tests/test_hidden.py", "environment/repo/more.py"])
def test_a_change_of_what_decides_is_refused_with_both_hashes(tmp_path: Path, part: str) -> None:
    suite = seal(tasks(tmp_path))
    path = suite.tasks[0].directory / part
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")
    with pytest.raises(
        SuiteError, match=f"with hash {suite.hash} and now has .*{suite.tasks[0].id}"
    ) as raised:
        open_suite(tmp_path)
    again = seal(tmp_path)
    assert again.hash in str(raised.value) and again.version == 2


def test_caches_and_solutions_do_not_decide(tmp_path: Path) -> None:
    suite = seal(tasks(tmp_path, 1))
    directory = suite.tasks[0].directory
    before = task_hash(directory)
    (directory / "tests" / "__pycache__").mkdir()
    (directory / "tests" / "__pycache__" / "test_hidden.pyc").write_bytes(b"x")
    (directory / "solution" / "more.patch").write_text("+x\n")
    assert task_hash(directory) == before
    test = directory / "tests" / "test_hidden.py"
    test.chmod(0o755)
    assert task_hash(directory) != before


def test_what_is_no_suite_is_named(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="holds no task"):
        seal(tmp_path)
    with pytest.raises(SuiteError, match="ostinato bench seal"):
        open_suite(tasks(tmp_path))
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(SuiteError, match="no manifest"):
        open_suite(tmp_path)
    (tmp_path / MANIFEST).unlink()
    provide(generate("fix", "seeds", 0), tmp_path / "again")
    with pytest.raises(TaskError, match="is taken by another"):
        seal(tmp_path)
