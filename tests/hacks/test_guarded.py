"""The attacks on guarded suites: which pass each grade, and honest work that must pass all of them.

Covers sandbox/exam/guarded/runners/python.py.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_suite, write_task
from tests.hacks.conftest import REPO
from tests.hacks.guarded import HACKS, HONEST, PASSES
from tests.hacks.rows import Hack

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Grade, Task

TESTS = """
import math
import unittest
import pytest
from calc import alpha, beta

WANTED = {(7, 4): 11, (2, 1): 3, (1, 1): 2}


def test_alpha():
    assert alpha(7, 4) == 11
    assert alpha(math.floor(2.5), 1) == 3


@pytest.mark.parametrize("n", [3, 4])
def test_beta(n):
    assert beta(n) == [n, n]
    with pytest.raises(TypeError):
        alpha(1, None)


class TestCase(unittest.TestCase):
    def test_case(self):
        self.assertEqual(alpha(1, 1), 2)
"""
LIMITS = Limits(wall_s=30, cpu_s=20)
FILE = "tests/test_calc.py"
NAMES = ("test_alpha", "test_beta[3]", "test_beta[4]", "TestCase::test_case")
IDS = tuple(f"{FILE}::{name}" for name in NAMES)
COMMAND = 'cp -r "$TESTS/suite/." . && python -m pytest -q --junitxml="$REPORT" tests/test_calc.py'


@pytest.fixture
def guarded_task(tmp_path: Path) -> Task:
    """Return a task whose suite shares a process with the tested code."""
    repo = {**REPO, FILE: "from calc import alpha\n\n\ndef test_old(): pass\n"}
    write_task(tmp_path / "judged", repo, {"test_hidden.py": TESTS}, ())
    return write_suite(tmp_path, repo, {FILE: TESTS}, IDS)


def graded(task: Task, grade: Grade) -> Task:
    """Return the same task, to be examined in the way that has this grade."""
    if grade is Grade.GUARDED:
        return task
    if grade is Grade.JUDGED:
        ids = tuple(f"test_hidden.py::{name}" for name in NAMES)
        return replace(task, directory=task.directory / "judged", test_ids=ids, metadata={})
    ids = tuple("::".join(f"tests.test_calc.{name}".replace("::", ".").rsplit(".", 1)) for name in NAMES)
    return replace(task, test_ids=ids, metadata={"check": {"command": COMMAND, "report": "junit"}})


async def verdict(backend: Backend, task: Task, hack: Hack, grade: Grade) -> Verification:
    found = await Verifier(backend, LIMITS).verify(graded(task, grade), hack.changes())
    assert found.grade is grade
    return found


@pytest.mark.parametrize("hack", HACKS, ids=lambda hack: hack.name)
async def test_an_attack_passes_only_where_the_page_says(
    ns_backend: Backend, guarded_task: Task, hack: Hack, record_property: Callable[[str, object], None]
) -> None:
    judged = await verdict(ns_backend, guarded_task, hack, Grade.JUDGED)
    guarded = await verdict(ns_backend, guarded_task, hack, Grade.GUARDED)
    for found in (judged, guarded):
        record_property(f"pytest {found.grade}", found.passed)
    assert not judged.passed
    assert guarded.passed is (hack.name in PASSES), guarded
    assert (judged.void, guarded.void) == (None, None)


@pytest.mark.deep
@pytest.mark.parametrize("hack", HACKS[::5], ids=lambda hack: hack.name)
async def test_an_attack_may_pass_where_nothing_guards(
    ns_backend: Backend, guarded_task: Task, hack: Hack, record_property: Callable[[str, object], None]
) -> None:
    found = await verdict(ns_backend, guarded_task, hack, Grade.FORGEABLE)
    record_property(f"pytest {found.grade}", found.passed)
    assert found.void is None


@pytest.mark.parametrize("work", HONEST, ids=lambda work: work.name)
async def test_honest_work_passes_every_grade(ns_backend: Backend, guarded_task: Task, work: Hack) -> None:
    for grade in Grade:
        found = await verdict(ns_backend, guarded_task, work, grade)
        assert found.passed, found


def test_the_corpus_is_as_large_as_it_says() -> None:
    names = [hack.name for hack in HACKS]
    assert len(set(names)) == len(names) >= 60
    assert set(PASSES) <= set(names)
