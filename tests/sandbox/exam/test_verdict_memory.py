"""Equal changes of one task share one exam, unless something other than them may have decided it."""

import asyncio
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_task

from ostinato.sandbox import Exam, SandboxError
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.verdict_memory import RememberingVerifier
from ostinato.sandbox.exam.verifier import MISSING
from ostinato.types import Task

HIDDEN = "from calc import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
RIGHT, WRONG = ({"calc.py": f"def double(x):\n    return {body}\n".encode()} for body in ("2 * x", "x"))


class CountedBackend(ProcessBackend):
    """Counts exams; `failures` of them fail first, and `late` of them end too late to run their test."""

    def __init__(self, failures: int = 0, late: int = 0) -> None:
        super().__init__()
        self.exams, self.failures, self.late = 0, failures, late

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        self.exams += 1
        if self.exams <= self.failures:
            raise SandboxError("the judge ended")
        return [{}] if self.exams <= self.late else await super().examine(exam)


def write(folder: Path, hidden: str) -> Task:
    repo = {"calc.py": "def double(x):\n    return x + 1\n"}
    return write_task(folder, repo, {"test_hidden.py": hidden}, ["test_hidden.py::test_double"])


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return write(tmp_path / "task", HIDDEN)


async def test_equal_changes_of_one_task_are_examined_once(task: Task) -> None:
    verifier = RememberingVerifier(backend := CountedBackend())
    verdicts = await asyncio.gather(*(verifier.verify(task, each) for each in (RIGHT, WRONG, {}) * 3))
    assert [each.passed for each in verdicts] == [True, False, False] * 3 and backend.exams == 3
    assert (await verifier.verify(task, {"calc.py": None})).passed is False and backend.exams == 4


async def test_another_task_has_its_own_verdicts(task: Task, tmp_path: Path) -> None:
    other = write(tmp_path / "other", HIDDEN.replace("4", "2"))
    verifier = RememberingVerifier(CountedBackend())
    assert (await verifier.verify(task, WRONG)).passed is False
    assert (await verifier.verify(other, WRONG)).passed is True


async def test_a_void_verdict_holds_for_its_own_session(task: Task) -> None:
    verifier = RememberingVerifier(backend := CountedBackend(failures=2))
    verdicts = await asyncio.gather(*(verifier.verify(task, RIGHT) for _ in range(4)))
    assert [each.void is None for each in verdicts].count(False) == 2 and backend.exams == 4


async def test_a_verdict_without_all_tests_holds_for_its_own_session(task: Task) -> None:
    verifier = RememberingVerifier(backend := CountedBackend(late=1))
    verdicts = [await verifier.verify(task, RIGHT) for _ in range(2)]
    assert [set(each.outcomes.values()) for each in verdicts] == [{MISSING}, {"passed"}]
    assert backend.exams == 2


async def test_an_exam_that_was_cut_off_leaves_no_verdict(task: Task) -> None:
    verifier = RememberingVerifier(backend := CountedBackend())
    cut = asyncio.create_task(verifier.verify(task, RIGHT))
    waiting = asyncio.create_task(verifier.verify(task, RIGHT))
    while not backend.exams:
        await asyncio.sleep(0)
    cut.cancel()
    assert (await waiting).passed and backend.exams == 2
