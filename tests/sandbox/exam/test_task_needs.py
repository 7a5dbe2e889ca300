"""The resources of a task's sandboxes: what it asks for, as far as a default would not do.

Covers sandbox/exam/task_needs.py, whose images have tests/sandbox/test_images.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_suite

from ostinato.sandbox import Backend
from ostinato.sandbox.base import DEFAULT_LIMITS
from ostinato.sandbox.exam.task_needs import limits_of
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Task

LARGE = "def alpha():\n    return len(bytearray(700 << 20)) >> 20\n"


def task(**fields: object) -> Task:
    names = dict.fromkeys(("id", "kind", "split", "key", "instruction"), "t")
    return Task(directory=Path("t"), test_ids=("t.py::test_a",), **names, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "given"), [(0, 512), (64, 512), (2048, 2048)])
def test_a_task_gets_the_memory_that_it_asks_for_and_never_less_than_others(asked: int, given: int) -> None:
    assert limits_of(task(memory_mb=asked)).memory_mb == given


def test_the_time_of_a_suite_is_its_own() -> None:
    assert limits_of(task()) == limits_of(task(timeout_s=3.0)) == DEFAULT_LIMITS
    suite = limits_of(task(timeout_s=90.5, metadata={"suite": {"runner": "pytest"}}))
    assert (suite.wall_s, suite.cpu_s) == (90.5, 23)


async def test_a_verifier_without_limits_of_its_own_takes_those_of_the_task(
    ns_backend: Backend, tmp_path: Path
) -> None:
    tests = {"test_calc.py": "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha() == 700\n"}
    ids = ("test_calc.py::test_alpha",)
    made = write_suite(tmp_path, {"calc.py": LARGE, ".git/HEAD": "ref: refs/heads/main\n"}, tests, ids)
    large = replace(made, memory_mb=1024)
    found = [(await Verifier(ns_backend).verify(each, {})).passed for each in (made, large)]
    assert found == [False, True]
