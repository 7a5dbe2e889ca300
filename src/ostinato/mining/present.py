"""Tasks from a repository as it is: faults are injected, and those are kept that its own tests notice.

Half of the tests that notice a fault are taken out of the repository that an agent sees. The request names
the place of the fault, at one of three levels of detail.
"""

import ast
import hashlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from random import Random
from typing import Any

from ostinato.mining.base import LEVELS, SourceTree, Tally
from ostinato.mining.faults import Fault, faults
from ostinato.mining.options import pytest_options, unheld_doctests
from ostinato.mining.python_source import PythonSourceError, python_source
from ostinato.mining.settings import files_of_tests, with_source_path
from ostinato.mining.trials import FAULT_TIMEOUT_S, Survey, run_probe, survey
from ostinato.mining.write import Draft
from ostinato.sandbox.base import Backend

TRIES = 4
"""The faults that are tried for each task that is wanted."""
PER_FUNCTION = 2
MAX_TESTS, MAX_SECONDS = 60, 1.0
"""The tests that one fault is tried on, the fastest first, and the seconds that they take together."""
MAX_FAILING = 40
"""The failing tests of the bluntest fault that is kept; more of them say that everything is broken."""
MAX_PASSING = 100
TERSE = (
    "{name} in {path} is off",
    "fix {name} in {path}",
    "bug in {name} ({path})",
    "{name} in {path} does the wrong thing",
)
TERSE_REMOVED = ("implement {name} in {path}", "{name} in {path} is missing its body")
SHOWN = 5
"""The failing tests that the longest form names."""
KEPT, UNNOTICED, BLUNT, UNCOLLECTED, ENDLESS, FLAKY = (
    "kept",
    "unnoticed by tests",
    "too many tests fail",
    "suite does not collect",
    "never ends",
    "flaky",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTrial:
    """One fault, and the tests that are run on it.

    >>> fault = Fault(kind="operator", path="a.py", function="f", line=2, first_line=1, data=b"", words="+")
    >>> FaultTrial(id="0", fault=fault, tests=("t.py::test_a",)).id
    '0'
    """

    id: str
    fault: Fault
    tests: tuple[str, ...]


async def mine_present(
    backend: Backend, tree: SourceTree, *, wanted: int, seed: int, detail: str, tally: Tally
) -> list[Draft]:
    """Return up to `wanted` drafts of a repository; `tally` counts what was tried. Raises MiningError.

    `detail` is a level of the instructions, or `mixed`.
    """
    tree = replace(tree, files=with_source_path(tree.files))
    for reason, number in tree.left_out.items():
        tally.note(f"files left out: {reason}", number)
    for option in pytest_options(tree.files).left_out:
        tally.note(f"options of pytest left out: {option}", 1)
    tally.note("files of tests outside of testpaths", files_of_tests(tree.files)[1])
    tally.note(
        "modules whose doctests are left out, since a task may change them", unheld_doctests(tree.files)
    )
    found = await survey(backend, tree.name, tree.files, tree.tests)
    tally.count("tests that pass", len(found.passing))
    tally.count("tests that fail at head", found.failing)
    tally.count("tests that are unstable", sum(found.unstable.values()))
    for reason, number in found.unstable.items():
        tally.note(f"tests that rest on {reason}", number)
    tally.count("files of tests that take too long", found.left_out.get("take too long", 0))
    for reason, number in found.left_out.items():
        tally.note(f"files of tests that {reason}", number if reason != "take too long" else 0)
    tally.note("files of tests with errors", len(found.errors))
    tally.note("tests whose names cannot be printed", found.unprintable)
    trials = candidates(tree, found, Random(f"{tree.name}/{seed}"), tally)
    drafts: list[Draft] = []
    per_function: dict[tuple[str, str], int] = defaultdict(int)
    stream = islice(trials, TRIES * wanted)
    while len(drafts) < wanted and (batch := list(islice(stream, max(8, wanted - len(drafts))))):
        rows = [
            {
                "id": each.id,
                "path": each.fault.path,
                "data": b64encode(each.fault.data).decode(),
                "tests": each.tests,
            }
            for each in batch
        ]
        order = {"faults": rows, "timeout_s": FAULT_TIMEOUT_S}
        results = await run_probe(backend, tree.name, tree.files, "faults", order)
        tally.count("faults tried", len(batch))
        for trial in batch:
            verdict, failing, passing = judge(trial, results[trial.id])
            where = (trial.fault.path, trial.fault.function)
            tally.count(f"faults {verdict}")
            if verdict == KEPT and len(drafts) < wanted and per_function[where] < PER_FUNCTION:
                per_function[where] += 1
                level = LEVELS[-1 - len(drafts) % len(LEVELS)] if detail == "mixed" else detail
                drafts.append(draft(tree, found, trial.fault, failing, passing, level=level))
    return drafts


def candidates(tree: SourceTree, found: Survey, rng: Random, tally: Tally) -> Iterator[FaultTrial]:
    """Yield faults in functions that tests reach, the kinds in turn, functions as different as possible.

    `tally` counts the sources that are left out.
    """
    tests_of: dict[tuple[str, int], list[str]] = defaultdict(list)
    for test, places in found.reached.items():
        for place in places:
            tests_of[place].append(test)
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for path in tree.sources:
        try:
            found_here = faults(path, python_source(tree.files[path]))
        except PythonSourceError as error:
            tally.count(f"sources left out: {error}")
            continue
        for fault in found_here:
            place = (path, fault.first_line)
            if place in tests_of and place not in found.at_import:
                by_kind[fault.kind].append(fault)
    order = [_spread(by_kind[kind], rng) for kind in sorted(by_kind)]
    for number, fault in enumerate(each for each in chain(*zip_longest(*order)) if each is not None):
        tests = _few(tests_of[fault.path, fault.first_line], found.passing)
        yield FaultTrial(id=str(number), fault=fault, tests=tests)


def _spread(found: Sequence[Fault], rng: Random) -> list[Fault]:
    """Return faults in random order, the first of every function before the second of any."""
    rounds: dict[tuple[str, str], int] = defaultdict(int)
    ranked: list[tuple[int, int, Fault]] = []
    for fault in rng.sample(found, len(found)):
        where = (fault.path, fault.function)
        ranked.append((rounds[where], len(ranked), fault))
        rounds[where] += 1
    return [fault for _, _, fault in sorted(ranked, key=lambda each: each[:2])]


def _few(tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[str, ...]:
    """Return the fastest of the tests, as many as `MAX_TESTS` and `MAX_SECONDS` allow, one at least."""
    few: list[str] = []
    spent = 0.0
    for test in sorted(tests, key=lambda each: (seconds[each], each))[:MAX_TESTS]:
        spent += seconds[test]
        if few and spent > MAX_SECONDS:
            break
        few.append(test)
    return tuple(few)


def judge(trial: FaultTrial, runs: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, str], list[str]]:
    """Return whether a fault is kept or why not, the failing tests with their messages, and the passing."""
    first = runs[0]
    if "outcomes" not in first:
        return ENDLESS, {}, []
    if first["errors"] or first["outcomes"].keys() != set(trial.tests):
        return UNCOLLECTED, {}, []
    failing = [test for test in trial.tests if first["outcomes"][test] in {"failed", "error"}]
    passing = [test for test in trial.tests if first["outcomes"][test] == "passed"]
    if not failing:
        return UNNOTICED, {}, []
    if any(run.get("outcomes") != first["outcomes"] for run in runs) or len(runs) == 1:
        return FLAKY, {}, []
    if len(failing) > MAX_FAILING:
        return BLUNT, {}, []
    return KEPT, {test: first["messages"].get(test, "") for test in failing}, passing


def draft(
    tree: SourceTree,
    found: Survey,
    fault: Fault,
    failing: Mapping[str, str],
    passing: Sequence[str],
    *,
    level: str,
) -> Draft:
    """Return the task of a fault: half of the failing tests are hidden, all of them decide."""
    files = {**tree.files, fault.path: fault.data}
    wanted, hidden = chosen(failing), list[str]()
    for path in sorted({name.partition("::")[0] for name in wanted}):
        files[path], gone = without(tree.files[path], path, wanted)
        hidden += gone
    visible = [name for name in functions_of(failing) if name not in hidden]
    level = level if visible or level == "full" else "plain"  # less would leave a guess
    suite = sorted({test.partition("::")[0] for test in failing})
    reaching = [test for test in passing if test.partition("::")[0] in suite][:MAX_PASSING]
    rng = Random(f"{tree.name}/{fault.path}/{fault.line}/{fault.kind}")
    texts = instructions(fault, list(failing.values()), visible, len(hidden), rng)
    return Draft(
        tree=tree,
        name=fault.kind.replace(" ", "-"),
        files=files,
        solution={fault.path: tree.files[fault.path]},
        suite={path: tree.files[path] for path in suite},
        failing=tuple(failing),
        passing=tuple(reaching),
        instruction=texts[level],
        evidence=_evidence(tree, found, fault, level=level, texts=texts, visible=visible, hidden=hidden),
    )


def _evidence(
    tree: SourceTree,
    found: Survey,
    fault: Fault,
    *,
    level: str,
    texts: Mapping[str, str],
    visible: list[str],
    hidden: list[str],
) -> dict[str, Any]:
    lines = sum(tree.files[path].count(b"\n") for path in tree.sources)
    points = (level in {"symptom", "terse"}) + (not visible) + (lines > 2000) + (fault.kind == "removed body")
    return {
        "source": {"from": "present", "repository": tree.name, "version": tree.version},
        "licence": tree.licence,
        "fault": {
            "kind": fault.kind,
            "path": fault.path,
            "function": fault.function,
            "line": fault.line,
            "replaced": fault.words,
        },
        "instructions": dict(texts),
        "detail": level,
        "hidden_tests": hidden,
        "visible_failing_tests": visible,
        "size": {
            "files": len(tree.files),
            "source_lines": lines,
            "bytes": sum(map(len, tree.files.values())),
        },
        "difficulty": ("easy", "easy", "middle", "hard", "hard")[points],
        "survey": {
            "tests": found.collected,
            "passing": len(found.passing),
            "failing_at_head": found.failing,
            "unstable": sum(found.unstable.values()),
            "files_with_errors": list(found.errors),
            "files_left_out": sum(found.left_out.values()),
        },
    }


def instructions(
    fault: Fault, messages: Sequence[str], visible: Sequence[str], hidden: int, rng: Random
) -> dict[str, str]:
    """Return the request at each level.

    `messages` say why tests fail, `visible` names failing tests that the repository has, and `hidden` counts
    those that it lacks.
    """
    removed = fault.kind == "removed body"
    symptom = "The tests do not all pass. Find out why, and correct it."
    terse = rng.choice(TERSE_REMOVED if removed else TERSE).format(name=fault.function, path=fault.path)
    if removed:
        plain = (
            f"`{fault.function}` in `{fault.path}` has no implementation. Write it, so that it does what its "
            "docstring says and its callers expect."
        )
    else:
        plain = f"`{fault.function}` in `{fault.path}` does not do what it should."
        said = next((message for message in messages if message.strip()), "")
        line = " ".join(said.replace("`", "'").split())[:160]
        symptom = f"`{line}`, says a test that should pass." if line else symptom
        plain += f" One of its tests fails with `{line}`." if line else ""
        plain += " Find the cause and correct it."
    full = f"{plain}\n\n{_said_of_tests(visible, hidden)}"
    return {"symptom": symptom, "terse": terse, "plain": plain, "full": full}


def _said_of_tests(visible: Sequence[str], hidden: int) -> str:
    lines = [f"- `{name}`" for name in visible[:SHOWN]]
    if len(visible) > SHOWN:
        lines.append(f"- and {len(visible) - SHOWN} more")
    text = "Tests that fail now and should pass:\n\n" + "\n".join(lines) if lines else ""
    if hidden:
        more = f"{hidden} {'test' if hidden == 1 else 'tests'} that the repository does not have"
        text = f"{text}\n\nThe work is checked by {more}." if text else f"The work is checked by {more}."
    return f"{text} Leave the tests and the settings of the repository as they are."


def functions_of(test_ids: Iterable[str]) -> list[str]:
    """Return the test functions of these ids, parameters left out, each once."""
    return list(dict.fromkeys(name.partition("[")[0] for name in test_ids))


def chosen(failing: Iterable[str]) -> list[str]:
    """Return the half of the failing test functions, rounded up, that is hidden; hashes decide."""
    names = sorted(functions_of(failing), key=lambda name: hashlib.sha256(name.encode()).digest())
    return names[: (len(names) + 1) // 2]


def without(data: bytes, path: str, names: Iterable[str]) -> tuple[bytes, list[str]]:
    """Return a test file without these test functions, and those that were found in it."""
    wanted = {tuple(name.split("::")[1:]): name for name in names if name.split("::")[0] == path}
    try:
        source = python_source(data)
        tree = source.tree()
    except PythonSourceError:
        return data, []
    lines, found = source.lines, list[str]()
    for where, node, alone in reversed(list(_tests(tree.body, ()))):
        if where in wanted:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            blank = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
            lines[first - 1 : node.end_lineno] = [f"{blank}pass{source.newline}"] if alone else []
            found.append(wanted[where])
    rest = source.with_text("".join(lines))
    try:
        rest.tree()
    except PythonSourceError:  # a class lost every one of its tests
        return data, []
    return rest.encoded(), sorted(found)


def _tests(
    body: list[ast.stmt], above: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield the functions of a module and its classes: names, node, and whether it is alone in its class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*above, node.name), node, len(body) == 1
        elif isinstance(node, ast.ClassDef):
            yield from _tests(node.body, (*above, node.name))
