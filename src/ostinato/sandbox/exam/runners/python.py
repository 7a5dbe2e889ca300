"""The runners of Python: pytest, and unittest without pytest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.sandbox.base import Exam, Sandbox
from ostinato.sandbox.exam.runners import python_files
from ostinato.sandbox.exam.runners.base import ScreenedChanges, SuitePlan, follow
from ostinato.sandbox.exam.runners.suite_reports import SuiteReports
from ostinato.sandbox.suites import planted, start, under_pytest, under_unittest
from ostinato.sandbox.suites.sources import SOURCES, START


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRunner:
    """A program that runs a suite in one interpreter, warm or new.

    >>> UNITTEST.planted["pass"]
    'passed'
    """

    main: str
    """The module of `sandbox/suites` that runs the plan."""
    planted: Mapping[str, str]

    def screen(self, exam: Exam) -> ScreenedChanges:
        return python_files.screen(exam)

    async def run(self, sandbox: Sandbox, exam: Exam, plan: SuitePlan, reports: SuiteReports) -> None:
        written = {
            "nonce": plan.nonce,
            "root": sandbox.root,
            "order": plan.order,
            "arguments": plan.arguments,
            **python_files.watched(exam, sandbox.root),
        }
        await follow(sandbox, start.COMMAND, order_of(self.main, written), reports)


def order_of(main: str, plan: Mapping[str, object]) -> bytes:
    """Return what `start.COMMAND` reads: the programs, the name of the one that runs, and its plan."""
    body = json.dumps({"start": START, "sources": SOURCES, "main": main, "plan": plan}).encode()
    return b"%d\n%s" % (len(body), body)


PYTEST = PythonRunner(main=under_pytest.__name__, planted=planted.KINDS)
UNITTEST = PythonRunner(main=under_unittest.__name__, planted=under_unittest.KINDS)
