"""Tasks from a repository as it is: faults are injected, and those are kept that its own tests notice."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from random import Random
from typing import Any

from ostinato.loop.mining.trials import FAULT_TIMEOUT_S, Survey, run_probe, survey
from ostinato.sandbox.base import Backend
from ostinato.tasks.mining.base import SourceTree, Tally
from ostinato.tasks.mining.faults import Fault, faults
from ostinato.tasks.mining.hide import chosen, functions_of, without
from ostinato.tasks.mining.instruction import LEVELS, instructions
from ostinato.tasks.mining.settings import with_source_path
from ostinato.tasks.mining.write import Draft

TRIES = 4
"""The faults that are tried for each task that is wanted."""
PER_FUNCTION = 2
MAX_TESTS, MAX_SECONDS = 60, 1.0
"""The tests that one fault is tried on, the fastest first, and the seconds that they take together."""
MAX_FAILING = 40
"""The failing tests of the bluntest fault that is kept; more of them say that everything is broken."""
MAX_PASSING = 100
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

    >>> fault = Fault(kind="operator", path="a.py", function="f", line=2, first_line=1, text="", words="+")
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
    found = await survey(backend, tree.name, tree.files, tree.tests)
    tally.count("tests that pass", len(found.passing))
    tally.count("tests that fail at head", found.failing)
    tally.count("tests that are unstable", found.unstable)
    tally.count("files of tests that take too long", found.left_out)
    trials = candidates(tree, found, Random(f"{tree.name}/{seed}"))
    drafts: list[Draft] = []
    per_function: dict[tuple[str, str], int] = defaultdict(int)
    stream = islice(trials, TRIES * wanted)
    while len(drafts) < wanted and (batch := list(islice(stream, max(8, wanted - len(drafts))))):
        results = await _try(backend, tree, batch)
        tally.count("faults tried", len(batch))
        for trial in batch:
            verdict, failing, passing = judge(trial, results[trial.id])
            where = (trial.fault.path, trial.fault.function)
            tally.count(f"faults {verdict}")
            if verdict == KEPT and len(drafts) < wanted and per_function[where] < PER_FUNCTION:
                per_function[where] += 1
                level = LEVELS[len(drafts) % len(LEVELS)] if detail == "mixed" else detail
                made = draft(tree, found, trial.fault, failing=failing, passing=passing, level=level)
                drafts.append(made)
    return drafts


def candidates(tree: SourceTree, found: Survey, rng: Random) -> Iterator[FaultTrial]:
    """Yield faults in functions that tests reach, the kinds in turn, functions as different as possible."""
    tests_of: dict[tuple[str, int], list[str]] = defaultdict(list)
    for test, places in found.reached.items():
        for place in places:
            tests_of[place].append(test)
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for path in tree.sources:
        for fault in faults(path, tree.files[path].decode(errors="replace")):
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


async def _try(backend: Backend, tree: SourceTree, batch: Sequence[FaultTrial]) -> Any:
    rows = [
        {"id": each.id, "path": each.fault.path, "text": each.fault.text, "tests": each.tests}
        for each in batch
    ]
    order = {"faults": rows, "timeout_s": FAULT_TIMEOUT_S}
    return await run_probe(backend, tree.name, tree.files, "faults", order)


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
    *,
    failing: Mapping[str, str],
    passing: Sequence[str],
    level: str,
) -> Draft:
    """Return the task of a fault: half of the failing tests are hidden, all of them decide."""
    files = {**tree.files, fault.path: fault.text.encode()}
    wanted, hidden = chosen(failing), list[str]()
    for path in sorted({name.partition("::")[0] for name in wanted}):
        text, gone = without(tree.files[path].decode(), path, wanted)
        files[path] = text.encode()
        hidden += gone
    visible = [name for name in functions_of(failing) if name not in hidden]
    level = level if visible else level.replace("terse", "plain")  # a bare name would leave a guess
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
    points = (level == "terse") + (not visible) + (lines > 2000) + (fault.kind == "removed body")
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
            "unstable": found.unstable,
            "files_with_errors": list(found.errors),
            "files_left_out": found.left_out,
        },
    }
