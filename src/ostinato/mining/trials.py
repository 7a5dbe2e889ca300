"""Runs of a repository's tests in a sandbox, by the program in `mining.probe`."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ostinato.mining import probe
from ostinato.mining.base import MiningError
from ostinato.mining.options import pytest_arguments
from ostinato.sandbox.base import DEFAULT_LIMITS, Backend, Spec

PROGRAM = Path(str(probe.__file__)).read_bytes()
FOLDER = ".mining"
FAULT_TIMEOUT_S = 10.0
LIMITS = replace(DEFAULT_LIMITS, memory_mb=2048, cpu_s=300, wall_s=600.0, disk_mb=256, processes=128)
HEAD_TIMEOUT_S = 60.0
"""The CPU seconds that all tests of a repository may take together."""
ORDER, SEED = "their order, or are flaky", "the hash seed or the time zone"
"""The circumstances besides the code on which the outcome of a test may rest."""
UNSTEADY = "rests on order, hash seed or time zone"
NETWORK = re.compile(
    r"gaierror|name resolution|Network is unreachable|Connection refused|URLError|ConnectionError"
)
MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
TERMINAL = re.compile(r"out of pty devices")
COMPILER = re.compile(r"\b(gcc|cc|clang|cargo|compiler)\b.*(not found|No such file)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The tests of a repository as it is, run in both orders and under several hash seeds and time zones.

    >>> Survey(passing={"t.py::test_a": 0.1}, reached={"t.py::test_a": frozenset({("a.py", 3)})},
    ...        at_import=frozenset(), collected=1, unstable={}, failing=0, errors=()).collected
    1
    """

    passing: Mapping[str, float]
    """The tests that passed in every run, with their seconds."""
    reached: Mapping[str, frozenset[tuple[str, int]]]
    """The functions that each of them reaches: the file, and the first line in it."""
    at_import: frozenset[tuple[str, int]]
    """The functions that run when the test files are loaded, so that no single test reaches them."""
    collected: int
    unstable: Mapping[str, int]
    """The tests whose runs differed, by what they rest on."""
    failing: int
    errors: tuple[str, ...]
    """The test files that could not be loaded, and why."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The test files that were left out, by the reason."""
    unprintable: int = 0
    """The tests that pass but whose names cannot be written into a list."""


async def survey(backend: Backend, name: str, files: Mapping[str, bytes], tests: tuple[str, ...]) -> Survey:
    """Run all tests of a repository several times. Raises MiningError when none of them can be used."""
    order = {"files": list(tests), "timeout_s": HEAD_TIMEOUT_S}
    found = await run_probe(backend, name, files, "survey", order)
    first, again = found["first"], found["again"]
    if any("outcomes" not in each for each in (first, *again)):
        if any(each.get("timeout") for each in (first, *again)):
            raise MiningError(
                "tests never end", name, f"they take more than {HEAD_TIMEOUT_S:.0f} CPU seconds"
            )
        raise MiningError("tests end their process", name, "pytest did not come to its end")
    outcomes = first["outcomes"]
    steady = [
        test
        for test, outcome in outcomes.items()
        if outcome == "passed" and all(each["outcomes"].get(test) == outcome for each in again)
    ]
    passing = {test: first["seconds"][test] for test in steady if test.isprintable()}
    reversed_outcomes, *elsewhere = [each["outcomes"] for each in again] or [outcomes]
    by_order = {test for test in outcomes if reversed_outcomes.get(test) != outcomes[test]}
    differ = {test for each in elsewhere for test in outcomes if each.get(test) != outcomes[test]}
    if not passing and (passed := [test for test, outcome in outcomes.items() if outcome == "passed"]):
        raise MiningError(UNSTEADY, name, f"{len(passed)} tests pass in some runs alone, as {passed[0]!a}")
    if not passing:
        raise why_none_passes(name, first, "fails at head")
    functions = [(path, line) for path, line in first["functions"]]
    return Survey(
        passing=passing,
        reached={
            test: frozenset(functions[index] for index in first["reached"].get(test, ())) for test in passing
        },
        at_import=frozenset(functions[index] for index in first["at_import"]),
        collected=len(outcomes),
        unstable={ORDER: len(by_order), SEED: len(differ - by_order)},
        failing=sum(outcome in {"failed", "error"} for outcome in outcomes.values()),
        errors=tuple(first["errors"]),
        left_out=found.get("left_out", {}),
        unprintable=len(steady) - len(passing),
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
