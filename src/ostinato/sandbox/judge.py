"""The side of an exam that holds the hidden tests: real pytest, which never imports the candidate's code.

    hidden test:  from calc import alpha ──► Finder ──► RemoteModule("calc").alpha = Remote
                  assert alpha(7, 4) == 28 ──► Remote(7, 4) ──calls──► worker ──► 28, plain data ──► == here

Names of the candidate's modules are answered by a finder on `sys.meta_path`; their functions are proxies that
ask the worker. What comes back is built by `values.decode`: exact plain types, so every `==` is the
judge's own. Each finished test is sent to the verifier over a socket that the worker does not hold.
"""

import builtins
import importlib.machinery
import os
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

import pytest

from ostinato.sandbox import channel
from ostinato.sandbox.worker import forget

_LEFT_OUT = (
    *("cacheprovider", "terminal", "junitxml", "pastebin", "doctest", "faulthandler", "logging", "debugging"),
    *("setuponly", "setupplan", "stepwise", "terminalprogress", "unraisableexception", "threadexception"),
    *("warnings", "reports"),
)
ARGUMENTS = ("-c", "/dev/null", "--assert=plain", "--capture=no", *(f"-pno:{name}" for name in _LEFT_OUT))
"""What the tests need of pytest and no more: nobody reads this output."""


class RemoteError(Exception):
    """The candidate's code raised something that is not a builtin exception, or answered no plain data."""


class Worker:
    """Asks the worker; after the first failure of the channel every question fails."""

    def __init__(self, calls: socket.socket, deadline: float) -> None:
        self._calls = calls
        self._deadline = deadline
        self._broken: str | None = None

    def ask(self, **question: object) -> dict[str, Any]:
        """The answer, an error of the candidate's raised here as itself."""
        answer = self._exchange(question)
        if "raised" in answer:
            raise _error(str(answer["raised"]), str(answer.get("message", "")))
        return answer

    def _exchange(self, question: dict[str, object]) -> dict[str, Any]:
        if self._broken is not None:
            raise RemoteError(self._broken)
        try:
            channel.send(self._calls, question)
            answer = channel.receive(self._calls, self._deadline)
        except channel.ChannelError as error:
            self._broken = f"the worker failed: {error}"
            raise RemoteError(self._broken) from error
        if type(answer) is not dict:
            raise RemoteError("the worker answered nonsense")
        return answer


def _error(name: str, message: str) -> Exception:
    """A builtin exception by its name; everything else is a RemoteError."""
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception) and not name.startswith("Unicode"):
        return found(message)
    return RemoteError(f"{name}: {message}")


class Remote:
    """A function of the candidate's."""

    def __init__(self, worker: Worker, module: str, name: str) -> None:
        self._worker, self._module, self.__name__ = worker, module, name

    def __call__(self, *args: object, **kwargs: object) -> object:
        answer = self._worker.ask(module=self._module, name=self.__name__, args=args, kwargs=kwargs)
        if "value" not in answer:
            raise RemoteError("the worker answered without a value")
        return answer["value"]


class RemoteModule(ModuleType):
    """A module of the candidate's: each attribute is asked for when a test names it."""

    def __init__(self, worker: Worker, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._worker = worker

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        answer = self._worker.ask(module=self.__name__, name=name)
        found = answer["value"] if "value" in answer else Remote(self._worker, self.__name__, name)
        setattr(self, name, found)
        return found


class Finder(MetaPathFinder, Loader):
    """Serves modules from the worker: first in line for `names`, last for names that nobody else knows."""

    def __init__(self, worker: Worker, names: frozenset[str] | None) -> None:
        self._worker = worker
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._names is not None and fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return RemoteModule(self._worker, spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self._worker.ask(module=module.__name__)


class Reporter:
    """A pytest plugin: sends `{"id", "outcome"}` when a test is finished."""

    def __init__(self, results: socket.socket) -> None:
        self._results = results
        self._worst: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        odd = report.outcome == "passed" and hasattr(report, "wasxfail")
        outcome: str = "failed" if odd else report.outcome
        if outcome == "failed" and report.when != "call":
            outcome = "error"
        if self._worst.get(report.nodeid, "passed") == "passed":
            self._worst[report.nodeid] = outcome
        if report.when == "teardown":
            channel.send(self._results, {"id": report.nodeid, "outcome": self._worst[report.nodeid]})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            channel.send(self._results, {"id": report.nodeid, "outcome": "error"})


def run(
    results: socket.socket, calls: socket.socket, tests: str, names: Iterable[str], wall_s: float
) -> None:
    """Run every test in directory `tests`; `names` are the pristine repository's top-level modules.

    Only those take precedence over installed modules: a candidate that adds its own `math.py` does not get it
    into the judge's `import math`.
    """
    worker = Worker(calls, time.monotonic() + wall_s)
    own = frozenset(names)
    forget(own)
    sys.meta_path[:] = [Finder(worker, own), *sys.meta_path, Finder(worker, None)]
    os.chdir(tests)
    status = pytest.main(
        [*ARGUMENTS, f"--rootdir={tests}", f"--confcutdir={tests}", tests], plugins=[Reporter(results)]
    )
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"pytest could not run the tests in {tests}: exit status {status}")
    channel.send(results, {"done": True})


if __name__ == "__main__":
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:3]]
    run(sockets[0], sockets[1], sys.argv[3], sys.argv[5:], float(sys.argv[4]))
