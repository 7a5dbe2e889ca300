"""The runners by their name in a task's table `[metadata.ostinato.suite]`."""

from collections.abc import Mapping

from ostinato.sandbox.exam.runners.base import SuiteRunner
from ostinato.sandbox.exam.runners.go import GoRunner
from ostinato.sandbox.exam.runners.node import NodeRunner
from ostinato.sandbox.exam.runners.python import PYTEST, UNITTEST

RUNNERS: Mapping[str, SuiteRunner] = {
    "pytest": PYTEST,
    "unittest": UNITTEST,
    "node": NodeRunner(),
    "go": GoRunner(),
}
