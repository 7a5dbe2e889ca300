"""A mined task on disk: half of its failing tests are hidden, its patch applies, nothing is half written.

Covers mining/write.py, mining/present.py and mining/settings.py.
"""

import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ostinato.mining.base import LEVELS, SourceTree
from ostinato.mining.faults import Fault
from ostinato.mining.options import pytest_arguments
from ostinato.mining.present import chosen, instructions, without
from ostinato.mining.settings import with_source_path
from ostinato.mining.write import Draft, write_task
from ostinato.tasks.base import load_task

TESTS = """\
import pytest


class TestAdd:
    @pytest.mark.parametrize("a", [1, 2])
    def test_one(self, a):
        assert a

    def test_two(self):
        pass


class TestAlone:
    def test_three(self):
        pass


def test_four():
    pass
"""
DRAFT = Draft(
    tree=SourceTree(name="calc", version="1.0", files={}, licence="MIT"),
    name="operator",
    files={"pkg/calc.py": b"x = 1\ny = 2", "tests/test_calc.py": b"", "pyproject.toml": b""},
    solution={"pkg/calc.py": b"x = 1\ny = 3", "pkg/new.py": b"z = 1\n"},
    suite={"tests/test_calc.py": b"def test_a(): pass\n"},
    failing=("tests/test_calc.py::test_a",),
    passing=(),
    instruction="calc is off",
    evidence={"licence": "MIT"},
)


def test_a_task_is_written_whole_and_its_patch_applies(tmp_path: Path) -> None:
    task = write_task(DRAFT, tmp_path)
    assert task == load_task(tmp_path / task.id)
    assert (task.kind, task.split, task.metadata["cluster"]) == ("mined", DRAFT.tree.split, "calc")
    assert task.metadata["suite"] == {"runner": "pytest"} and task.test_ids == DRAFT.failing
    assert task.protected == ("pyproject.toml", "tests/test_calc.py")
    solve = ["sh", str(task.directory / "solution" / "solve.sh")]
    subprocess.run(solve, cwd=tmp_path, env={"REPO": str(task.repo), "PATH": "/usr/bin:/bin"}, check=True)
    for path, data in DRAFT.solution.items():
        assert (task.repo / path).read_bytes() == data


def test_a_patch_deletes_what_the_solution_deletes(tmp_path: Path) -> None:
    files = {**DRAFT.files, "pkg/old.py": b"z = 1\n", "pkg/empty.py": b""}
    solution = {**DRAFT.solution, "pkg/old.py": None, "pkg/empty.py": None}
    task = write_task(replace(DRAFT, files=files, solution=solution), tmp_path)
    patch = task.directory / "solution/solution.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=task.repo, check=True)
    assert sorted(path.name for path in (task.repo / "pkg").iterdir()) == ["calc.py", "new.py"]


@pytest.mark.parametrize("path", ["pkg/calc.py", "pkg/my calc \u00fc.py", 'pkg/"calc".py'])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc", b"a\r\nd\r\nc"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nc\n"),
        (b"# coding: latin-1\n\xe9 = 1\n", b"# coding: latin-1\n\xe9 = 2\n"),
        ("a\x0cb\u2028c\x85\n1\n".encode(), "a\x0cb\u2028c\x85\n2\n".encode()),
        (b"a\rb\rc\r", b"a\rd\rc\r"),
    ],
)
def test_a_patch_brings_every_byte_back(tmp_path: Path, path: str, before: bytes, after: bytes) -> None:
    task = write_task(replace(DRAFT, files={**DRAFT.files, path: before}, solution={path: after}), tmp_path)
    solve = ["sh", str(task.directory / "solution" / "solve.sh")]
    subprocess.run(solve, cwd=tmp_path, env={"REPO": str(task.repo), "PATH": "/usr/bin:/bin"}, check=True)
    assert (task.repo / path).read_bytes() == after


def test_nothing_is_left_of_a_task_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain relative paths"):
        write_task(replace(DRAFT, files={**DRAFT.files, "../evil": b""}), tmp_path)
    assert list(tmp_path.iterdir()) == []
    write_task(DRAFT, tmp_path)
    with pytest.raises(FileExistsError, match="exists already"):
        write_task(DRAFT, tmp_path)


def test_the_key_is_the_problem_and_not_its_wording() -> None:
    assert replace(DRAFT, instruction="fix it").key == DRAFT.key
    assert replace(DRAFT, solution={"pkg/calc.py": b"x"}).key != DRAFT.key


def test_tests_are_taken_out_and_the_rest_stays() -> None:
    names = [f"t.py::{name}" for name in ("TestAdd::test_one", "TestAlone::test_three", "test_four", "no")]
    data, gone = without(TESTS.encode(), "t.py", names)
    text = data.decode()
    assert gone == sorted(names[:3])
    compile(text, "t.py", "exec")
    assert "test_two" in text and "parametrize" not in text and "test_four" not in text
    assert without(TESTS.encode(), "other.py", names) == (TESTS.encode(), [])
    assert without(b"def (", "t.py", names) == (b"def (", [])
    windows = b"\xef\xbb\xbf" + TESTS.replace("\n", "\r\n").encode()
    assert without(windows, "t.py", names)[0] == b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")


def test_half_of_the_failing_functions_is_hidden() -> None:
    failing = ["t.py::a[1]", "t.py::a[2]", "t.py::b", "t.py::c"]
    assert len(chosen(failing)) == 2 and chosen(failing) == chosen(reversed(failing))
    assert chosen(["t.py::a[1]"]) == ["t.py::a"]


@pytest.mark.parametrize("kind", ["operator", "removed body"])
def test_the_levels_say_ever_more_and_the_first_is_terse(kind: str) -> None:
    fault = Fault(kind=kind, path="a.py", function="Box.add", line=2, first_line=1, data=b"", words="+")
    texts = instructions(fault, ["", "assert 1 == 2"], ["t.py::a"], 2, Random(1))
    assert tuple(texts) == LEVELS
    symptom, terse, plain, full = texts.values()
    assert "Box" not in symptom and "a.py" not in symptom and ("1 == 2" in symptom) == (kind == "operator")
    assert len(terse) < 60 < len(plain) < len(full) and "Box.add" in terse
    assert ("assert 1 == 2" in plain) == (kind == "operator")
    assert "- `t.py::a`" in full and "2 tests that the repository does not have" in full


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({}, {"pytest.ini": b"[pytest]\npythonpath = src\n"}),
        (
            {"pyproject.toml": b"[tool.pytest.ini_options]\naddopts = 1\n"},
            {"pyproject.toml": b'[tool.pytest.ini_options]\npythonpath = ["src"]\naddopts = 1\n'},
        ),
        ({"setup.cfg": b"[tool:pytest]\n"}, {"setup.cfg": b"[tool:pytest]\npythonpath = src\n"}),
        ({"tox.ini": b"[pytest]\npythonpath = src"}, {}),
    ],
)
def test_pytest_is_told_where_the_sources_lie(files: dict[str, bytes], changed: dict[str, bytes]) -> None:
    files = {"src/pkg/a.py": b"", **files}
    assert with_source_path(files) == {**files, **changed}
    assert with_source_path({"pkg/a.py": b""}) == {"pkg/a.py": b""}


OURS = b'[tool.pytest.ini_options]\nasyncio_mode = "auto"\nfilterwarnings = [\n    "error",\n]\n'


def test_a_repository_that_asks_for_a_plugin_gets_it() -> None:
    assert pytest_arguments({"pyproject.toml": OURS})[:2] == ("-p", "pytest_asyncio.plugin")
    assert pytest_arguments({"setup.cfg": b"[tool:pytest]\nasyncio_mode = auto\n"}) == (
        "-p",
        "pytest_asyncio.plugin",
    )
    assert pytest_arguments({"pyproject.toml": b"[tool.ruff]\n", "a.py": b"asyncio_mode = 1\n"}) == ()


def test_settings_of_absent_plugins_are_no_error_where_warnings_are() -> None:
    assert "ignore::pytest.PytestConfigWarning" in pytest_arguments({"pyproject.toml": OURS})
    ini = b"[pytest]\nfilterwarnings =\n    error\n    ignore:x\n"
    assert pytest_arguments({"pytest.ini": ini}) == ("-W", "ignore::pytest.PytestConfigWarning")
    quiet = b"[pytest]\nfilterwarnings =\n    ignore:an error\nlog_level = error\n"
    assert pytest_arguments({"pytest.ini": quiet.replace(b"an error", b"x")}) == ()
