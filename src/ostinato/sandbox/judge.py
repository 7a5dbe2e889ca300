"""The side of an exam that holds the hidden tests: real pytest, which never imports the candidate's code.

    hidden test:  from calc import alpha ──► Finder ──► RemoteModule("calc").alpha = Remote
                  assert alpha(7, 4) == 28 ──► Remote(7, 4) ──calls──► worker ──► 28, plain data ──► == here

Names of the candidate's modules are answered by a finder on `sys.meta_path`; their functions are proxies that
ask the worker. What comes back is built by `values.decode`: exact plain types, so every `==` is the
judge's own. Each finished test is sent to the verifier over a socket that the worker does not hold.
"""

import builtins
import importlib.machinery
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from random import Random
from types import ModuleType
from typing import Any, NoReturn

import _pytest.config
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
_READY_S = 60.0
"""How long a worker may take to start; longer, and the exam is void."""
_LATE_S = 0.5
"""How much longer than its calls to the candidate an exam may take, for its failures to be told."""


class RemoteError(Exception):
    """The candidate's code raised something that is not a builtin exception, or answered no plain data."""


class Worker:
    """Asks the worker of the run under way; after the first failure of its channel every question fails.

    `begin`: waits for the run's worker: its socket, and until when it may be asked.
    """

    def __init__(self, begin: Callable[[], tuple[socket.socket, float]]) -> None:
        self._begin = begin
        self._begun: tuple[socket.socket, float] | None = None
        self._broken: str | None = None

    def wait(self) -> tuple[socket.socket, float]:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def change(self) -> None:
        """The run is over: the next one's worker is asked from now on, when it is there."""
        self.wait()[0].close()
        self._begun = self._broken = None

    def ask(self, **question: object) -> dict[str, Any]:
        """The answer, an error of the candidate's raised here as itself."""
        answer = self._exchange(question)
        if "raised" in answer:
            raise _error(str(answer["raised"]), str(answer.get("message", "")))
        return answer

    def _exchange(self, question: dict[str, object]) -> dict[str, Any]:
        if self._broken is not None:
            raise RemoteError(self._broken)
        calls, deadline = self.wait()
        try:
            channel.send(calls, question)
            answer = channel.receive(calls, deadline)
        except channel.ChannelError as error:
            self._broken = f"the worker failed: {error}"
            raise RemoteError(self._broken) from error
        if type(answer) is not dict:
            raise RemoteError("the worker answered nonsense")
        return answer


_OF_MANY_PARTS = frozenset(
    {"ExceptionGroup", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError"}
)


def _error(name: str, message: str) -> Exception:
    """A builtin exception by its name; everything else is a RemoteError."""
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception) and name not in _OF_MANY_PARTS:
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
    """A pytest plugin that sends `{"id", "outcome"}` when a test is finished."""

    def __init__(self) -> None:
        self._results: socket.socket | None = None
        self._worst: dict[str, str] = {}

    def begin(self, results: socket.socket) -> None:
        self._results = results

    def finish_run(self) -> None:
        """Nothing more comes of this run."""
        self._worst.clear()
        self.tell(done=True)

    def tell(self, **report: object) -> None:
        assert self._results is not None
        channel.send(self._results, report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        odd = report.outcome == "passed" and hasattr(report, "wasxfail")
        outcome: str = "failed" if odd else report.outcome
        if outcome == "failed" and report.when != "call":
            outcome = "error"
        if self._worst.get(report.nodeid, "passed") == "passed":
            self._worst[report.nodeid] = outcome
        if report.when == "teardown":
            self.tell(id=report.nodeid, outcome=self._worst[report.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell(id=report.nodeid, outcome="error")


class Judge:
    """pytest, started as far as it goes without tests: made once, forked for each exam.

    `tests`: the directory that will hold them by the time of `run`.
    """

    def __init__(self, tests: str) -> None:
        self._tests = tests
        self._begun = False
        self._reporter = Reporter()
        arguments = [*ARGUMENTS, f"--rootdir={tests}", f"--confcutdir={tests}", tests]
        # the steps of pytest.main and _pytest.main.wrap_session, of which the dear ones need no tests yet
        self._config = _pytest.config._prepareconfig(arguments, [self._reporter], prog="judge")
        self._config.option.tbstyle = "no"  # why a test failed takes longer to write than to find, for nobody
        self._session = pytest.Session.from_config(self._config)
        self._config._do_configure()
        self._config.hook.pytest_sessionstart(session=self._session)

    def run(self, results: socket.socket, names: Iterable[str], wall_s: float) -> None:
        """Run every test, in another order each time, as long as there is a worker for it; never returns.

        `names`: the pristine repository's top-level modules.

        Only those take precedence over installed modules: a candidate that adds its own `math.py` does not
        get it into the judge's `import math`. When the time is up the rest counts as not passed: a candidate
        can make a test endless by what it answers.
        """
        worker = Worker(lambda: self._begin(results, wall_s))
        own = frozenset(names)
        forget(own, [self._tests])
        sys.meta_path[:] = [Finder(worker, own), *sys.meta_path, Finder(worker, None)]
        os.environ["PYTEST_VERSION"] = pytest.__version__
        os.chdir(self._tests)
        self._reporter.begin(results)
        signal.signal(signal.SIGALRM, lambda *_: self._late())
        signal.setitimer(signal.ITIMER_REAL, _READY_S + wall_s)
        self._try(self._config.hook.pytest_collection)
        for variation in itertools.count():
            self._order(variation)
            self._try(self._config.hook.pytest_runtestloop)
            self._finish_run(worker)

    def _try(self, step: Callable[..., object]) -> None:
        """What could not be collected has been told by then."""
        with suppress(pytest.Session.Interrupted, pytest.Session.Failed):
            step(session=self._session)

    def _order(self, variation: int) -> None:
        """Another one for each variation, where there is one."""
        if variation:
            before = list(self._session.items)
            Random(variation).shuffle(self._session.items)
            if self._session.items == before:
                self._session.items.reverse()

    def _finish_run(self, worker: Worker) -> None:
        """And wait for the next."""
        worker.change()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._begun = False
        self._reporter.finish_run()
        worker.wait()

    def _begin(self, results: socket.socket, wall_s: float) -> tuple[socket.socket, float]:
        """The verifier hands over a worker when it is ready; the time before that is not the candidate's."""
        ready, files, *_ = socket.recv_fds(results, 1, 1)
        if not ready:
            self._end()
        self._begun = True
        signal.setitimer(signal.ITIMER_REAL, wall_s + _LATE_S)
        return socket.socket(fileno=files[0]), time.monotonic() + wall_s

    def _end(self) -> NoReturn:
        """Nobody wants another run."""
        self._config.hook.pytest_sessionfinish(session=self._session, exitstatus=0)
        os._exit(0)

    def _late(self) -> NoReturn:
        """Say that there is nothing more to come, and end at once, whatever still runs."""
        if self._begun:
            self._reporter.finish_run()
        os._exit(not self._begun)


if __name__ == "__main__":
    Judge(sys.argv[2]).run(socket.socket(fileno=int(sys.argv[1])), sys.argv[4:], float(sys.argv[3]))
