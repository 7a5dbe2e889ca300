"""The results of two versions on a suite, as the gate of a run takes them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ostinato.bench import estimate
from ostinato.bench.axes import PassResult
from ostinato.bench.contest import Results
from ostinato.bench.suite import BenchSuite, SuiteError
from ostinato.deploy.statistics import Estimate, Floats
from ostinato.deploy.suite import SuiteChanges
from ostinato.types import Task

KEPT, BROKEN = ("interaction", "promise_kept"), "interaction/promises_broken"


def suite_changes(suite: BenchSuite, passes: int, current: Results, candidate: Results) -> SuiteChanges:
    """Return the changes on every split and every measure, candidate minus current.

    Raises SuiteError unless both sides have every pass of every task: they would be of other populations.
    """
    keys = [(task.id, number) for task in suite.tasks for number in range(passes)]
    for name, side in (("current", current), ("candidate", candidate)):
        if missing := [key for key in keys if key not in side]:
            task, number = missing[0]
            raise SuiteError(
                f"the {name} version lacks {len(missing)} of {len(keys)} passes over {suite.label}, "
                f"first that of task {task}, pass {number}: run it again"
            )
    splits = sorted({task.split for task in suite.tasks})
    by_split = {split: [task for task in suite.tasks if task.split == split] for split in splits}

    def solved(each: PassResult) -> float:
        return float(each.solved)

    measures: dict[str, Estimate] = {}
    for name, read in {**_measures([*current.values(), *candidate.values()]), BROKEN: _broken}.items():
        known = [task for task in suite.tasks if _known(task, passes, read, current, candidate)]
        if known:
            measures[name] = _change(known, passes, read, current, candidate, bounded=_is_share(name))
    return SuiteChanges(
        suite=f"{suite.label}, hash {suite.hash}",
        splits={
            split: _change(tasks, passes, solved, current, candidate, bounded=True)
            for split, tasks in by_split.items()
        },
        measures=measures,
    )


Read = Callable[[PassResult], float | None]


def _measures(results: Sequence[PassResult]) -> Mapping[str, Read]:
    """Return the measures that any pass has, but promises: only who promises can keep one."""
    found = {(axis, name) for each in results for axis, of in each.measures.items() for name in of} - {KEPT}

    def reader(axis: str, name: str) -> Read:
        return lambda each: each.measures.get(axis, {}).get(name)

    return {f"{axis}/{name}": reader(axis, name) for axis, name in sorted(found)}


def _broken(each: PassResult) -> float:
    """Return whether a pass promised that tests pass, and they did not: known of every pass."""
    return float(each.measures.get(KEPT[0], {}).get(KEPT[1]) == 0.0)


def _is_share(name: str) -> bool:
    axis, _, measure = name.partition("/")
    return axis == "correct" or name == BROKEN or " by " in measure or measure in {"survives", "kept_found"}


def _known(task: Task, passes: int, read: Read, *sides: Results) -> bool:
    return all(read(side[task.id, number]) is not None for side in sides for number in range(passes))


def _change(
    tasks: Sequence[Task], passes: int, read: Read, current: Results, candidate: Results, *, bounded: bool
) -> Estimate:
    """Return the mean change over tasks, with errors over repositories; a share's is never without error."""

    def means(side: Results) -> Floats:
        values = [[read(side[task.id, number]) for number in range(passes)] for task in tasks]
        return np.asarray(np.array(values, dtype=float).mean(axis=1))

    clusters = estimate.member([task.cluster for task in tasks])
    differences = means(candidate) - means(current)
    return (
        estimate.difference(differences, clusters)
        if bounded
        else estimate.mean_difference(differences, clusters)
    )
