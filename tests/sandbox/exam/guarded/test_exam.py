"""The suite of a real repository, run under guard: what passes, what fails, and what cannot be run.

Covers sandbox/exam/guarded/suite.py, sandbox/exam/guarded/runners/base.py,
sandbox/exam/guarded/inside/sources.py, sandbox/exam/guarded/inside/start.py,
sandbox/exam/guarded/inside/root.py, sandbox/exam/guarded/inside/planted.py and
sandbox/exam/guarded/inside/under_pytest.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.tasks_on_disk import write_suite

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Grade, Task

REPO = {
    "src/calc/__init__.py": "def alpha(a, b):\n    return a - b\n",
    "tests/test_calc.py": "def test_old(): pass\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--no-such-option"\n',
    ".git/HEAD": "ref: refs/heads/main\n",
}
SUITE = {
    "tests/conftest.py": "import pytest\n\n\n@pytest.fixture(scope='module')\ndef three():\n    return 3\n",
    "tests/test_calc.py": """
import unittest
import pytest
from calc import alpha


@pytest.mark.parametrize("a", [1, 2])
def test_alpha(a, three, capsys):
    print("said")
    assert capsys.readouterr().out == "said\\n"
    assert alpha(a, three) == a + 3


class TestMore:
    def test_none(self):
        with pytest.raises(TypeError):
            alpha(None, 1)


class Case(unittest.TestCase):
    def setUp(self):
        self.one = 1

    def test_case(self):
        self.assertEqual(alpha(self.one, 1), 2)
""",
}
IDS = (
    *("tests/test_calc.py::test_alpha[1]", "tests/test_calc.py::test_alpha[2]"),
    *("tests/test_calc.py::TestMore::test_none", "tests/test_calc.py::Case::test_case"),
)
GOOD = {"src/calc/__init__.py": b"def alpha(a, b):\n    return a + b\n"}
LIMITS = Limits(wall_s=60, cpu_s=30)


@pytest.fixture
def here(backend: Backend) -> Backend:
    if backend.name == "remote":
        pytest.skip("hidden tests lie here, and another machine cannot mount them")
    return backend


def task(directory: Path, suite: Mapping[str, str] = SUITE, *ids: str, **table: Any) -> Task:
    return write_suite(directory, REPO, suite, ids or IDS, **table)


async def test_a_suite_decides_under_guard(here: Backend, tmp_path: Path) -> None:
    verifier, made = Verifier(here, LIMITS), task(tmp_path)
    good, none = await verifier.verify(made, GOOD), await verifier.verify(made, {})
    assert (good.passed, good.grade, good.void, good.tampered) == (True, Grade.GUARDED, None, ()), good
    assert dict(none.outcomes) == dict(zip(IDS, ["failed", "failed", "passed", "failed"], strict=True))
    assert (none.passed, none.grade, none.tampered) == (False, Grade.GUARDED, ())


async def test_the_hidden_files_lie_over_the_changes(ns_backend: Backend, tmp_path: Path) -> None:
    changes = {**GOOD, "tests/test_calc.py": b"def test_old(): assert 0\n", "tests/conftest.py": b"raise 1\n"}
    found = await Verifier(ns_backend, LIMITS).verify(task(tmp_path), changes)
    assert found.passed, found


MISSING = "tests/test_calc.py::test_none_such"
BROKEN = "import no_such_module\n\n\ndef test_x(): pass\n"


async def test_tests_that_are_not_there_are_missing(ns_backend: Backend, tmp_path: Path) -> None:
    found = await Verifier(ns_backend, LIMITS).verify(task(tmp_path, SUITE, *IDS, MISSING), GOOD)
    assert (found.passed, found.void, found.outcomes[MISSING]) == (False, None, "missing")
    assert set(found.outcomes.values()) == {"passed", "missing"}


async def test_a_file_that_does_not_collect_is_named(ns_backend: Backend, tmp_path: Path) -> None:
    made = task(tmp_path, {**SUITE, "tests/test_b.py": BROKEN}, *IDS, "tests/test_b.py::test_x")
    found = await Verifier(ns_backend, LIMITS).verify(made, GOOD)
    assert (found.passed, found.outcomes["tests/test_b.py::test_x"]) == (False, "error")
    assert "tests/test_b.py was not collected" in found.notes[0]
    assert "no_such_module" in found.notes[0]


async def test_a_test_that_never_ends_fails(ns_backend: Backend, tmp_path: Path) -> None:
    endless = {"src/calc/__init__.py": b"def alpha(a, b):\n    while a: pass\n    return b\n"}
    found = await Verifier(ns_backend, replace(LIMITS, cpu_s=2)).verify(task(tmp_path), endless)
    assert (found.passed, found.void) == (False, None)
    assert found.outcomes["end of the suite"] == "error"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"runner": "nose"}, "`runner` out of pytest"),
        ({"arguments": "-q"}, "must be a list of strings"),
    ],
)
async def test_a_table_that_cannot_be_used_is_void(
    ns_backend: Backend, tmp_path: Path, table: dict[str, Any], why: str
) -> None:
    found = await Verifier(ns_backend, LIMITS).verify(task(tmp_path, **table), GOOD)
    assert found.void is not None
    assert why in found.void


async def test_a_link_in_the_hidden_suite_is_refused(ns_backend: Backend, tmp_path: Path) -> None:
    made = task(tmp_path)
    (tmp_path / "tests/suite/tests/data").symlink_to("/etc")
    found = await Verifier(ns_backend, LIMITS).verify(made, GOOD)
    assert "data is a link" in str(found.void)


@pytest.mark.parametrize("runner", ["pytest", "unittest"])
async def test_programs_that_tests_start_find_the_packages_of_the_repository(
    ns_backend: Backend, tmp_path: Path, runner: str
) -> None:
    case = (
        "import subprocess, sys, unittest\n\n\nclass Case(unittest.TestCase):\n    def test_starts(self):\n"
    )
    case += "        subprocess.run([sys.executable, '-m', 'calc.double'], check=True)\n"
    made = write_suite(
        tmp_path, REPO, {"tests/test_a.py": case}, ("tests/test_a.py::Case::test_starts",), runner
    )
    changes = {"src/calc/double.py": b"from calc import alpha\n"}
    verifier = Verifier(ns_backend, LIMITS)
    assert [(await verifier.verify(made, each)).passed for each in ({}, changes)] == [False, True]
