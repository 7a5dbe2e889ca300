"""The refresh of a suite: tasks that tell nothing any more, or that leaked, leave it.

A task leaves when its key was shown to a model that learns, when four fifths of its text were in training, or
when every side that was measured on the suite solved it in every pass. What leaves is kept in another folder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.bench.fence import Exposure
from ostinato.bench.suite import BenchSuite, SuiteError, seal
from ostinato.store.passes import Passes
from ostinato.types import Task

FEWEST = 4
"""The fewest passes, over all sides together, after which a task that was always solved is too easy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """One task that leaves a suite.

    >>> Retirement(task="t1", reason="solved in all 16 passes of 2 sides").task
    't1'
    """

    task: str
    reason: str


def retirements(suite: BenchSuite, passes: Passes, exposures: Mapping[str, Exposure]) -> list[Retirement]:
    """Return the tasks that should leave, each with its first reason, in the order of the suite."""
    easy = _always_solved(suite, passes)
    found = []
    for task in suite.tasks:
        exposure = exposures.get(task.id)
        if exposure is not None and exposure.leaked:
            found.append(Retirement(task=task.id, reason=_why(exposure)))
        elif task.id in easy:
            found.append(Retirement(task=task.id, reason=easy[task.id]))
    return found


def retire(directory: Path, suite: BenchSuite, leaving: Iterable[Retirement], to: Path) -> BenchSuite:
    """Move these tasks of the suite in `directory` to the folder `to`, and seal what is left.

    Raises SuiteError, and moves nothing, when no task would be left or one of them lies there already.
    """
    tasks: dict[str, Task] = {task.id: task for task in suite.tasks}
    gone = [each.task for each in leaving]
    if len(gone) == len(tasks):
        raise SuiteError(f"{directory}: all {len(tasks)} tasks would leave; add new ones first")
    if there := [id for id in gone if (to / id).exists()]:
        raise SuiteError(f"{to} has a task {there[0]} already: name another folder")
    to.mkdir(parents=True, exist_ok=True)
    for id in gone:
        tasks[id].directory.rename(to / id)
    return seal(directory, suite.name)


def _why(exposure: Exposure) -> str:
    if exposure.stage is not None:
        return f"its key was shown by the stage {exposure.stage.value}"
    return f"{exposure.overlap:.0%} of its text was in recorded sessions"


def _always_solved(suite: BenchSuite, passes: Passes) -> dict[str, str]:
    """Return the tasks that every side solved in every pass, with that as the reason."""
    sides = sorted(passes.hashes(suite.label).get(suite.hash, set()))
    results = [passes.results(suite.label, suite.hash, side) for side in sides]
    found = {}
    for task in suite.tasks:
        own = [[result for (id, _), result in each.items() if id == task.id] for each in results]
        count = sum(map(len, own))
        if all(own) and count >= FEWEST and all(result["solved"] for each in own for result in each):
            found[task.id] = f"solved in all {count} passes of {len(sides)} sides"
    return found
