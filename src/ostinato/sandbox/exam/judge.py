"""The side of an exam that holds the hidden tests: real pytest, which never imports the candidate's code.

Names of the candidate's modules are answered by a finder on `sys.meta_path`, whose functions ask the
worker: see `asked`. What comes back is built of types that are ours, so every `==` is the judge's own. Each
finished test is sent to the verifier over a socket that the worker does not hold.
"""

import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import NoReturn

import _pytest.config
import pytest

from ostinato.sandbox.exam import channel, needed_modules
from ostinato.sandbox.exam.questions import Finder, Worker
from ostinato.sandbox.exam.worker import forget

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


class Reporter:
    """A pytest plugin that sends `{"id", "outcome"}` when a test is finished."""

    def __init__(self) -> None:
        self._results: socket.socket | None = None
        self._worker: Worker | None = None
        self._worst: dict[str, str] = {}

    def begin(self, results: socket.socket, worker: Worker) -> None:
        self._results, self._worker = results, worker

    def finish_run(self) -> None:
        """Nothing more comes of this run."""
        self._worst.clear()
        self.tell(done=True)

    def tell(self, **report: object) -> None:
        assert self._results is not None
        channel.send(self._results, report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        assert self._worker is not None
        lost = self._worker.broken is not None  # whatever the test makes of that
        odd = report.outcome == "passed" and (lost or hasattr(report, "wasxfail"))
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

        `names`: the pristine repository's, see `module_names`, and `needs.Names` for what they decide.

        When the time is up the rest counts as not passed: a candidate can make a test endless by what it
        answers. The second timer ends this process even where its interpreter never hears of the first.
        """
        worker = Worker(lambda: self._begin(results, wall_s), lambda: self._reporter.tell(answered=True))
        found = needed_modules.Names(names, self._tests)
        forget(found.first, [self._tests])
        sys.meta_path[:] = [Finder(worker, found.is_first), *sys.meta_path, Finder(worker, found.is_last)]
        os.environ["PYTEST_VERSION"] = pytest.__version__
        os.chdir(self._tests)
        self._reporter.begin(results, worker)
        signal.signal(signal.SIGALRM, lambda *_: self._late())
        signal.setitimer(signal.ITIMER_REAL, _READY_S + wall_s)
        self._try(self._config.hook.pytest_collection)
        for variation in itertools.count():
            self._order(variation)
            self._try(self._config.hook.pytest_runtestloop)
            self._finish_run(worker)

    def _try(self, step: Callable[..., object]) -> None:
        """What could not be collected has been told by then."""
        try:
            step(session=self._session)
        except (pytest.Session.Interrupted, pytest.Session.Failed, SystemExit):
            return

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
        for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
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
        signal.setitimer(signal.ITIMER_PROF, wall_s + 2 * _LATE_S)
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
