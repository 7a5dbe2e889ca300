# ruff: noqa: N802 - the names of methods are those of unittest
"""The run of a suite by unittest: the planned tests alone, in the planned order, each reported at its end."""

import ast
import importlib
import importlib.machinery
import os
import sys
import unittest
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

from ostinato.sandbox.exam.guarded.inside import equality, parts
from ostinato.sandbox.exam.guarded.inside.root import enter
from ostinato.sandbox.exam.guarded.inside.watch import Memory, TamperWatch

Send = Callable[[dict[str, Any]], None]


_CALLS: dict[str, tuple[Any, ...]] = {
    "equal": ("assertEqual", {"a": 1}, {"a": 2}),
    "not_equal": ("assertNotEqual", "a", "a"),
    "true": ("assertTrue", []),
    "false": ("assertFalse", [0]),
    "contained": ("assertIn", 3, (1, 2)),
    "none": ("assertIsNone", 0),
    "instance": ("assertIsInstance", "1", int),
    "almost": ("assertAlmostEqual", 1.0, 1.1),
    "greater": ("assertGreater", 1, 2),
    "raises": ("assertRaises", ValueError, int, "1"),
    "lists": ("assertListEqual", [1], [2]),
    "statement": ("statement",),
    "exception": ("no_such_method",),
    "fail": ("fail", "planted"),
    "skip": ("skipTest", "planted"),
}
"""The call of each planted test on its test case."""
KINDS = {"pass": "passed", **{kind: "skipped" if kind == "skip" else "failed" for kind in _CALLS}}
"""The name of each planted test, and its outcome under an honest runner."""


class Planted(unittest.TestCase):
    """A planted test; it bears the class of the real test beside it while the suite sets up fixtures.

    So no fixture of a class is set up more often for it, and none decides its outcome.
    """

    def __init__(self, kind: str, beside: unittest.TestCase) -> None:
        super().__init__("body")
        self._kind = kind
        self._real: type | None = type(beside)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.__dict__.get("_real") or Planted

    def run(self, result: Any = None) -> Any:
        self._real = None
        return super().run(result)

    def statement(self) -> None:
        """Fail by a statement."""
        left, right = [1], [2]
        assert left == right

    def body(self) -> None:
        """Do what this kind of planted test does."""
        if self._kind == "pass":
            self.assertEqual([1, 2], [1, 2])  # noqa: PT009
            self.assertRaises(KeyError, {}.pop, "a")  # noqa: PT027
        else:
            name, *arguments = _CALLS[self._kind]
            getattr(self, name)(*arguments)


def run(plan: dict[str, Any], send: Send, memory: Memory | None = None) -> None:
    """Run the tests of a plan and report the outcome of each, then that the run is done.

    `plan` has `root`, the repository, and `order`, a list of [id, planted kind or ""].
    """
    watch = TamperWatch(plan["known"], plan["hidden"], send, memory)
    equality.instrument(watch)
    raised = parts.instrument(watch)
    enter(plan["root"])
    sys.argv[:] = ["python -m unittest"]
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _HiddenFinder(watch.hidden))
    watch.begin()
    send({"begun": True})
    found = _collect(plan["root"], [test.partition("::")[0] for test, _ in plan["order"]], send)
    suite, result = unittest.TestSuite(), _Result(send, watch, raised)
    for place, (test, kind) in enumerate(plan["order"]):
        case = found.get(test)
        if case is not None:
            result.add(suite, Planted(kind, case) if kind else case, place)
    suite.run(result)
    watch.check()
    send({"done": True})


def _collect(root: str, files: Sequence[str], send: Send) -> dict[str, unittest.TestCase]:
    """Return the test cases of all files by their id; a file that cannot be imported is reported."""
    found: dict[str, unittest.TestCase] = {}
    loader = unittest.TestLoader()
    for file in dict.fromkeys(files):
        folder, name = _module_name(root, file)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            suite = loader.loadTestsFromModule(importlib.import_module(name))
        except BaseException as error:  # an exit too would be an end of this file alone
            send({"uncollected": file, "why": f"{type(error).__name__}: {error}"[:300]})
            continue
        for case in _cases(suite):
            found[f"{file}::{type(case).__qualname__}::{case._testMethodName}"] = case
    return found


def _module_name(root: str, file: str) -> tuple[str, str]:
    """Return the folder from which a test file is imported, the first in no package, and its name."""
    parts = file.removesuffix(".py").split("/")
    first = len(parts) - 1
    while first and os.path.isfile(os.path.join(root, *parts[:first], "__init__.py")):  # noqa: PTH113, PTH118
        first -= 1
    return os.path.join(root, *parts[:first]), ".".join(parts[first:])  # noqa: PTH118


def _cases(suite: Any) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
    else:
        for each in suite:
            yield from _cases(each)


class _Result(unittest.TestResult):
    """The result that reports each planned test by its place."""

    def __init__(self, send: Send, watch: TamperWatch, raised: list[str]) -> None:
        super().__init__()
        self._send = send
        self._watch = watch
        self._raised = raised
        self._places: dict[int, tuple[int, Any]] = {}
        self._outcome = "passed"

    def add(self, suite: unittest.TestSuite, case: unittest.TestCase, place: int) -> None:
        """Add a test to the suite, and remember the function that it is now."""
        suite.addTest(case)
        self._places[id(case)] = (place, _function(case))

    def startTest(self, test: Any) -> None:
        self._outcome = "passed"
        self._raised.clear()
        if _function(test) is not self._places[id(test)][1]:
            self._watch.sign("a test was replaced after it was collected")

    def stopTest(self, test: Any) -> None:
        if self._raised:
            self._take("failed")
        self._send({"at": self._places.pop(id(test))[0], "outcome": self._outcome})

    def _take(self, outcome: str) -> None:
        if self._outcome == "passed":
            self._outcome = outcome

    def addSuccess(self, test: Any) -> None:
        pass

    def addFailure(self, test: Any, err: Any) -> None:
        self._take("failed")

    def addError(self, test: Any, err: Any) -> None:
        if id(test) in self._places:
            self._take("failed")
        else:  # the fixture of a class or a module
            self._send({"uncollected": str(test), "why": f"{err[0].__name__}: {err[1]}"[:300]})

    def addSkip(self, test: Any, reason: str) -> None:
        self._take("skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._take("skipped")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._take("failed")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._take("failed")


def _function(case: Any) -> Any:
    method = getattr(case, case._testMethodName)
    return getattr(method, "__func__", method)


class _HiddenFinder:
    """A finder of the hidden test files, whose comparisons it lets pass through the watch."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin in self._hidden:
            spec.loader = _HiddenLoader(name, str(spec.origin))
        return spec


class _HiddenLoader(importlib.machinery.SourceFileLoader):
    """A loader that never reads compiled code."""

    def get_code(self, fullname: str) -> CodeType:
        body = ast.parse(self.get_data(self.path), self.path)
        equality.rewrite(body)
        return compile(body, self.path, "exec", dont_inherit=True)
