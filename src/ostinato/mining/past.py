"""Tasks from a repository's history: a commit that changed sources and tests is to be done again."""

from collections.abc import Mapping
from typing import Any

from ostinato.mining.base import MiningError
from ostinato.mining.history import Commit
from ostinato.mining.settings import with_source_path
from ostinato.mining.trials import FAULT_TIMEOUT_S, run_probe, why_none_passes
from ostinato.mining.write import Draft
from ostinato.sandbox.base import Backend

MAX_FAILING, MAX_PASSING = 100, 100
HISTORY_TIMEOUT_S = 3 * FAULT_TIMEOUT_S
"""The CPU seconds that the tests of a commit may take together; by the clock several times as many."""


async def mine_commit(backend: Backend, commit: Commit, *, detail: str) -> Draft:
    """Return the draft of one commit. Raises MiningError when its tests do not tell before from after."""
    where = f"{commit.name}@{commit.id[:9]}"
    tests = [path for path in commit.tests if path.endswith(".py")]
    before = with_source_path({**commit.before, **commit.tests})
    after = {path: data for path, data in {**before, **commit.sources}.items() if data is not None}
    runs = await _runs(backend, where, after, tests)
    new = [run["outcomes"] for run in runs]
    steady = {test for test in new[0] if all(run.get(test) == "passed" for run in new)}
    unstable = {test for run in new for test, outcome in run.items() if outcome == "passed"} - steady
    if not steady and not unstable:
        raise why_none_passes(where, runs[0], "tests fail after")
    was = [run["outcomes"] for run in await _runs(backend, where, before, tests)]
    old, named = was[0], [test for test in sorted(steady) if test.isprintable()]
    failing = [test for test in named if all(run.get(test) != "passed" for run in was)]
    passing = [test for test in named if all(run.get(test) == "passed" for run in was)]
    unstable |= set(named) - {*failing, *passing}
    if not failing:
        kind = "tests are flaky" if unstable else "tests pass before"
        said = [*runs[0]["errors"], *runs[0]["messages"].values()]
        others = f"; after it: {said[0][:160]}" if said else ""
        raise MiningError(kind, where, f"{len(passing)} pass on both sides{others}")
    checked = f"The work is checked by {len(failing)} tests that the repository does not have."
    texts = {
        "terse": commit.message.splitlines()[0],
        "plain": commit.message,
        "full": f"{commit.message}\n\n{checked}",
    }
    levels = tuple(texts)  # a message says what was wrong, mostly not where: none is a symptom alone
    level = detail if detail in texts else levels[int(commit.id[:4], 16) % len(levels)]
    return Draft(
        tree=commit.tree,
        name="history",
        files=with_source_path(commit.before),
        solution=commit.sources,
        suite=commit.tests,
        failing=tuple(failing[:MAX_FAILING]),
        passing=tuple(passing[:MAX_PASSING]),
        instruction=texts[level],
        evidence={
            "source": {
                "from": "history",
                "repository": commit.name,
                "commit": commit.id,
                "parent": commit.parent,
                "date": commit.date,
            },
            "licence": commit.licence,
            "instructions": texts,
            "detail": level,
            "size": {"files": len(commit.before), "changed_files": len(commit.sources)},
            "difficulty": "middle" if len(commit.sources) == 1 else "hard",
            "runs": {"before": old, "after": len(new), "unstable": sorted(unstable)},
        },
    )


async def _runs(
    backend: Backend, where: str, files: Mapping[str, bytes], tests: list[str]
) -> list[dict[str, Any]]:
    """Return the outcomes of several runs, of which a test that passes in some alone is left out."""
    order = {"files": tests, "timeout_s": HISTORY_TIMEOUT_S}
    found: list[dict[str, Any]] = await run_probe(backend, where, files, "outcomes", order)
    if any("outcomes" not in run for run in found):
        ended = next(run for run in found if "outcomes" not in run)
        kind = "tests never end" if ended["timeout"] else "tests end their process"
        raise MiningError(kind, where, f"{ended['at']} (exit status {ended['exit']}), in {', '.join(tests)}")
    return found
