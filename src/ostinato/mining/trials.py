"""Runs of a repository's tests in a sandbox, by the program in `mining.probe`."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ostinato.mining import probe
from ostinato.mining.base import MiningError
from ostinato.mining.settings import pytest_arguments
from ostinato.sandbox.base import DEFAULT_LIMITS, Backend, Spec

PROGRAM = Path(str(probe.__file__)).read_bytes()
FOLDER = ".mining"
FAULT_TIMEOUT_S = 10.0
LIMITS = replace(DEFAULT_LIMITS, memory_mb=2048, cpu_s=300, wall_s=600.0, disk_mb=256, processes=128)
HEAD_TIMEOUT_S = 60.0
"""The CPU seconds that all tests of a repository may take together."""
NETWORK = re.compile(
    r"gaierror|name resolution|Network is unreachable|Connection refused|URLError|ConnectionError"
)
MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
TERMINAL = re.compile(r"out of pty devices")
COMPILER = re.compile(r"\b(gcc|cc|clang|cargo|compiler)\b.*(not found|No such file)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The tests of a repository as it is, run twice.

    >>> Survey(passing={"t.py::test_a": 0.1}, reached={"t.py::test_a": frozenset({("a.py", 3)})},
    ...        at_import=frozenset(), collected=1, unstable=0, failing=0, errors=()).collected
    1
    """

    passing: Mapping[str, float]
    """The tests that passed in both runs, with their seconds."""
    reached: Mapping[str, frozenset[tuple[str, int]]]
    """The functions that each of them reaches: the file, and the first line in it."""
    at_import: frozenset[tuple[str, int]]
    """The functions that run when the test files are loaded, so that no single test reaches them."""
    collected: int
    unstable: int
    """The tests whose two runs differed."""
    failing: int
    errors: tuple[str, ...]
    """The test files that could not be loaded, and why."""
    left_out: int = 0
    """The test files that were left out, since all together take too long."""


async def survey(backend: Backend, name: str, files: Mapping[str, bytes], tests: tuple[str, ...]) -> Survey:
    """Run all tests of a repository twice. Raises MiningError when none of them can be used."""
    order = {"files": list(tests), "timeout_s": HEAD_TIMEOUT_S}
    found = await run_probe(backend, name, files, "survey", order)
    first, second = found["first"], found["second"]
    if "outcomes" not in first or "outcomes" not in second:
        if first.get("timeout") or second.get("timeout"):
            raise MiningError(
                "tests never end", name, f"they take more than {HEAD_TIMEOUT_S:.0f} CPU seconds"
            )
        raise MiningError("tests end their process", name, "pytest did not come to its end")
    functions = [(path, line) for path, line in first["functions"]]
    outcomes = first["outcomes"]
    passing = {
        test: first["seconds"][test]
        for test, outcome in outcomes.items()
        if outcome == second["outcomes"].get(test) == "passed" and test.isprintable()
    }
    if not passing:
        raise why_none_passes(name, first, "fails at head")
    return Survey(
        passing=passing,
        reached={
            test: frozenset(functions[index] for index in first["reached"].get(test, ())) for test in passing
        },
        at_import=frozenset(functions[index] for index in first["at_import"]),
        collected=len(outcomes),
        unstable=sum(outcome != second["outcomes"].get(test) for test, outcome in outcomes.items()),
        failing=sum(outcome in {"failed", "error"} for outcome in outcomes.values()),
        errors=tuple(first["errors"]),
        left_out=found.get("left_out", 0),
    )


def why_none_passes(name: str, first: Mapping[str, Any], otherwise: str) -> MiningError:
    """Return why no test of a run passes: what the sandbox lacks, as far as a test says so."""
    said = [*first["errors"], *first["messages"].values()]
    text = "\n".join(said)
    if missing := MISSING.search(text):
        return MiningError("missing dependency", name, missing[1])
    if NETWORK.search(text):
        return MiningError("needs a network", name, said[0])
    if COMPILER.search(text):
        return MiningError("needs a compiler", name, said[0])
    if TERMINAL.search(text):
        return MiningError("needs a terminal", name, said[0])
    if not first["outcomes"] and not said:
        return MiningError("no tests", name, f"pytest collected none (status {first['status']})")
    return MiningError(otherwise, name, said[0] if said else "every test is skipped")


async def run_probe(
    backend: Backend, name: str, files: Mapping[str, bytes], mode: str, order: Mapping[str, Any]
) -> Any:
    """Run the probe in a fresh sandbox with these files and return its result. Raises MiningError."""
    with tempfile.TemporaryDirectory(prefix="mining-") as folder:
        repo = Path(folder) / "repo"
        for path, data in files.items():
            target = repo / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
        try:
            whole = {**order, "arguments": pytest_arguments(files)}
            await sandbox.write(f"{FOLDER}/probe.py", PROGRAM)
            await sandbox.write(f"{FOLDER}/order.json", json.dumps(whole).encode())
            command = f"python {FOLDER}/probe.py {mode} {FOLDER}/order.json {FOLDER}/result.json"
            done = await sandbox.exec(command)
            if done.timed_out:
                raise MiningError("tests never end", name, f"stopped after {LIMITS.wall_s:.0f} s")
            if done.exit_code != 0:
                raise MiningError("tests end their process", name, done.output.strip()[-300:])
            try:
                return json.loads(await sandbox.read(f"{FOLDER}/result.json"))
            except (FileNotFoundError, ValueError) as error:
                said = f"no result was written ({error})"
                raise MiningError("tests end their process", name, said) from error
        finally:
            await sandbox.destroy()
