"""The program that runs a repository's tests in a sandbox, fork by fork; it is sent there as text.

    python probe.py survey ORDER RESULT      which tests pass, how long they take, what functions they reach
    python probe.py outcomes ORDER RESULT    which tests pass, in each of several runs
    python probe.py faults ORDER RESULT      which tests fail with each of many versions of a file

ORDER and RESULT are JSON files. pytest is imported once; each run is a fork of that process, so a run costs
what its own tests cost. What must not decide a verdict is varied: the order of the tests, and by interpreters
of their own (`python probe.py serve`) the hash seed and the time zone. It needs the standard library and
pytest alone.
"""

import base64
import contextlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

MESSAGE_CHARACTERS = 300
PATIENCE = 4
"""The seconds by the clock for each CPU second that a run may take, since the machine may be busy."""
FILE_S = 5.0
"""The CPU seconds that the tests of one file may take, where all take too long together."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-o", "addopts=", "--tb=short")
ZONES = "/usr/share/zoneinfo"
OTHERS = (
    {"PYTHONHASHSEED": ("1", "1"), "TZ": ("Pacific/Kiritimati", "AHEAD-14")},
    {"PYTHONHASHSEED": ("2", "2"), "TZ": ("Pacific/Pago_Pago", "BEHIND+11")},
)
"""The variables of the other interpreters, here and on a machine without a list of time zones."""
Json = dict[str, Any]


class Watcher:
    """A pytest plugin that notes outcomes, and with `trace` the functions that each test reaches."""

    def __init__(self, trace: bool, reverse: bool, started: Callable[[str], None]) -> None:
        self.outcomes: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.messages: dict[str, str] = {}
        self.errors: list[str] = []
        self.reached: dict[str, set[types.CodeType]] = {}
        self.at_import: set[types.CodeType] = set()
        self._trace, self._reverse, self._started = trace, reverse, started
        if trace:
            _follow(self.at_import)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._reverse:
            items.reverse()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {_message(report)}")

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.errors.append(f"pytest: {str(excrepr).strip().splitlines()[-1][:MESSAGE_CHARACTERS]}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started(nodeid)
        if self._trace:
            _follow(self.reached.setdefault(nodeid, set()))

    def pytest_runtest_logfinish(self) -> None:
        _follow(None)

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.outcome != "passed" or hasattr(report, "wasxfail"):
            worse = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            self.outcomes[name] = worse if report.when == "call" or worse == "skipped" else "error"
            self.messages[name] = _message(report)
        elif report.when == "call":
            self.outcomes.setdefault(name, "passed")

    def result(self, status: int) -> Json:
        """Return what was noted, with the functions of the repository alone."""
        codes = {code for seen in (*self.reached.values(), self.at_import) for code in seen}
        places = {code: _place(code) for code in codes if code.co_name != "<module>"}
        ours = sorted({place for place in places.values() if not place[0].startswith(("..", "<"))})
        number = {place: index for index, place in enumerate(ours)}

        def numbers(seen: set[types.CodeType]) -> list[int]:
            return sorted({number[places[code]] for code in seen if places.get(code) in number})

        return {
            "status": status,
            "outcomes": self.outcomes,
            "seconds": {name: round(seconds, 4) for name, seconds in self.seconds.items()},
            "messages": self.messages,
            "errors": self.errors,
            "functions": ours,
            "reached": {name: numbers(seen) for name, seen in self.reached.items()},
            "at_import": numbers(self.at_import),
        }


def _follow(called: set[types.CodeType] | None) -> None:
    """Note every function that is called from now on, in this and in new threads; None ends that."""
    if called is None:
        sys.settrace(None)
        threading.settrace(None)
        return
    add = called.add

    def on_call(frame: types.FrameType, event: str, argument: object) -> None:
        add(frame.f_code)

    sys.settrace(on_call)
    threading.settrace(on_call)


def _message(report: Any) -> str:
    """Return the line that says why a test failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    lines = [line for line in text.splitlines() if line.strip()]
    return str(lines[0] if crash is not None and lines else " ".join(lines[-2:]))[:MESSAGE_CHARACTERS]


def _place(code: types.CodeType) -> tuple[str, int]:
    """Return the file of a function, relative to the repository, and its first line."""
    return os.path.relpath(os.path.realpath(code.co_filename)), code.co_firstlineno


def run(
    tests: list[str], timeout_s: float, arguments: list[str], *, trace: bool = False, reverse: bool = False
) -> Json:
    """Run tests in a fork of this process and return what came of them; without `outcomes` it died.

    `timeout_s` are CPU seconds; by the clock a run may take `PATIENCE` times as long. The fork writes the
    name of each test that it begins in a line, and its result at the end, so that a death has a place.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _as_child(writer, timeout_s, lambda: _run_here(tests, arguments, trace, reverse, writer))
    os.close(writer)
    data, ended = _read(reader, time.monotonic() + PATIENCE * timeout_s)
    os.close(reader)
    for kill in (os.killpg, os.kill):  # the child may not have its own group yet
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    *begun, last = data.split(b"\n")
    try:
        result: Json = json.loads(last)
    except ValueError:
        late = not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        place = begun[-1].decode(errors="replace") if begun else "before any test"
        return {"died": not late, "timeout": late, "at": place, "exit": os.waitstatus_to_exitcode(status)}
    return result


def _as_child(writer: int, cpu_s: float, work: Callable[[], Json]) -> None:
    """Do the work in a process group of its own, without output; write its result and end."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 2))
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(quiet, number)
    _write(writer, json.dumps(work()).encode())
    os._exit(0)


def _write(writer: int, body: bytes) -> None:
    while body:
        body = body[os.write(writer, body) :]


def _run_here(tests: list[str], arguments: list[str], trace: bool, reverse: bool, writer: int) -> Json:
    import pytest

    watcher = Watcher(trace, reverse, lambda test: _write(writer, f"{test!a}\n".encode()))
    options = [*OPTIONS, *arguments, f"--rootdir={os.getcwd()}"]  # noqa: PTH109
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = pytest.main([*options, "--", *tests], plugins=[watcher])
    _follow(None)
    if not watcher.outcomes and not watcher.errors and (lines := said.getvalue().strip().splitlines()):
        telling = [line for line in lines if line.startswith(("E  ", "ERROR"))] or lines
        watcher.errors.append(f"pytest: {' '.join([lines[0], telling[-1]])}"[:MESSAGE_CHARACTERS])
    return watcher.result(int(status))


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """Return what the child wrote, and whether it came to an end before the deadline."""
    data = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        more = os.read(reader, 1 << 16)
        if not more:
            return data, True
        data += more
    return data, False


class OtherInterpreter:
    """An interpreter with other variables, which runs tests in forks of its own."""

    def __init__(self, variables: Json) -> None:
        number = int(not os.path.isdir(ZONES))  # noqa: PTH112
        names = {name: values[number] for name, values in variables.items()}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **names},
        )

    def run(self, tests: list[str], timeout_s: float, arguments: list[str]) -> Json:
        """Do what the function `run` does."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        try:
            asked.write(json.dumps([tests, timeout_s, arguments]).encode() + b"\n")
            asked.flush()
            result: Json = json.loads(answers.readline())
        except (OSError, ValueError):
            return {"died": True, "timeout": False, "at": "another interpreter", "exit": -1}
        return result

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.communicate()


@contextlib.contextmanager
def other_interpreters() -> Iterator[list[OtherInterpreter]]:
    started = [OtherInterpreter(variables) for variables in OTHERS]
    try:
        yield started
    finally:
        for each in started:
            each.close()


def serve() -> None:
    """Run what the lines of standard input ask for, and write what came of it, a line each."""
    for line in sys.stdin.buffer:
        _write(1, json.dumps(run(*json.loads(line))).encode() + b"\n")


def again(
    tests: list[str], timeout_s: float, arguments: list[str], others: list[OtherInterpreter]
) -> list[Json]:
    """Run tests again: in the opposite order, and in each of the other interpreters."""
    backwards = run(tests, timeout_s, arguments, reverse=True)
    return [backwards, *(each.run(tests, timeout_s, arguments) for each in others)]


def survey(order: Json) -> Json:
    """Run all tests traced, and `again`.

    Where they take too long together, end their process or are not collected, as under a conftest that
    raises, they are run file by file, as many files as the time suffices for.
    """
    files, timeout_s, arguments = order["files"], order["timeout_s"], order["arguments"]
    with other_interpreters() as others:
        first = run(files, timeout_s, arguments, trace=True)
        if not first.get("outcomes") and len(files) > 1:
            return _survey_by_file(order, others)
        rest = again(files, timeout_s, arguments, others) if "outcomes" in first else []
        return {"first": first, "again": rest}


def _survey_by_file(order: Json, others: list[OtherInterpreter]) -> Json:
    """Return the survey of the files that end soon, with the number of others by the reason.

    The hashes of their names decide which come first, so that they are of all parts of the repository.
    """
    files, timeout_s, arguments = order["files"], order["timeout_s"], order["arguments"]
    end, surveyed, each_s = _cpu() + 2 * timeout_s, list[list[Json]](), min(FILE_S, timeout_s)
    left_out = {"take too long": 0, "end their process": 0, "are not collected": 0}
    errors: list[str] = []
    for file in sorted(files, key=lambda name: zlib.crc32(name.encode())):
        runs: list[Json] = [{"timeout": True}]
        if _cpu() <= end:
            runs = [run([file], each_s, arguments, trace=True)]
        if runs[0].get("outcomes"):
            runs += again([file], each_s, arguments, others)
        ended = next((each for each in runs if not each.get("outcomes")), None)
        if ended is None:
            surveyed.append(runs)
            continue
        why = "take too long" if ended.get("timeout") else "end their process"
        left_out["are not collected" if "outcomes" in ended else why] += 1
        errors += [f"{file}: {error}" for error in ended.get("errors") or []]
    if not surveyed:
        is_late = left_out["take too long"] == len(files)
        nothing = {"outcomes": {}, "errors": errors, "messages": {}, "status": 4}
        return {"first": {"timeout": True} if is_late else nothing, "again": [], "left_out": left_out}
    first, *rest = (_joined(list(runs)) for runs in zip(*surveyed, strict=True))
    first["errors"] += errors
    return {"first": first, "again": rest, "left_out": left_out}


def _joined(results: list[Json]) -> Json:
    """Return the results of several runs as those of one; functions are numbered anew."""
    functions = sorted({(path, line) for each in results for path, line in each["functions"]})
    number = {place: index for index, place in enumerate(functions)}
    found: Json = {"status": max(each["status"] for each in results), "functions": functions}
    for name in ("outcomes", "seconds", "messages"):
        found[name] = {key: value for each in results for key, value in each[name].items()}
    found["errors"] = [error for each in results for error in each["errors"]]
    found["reached"] = {}
    at_import: set[int] = set()
    for each in results:
        new = [number[path, line] for path, line in each["functions"]]
        found["reached"].update({test: [new[old] for old in seen] for test, seen in each["reached"].items()})
        at_import.update(new[old] for old in each["at_import"])
    return {**found, "at_import": sorted(at_import)}


def _cpu() -> float:
    """Return the CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def outcomes(order: Json) -> list[Json]:
    """Run all tests, and `again`.

    Where they do not come to their end, the files that do so alone are run, and the others are left out.
    """
    files, timeout_s, arguments = order["files"], order["timeout_s"], order["arguments"]
    first = run(files, timeout_s, arguments)
    if "outcomes" not in first and len(files) > 1:
        files = [file for file in files if "outcomes" in run([file], timeout_s / 2, arguments)]
        first = run(files, timeout_s, arguments) if files else first
    if "outcomes" not in first:
        return [first]
    with other_interpreters() as others:
        return [first, *again(files, timeout_s, arguments, others)]


def try_faults(order: Json) -> Json:
    """Run the tests of each fault, and `again` when some fail.

    Each version of a file gets a time of change that no other has, so that no cached bytecode fits it.
    """
    results, timeout_s, arguments = {}, order["timeout_s"], order["arguments"]
    kept = ("outcomes", "messages", "errors", "timeout", "died")
    with other_interpreters() as others:
        for index, fault in enumerate(order["faults"]):
            with open(fault["path"], "rb") as file:  # noqa: PTH123
                before = file.read()
            _put(fault["path"], base64.b64decode(fault["data"]), 1_000_000_000 + 10 * index)
            runs = [run(fault["tests"], timeout_s, arguments)]
            if {"failed", "error"}.intersection(runs[0].get("outcomes", {}).values()):
                runs += again(fault["tests"], timeout_s, arguments, others)
            _put(fault["path"], before, 1_000_000_005 + 10 * index)
            results[fault["id"]] = [{name: each[name] for name in kept if name in each} for each in runs]
    return results


def _put(path: str, data: bytes, changed_at: int) -> None:
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(data)
    os.utime(path, (changed_at, changed_at))


def main() -> None:
    """Do what the command line says."""
    import pytest  # noqa: F401 - loaded once for all forks

    root = os.getcwd()  # noqa: PTH109
    folders = [root, os.path.join(root, "src")]  # noqa: PTH118
    sys.path[:] = [*folders, *filter(None, sys.path[1:])]
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [given])])
    sys.dont_write_bytecode = False
    if sys.argv[1:] == ["serve"]:
        serve()
        return
    mode, order_path, result_path = sys.argv[1:]
    with open(order_path) as file:  # noqa: PTH123
        order = json.load(file)
    modes: dict[str, Callable[[Json], Any]] = {"survey": survey, "outcomes": outcomes, "faults": try_faults}
    result = modes[mode](order)
    with open(result_path, "w") as file:  # noqa: PTH123
        json.dump(result, file)


if __name__ == "__main__":
    main()
