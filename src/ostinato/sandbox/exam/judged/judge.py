"""The judge of an exam, which holds the hidden tests: real pytest that never imports the candidate's code.

A finder on `sys.meta_path` serves the candidate's modules; their functions send questions to the worker (see
`questions`). Responses consist of the judge's own types, so every `==` is the judge's own. The outcome of
each test goes to the verifier over a socket that the worker does not hold.
"""

import itertools
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from random import Random
from typing import NoReturn

import _pytest.config
import pytest

from ostinato.sandbox.exam.judged import channel, needed_modules
from ostinato.sandbox.exam.judged.questions import Finder, Worker
from ostinato.sandbox.exam.judged.worker import forget
from ostinato.sandbox.linux import syscalls

_LEFT_OUT = (
    *("cacheprovider", "terminal", "junitxml", "pastebin", "doctest", "faulthandler", "logging", "debugging"),
    *("setuponly", "setupplan", "stepwise", "terminalprogress", "unraisableexception", "threadexception"),
    *("warnings", "reports"),
)
ARGUMENTS = ("-c", "/dev/null", "--assert=plain", "--capture=no", *(f"-pno:{name}" for name in _LEFT_OUT))
"""Only the plugins that tests need: the output of this pytest is never read."""
_READY_S = 60.0
"""The longest start of a worker; after that the exam is void."""
_LATE_S = 0.5
"""The time beyond the calls to the candidate that an exam may take, so that failures are still reported."""


class Reporter:
    """A pytest plugin that sends `{"id", "outcome"}` when a test is finished."""

    def __init__(self) -> None:
        self._results: socket.socket | None = None
        self._worker: Worker | None = None
        self._worst: dict[str, str] = {}

    def begin(self, results: socket.socket, worker: Worker) -> None:
        self._results, self._worker = results, worker

    def finish_run(self) -> None:
        """Report that this run is over."""
        self.send(done=True)

    def send(self, **report: object) -> None:
        assert self._results is not None
        channel.send(self._results, report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        assert self._worker is not None
        lost = self._worker.broken is not None  # even if the test catches the exception
        wrongly_passed = report.outcome == "passed" and (lost or hasattr(report, "wasxfail"))
        outcome: str = "failed" if wrongly_passed else report.outcome
        if outcome == "failed" and report.when != "call":
            outcome = "error"
        if self._worst.get(report.nodeid, "passed") == "passed":
            self._worst[report.nodeid] = outcome
        if report.when == "teardown":
            self.send(id=report.nodeid, outcome=self._worst[report.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send(id=report.nodeid, outcome="error")


class Judge:
    """A pytest that is started as far as possible without tests: made once, forked for each exam.

    `tests`: the directory that will hold them by the time of `run`.
    """

    def __init__(self, tests: str) -> None:
        self._tests = tests
        self._begun = False
        self._reporter = Reporter()
        arguments = [*ARGUMENTS, f"--rootdir={tests}", f"--confcutdir={tests}", tests]
        # the first steps of pytest.main and _pytest.main.wrap_session: the expensive ones need no tests yet
        self._config = _pytest.config._prepareconfig(arguments, [self._reporter], prog="judge")
        self._config.option.tbstyle = "no"  # nobody reads tracebacks, and they take longer than the tests
        for option in (
            "usepdb",
            "trace",
        ):  # test cases of unittest ask for them, and their plugin is left out
            setattr(self._config.option, option, False)
        self._session = pytest.Session.from_config(self._config)
        self._config._do_configure()
        self._config.hook.pytest_sessionstart(session=self._session)

    def run(self, results: socket.socket, names: Iterable[str], wall_s: float) -> None:
        """Run every test, in another order each time, as long as there are workers; never return.

        Each run has a process of its own, in which the tests' modules are loaded anew: what they made of the
        candidate's objects belongs to the worker of that run. `names` are the pristine repository's
        `module_names`; `needed_modules.ModuleNames` says what they decide.
        """
        modules = needed_modules.ModuleNames(names, self._tests)
        forget(modules.first, [self._tests])
        os.environ["PYTEST_VERSION"] = pytest.__version__
        os.chdir(self._tests)
        self._config.pluginmanager._dirpath2confmods.clear()  # the tests' own were not here before
        for variation in itertools.count():
            if variation and not results.recv(1, socket.MSG_PEEK):
                os._exit(0)  # the verifier wants no further run
            child = os.fork()
            if not child:
                self._run_once(results, modules, wall_s, variation)
            if os.waitpid(child, 0)[1]:
                os._exit(1)

    def _run_once(
        self, results: socket.socket, modules: needed_modules.ModuleNames, wall_s: float, variation: int
    ) -> NoReturn:
        """Run every test with the next worker, and end this process.

        When the time is up the remaining tests count as not passed: a candidate's responses can make a test
        endless. The second timer ends this process even if its interpreter never handles the first.
        """
        syscalls.die_with_parent()
        worker = Worker(lambda: self._begin(results, wall_s), lambda: self._reporter.send(answered=True))
        sys.meta_path[:] = [Finder(worker, modules.is_first), *sys.meta_path, Finder(worker, modules.is_last)]
        self._reporter.begin(results, worker)
        signal.signal(signal.SIGALRM, lambda *_: self._late())
        signal.setitimer(signal.ITIMER_REAL, _READY_S + wall_s)
        try:
            self._try(self._config.hook.pytest_collection)
            self._order(variation)
            self._try(self._config.hook.pytest_runtestloop)
            worker.wait()
            self._reporter.finish_run()
            self._config.hook.pytest_sessionfinish(session=self._session, exitstatus=0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _try(self, step: Callable[..., object]) -> None:
        """Run a step of pytest. Tests that it could not collect are reported by then."""
        try:
            step(session=self._session)
        except (pytest.Session.Interrupted, pytest.Session.Failed, SystemExit):
            return

    def _order(self, variation: int) -> None:
        """Put the tests into another order for each variation, if there is another."""
        if variation:
            before = list(self._session.items)
            Random(variation).shuffle(self._session.items)
            if self._session.items == before:
                self._session.items.reverse()

    def _begin(self, results: socket.socket, wall_s: float) -> tuple[socket.socket, float]:
        """Wait until the verifier hands over a worker; only then the candidate's time begins."""
        ready, files, *_ = socket.recv_fds(results, 1, 1)
        if not ready:
            os._exit(0)  # the verifier is gone
        self._begun = True
        signal.setitimer(signal.ITIMER_REAL, wall_s + _LATE_S)
        signal.setitimer(signal.ITIMER_PROF, wall_s + 2 * _LATE_S)
        return socket.socket(fileno=files[0]), time.monotonic() + wall_s

    def _late(self) -> NoReturn:
        """Report the end of the run and end the process at once, even in the middle of a test."""
        if self._begun:
            self._reporter.finish_run()
        os._exit(not self._begun)


if __name__ == "__main__":
    Judge(sys.argv[2]).run(socket.socket(fileno=int(sys.argv[1])), sys.argv[4:], float(sys.argv[3]))
