"""The results of a version on held-out tasks, task by task and pass by pass, as the gate compares them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln

from ostinato.deploy.statistics import Estimate, Floats, clustered, wilson
from ostinato.types import Report, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """All passes of one version over one task; each tuple has one entry for each pass.

    >>> TaskOutcome(task="t1", split="seeds", cluster="alpha", solved=(True, False)).mean("solved")
    0.5
    """

    task: str
    split: str
    cluster: str
    """Tasks of one cluster are hard for the same reason, so they are one piece of evidence."""
    solved: tuple[bool, ...]
    tampered: tuple[bool, ...] = ()
    asked: tuple[bool, ...] = ()
    broken: tuple[bool, ...] = ()
    forgeable: tuple[bool, ...] = ()
    """True for a pass that was solved only by a verdict which the tested code could have written."""
    untested: tuple[bool, ...] = ()
    """True for a pass that ran no command, and so no test."""

    def mean(self, name: str) -> float:
        """Return the share of passes in which `name` is true."""
        passes: tuple[bool, ...] = getattr(self, name)
        return sum(passes) / len(passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One version on the held-out tasks: its report, and the outcomes it was computed from."""

    report: Report
    outcomes: tuple[TaskOutcome, ...]
    void: int = 0
    """Attempts that a failure of ours spoilt."""
    left_out: tuple[str, ...] = ()
    """Tasks of which a pass had no attempt that was not spoilt; they have no outcome."""

    def without(self, tasks: Collection[str]) -> "Measurement":
        """Return it without the outcomes of these tasks; the report stays."""
        return replace(self, outcomes=tuple(each for each in self.outcomes if each.task not in tasks))


def score(outcomes: Sequence[TaskOutcome], confidence: float = 0.95) -> Score:
    """Return the share of passes that solved their task, with an interval; `n` is the number of tasks.

    Beside it stands the best of as many passes as each task has, where there are several.

    The interval is Wilson's for the effective number of trials p(1 - p) / error², where `error` is
    the standard error over clusters. There are never more trials than tasks: two passes are not two tasks.
    """
    tasks, values = len(outcomes), [outcome.mean("solved") for outcome in outcomes]
    k = min(len(outcome.solved) for outcome in outcomes)
    best = float(np.mean([best_of(outcome.solved, k) for outcome in outcomes])) if k > 1 else None
    error = float(of_clusters(np.array(values), clusters_of(outcomes)).error)
    p = float(np.mean(values))
    worth = min(float(tasks), p * (1 - p) / error**2) if error > 0 else float(tasks)
    interval = wilson(p * worth, worth, confidence)
    return Score(solve=p, n=tasks, low=interval.low, high=interval.high, k=k, best=best)


def clusters_of(outcomes: Sequence[TaskOutcome]) -> Floats:
    """Return (tasks, clusters), 1 where a task belongs to a cluster."""
    names, member = np.unique([f"{o.split}/{o.cluster}" for o in outcomes], return_inverse=True)
    return np.asarray(np.eye(len(names))[member], dtype=np.float64)


def of_clusters(values: Floats, clusters: Floats) -> Estimate:
    """Return the mean over tasks of `values`, (..., tasks); `clusters` are those of `clusters_of`."""
    return clustered(
        values @ clusters, np.broadcast_to(clusters.sum(axis=0), (*values.shape[:-1], clusters.shape[1]))
    )


def best_of(solved: ArrayLike, k: int) -> Floats:
    """Return, for each task, the chance that one of `k` passes solves it, estimated from n ≥ k passes.

    `solved` is (..., tasks, passes). The estimator 1 - C(n - c, k) / C(n, k) is unbiased, where c passes of n
    solved the task (Chen et al., "Evaluating large language models trained on code", 2021, section 2.1).

    >>> best_of([[True, False]], 2).tolist()
    [1.0]
    """
    passes = np.asarray(solved, dtype=float)
    n, c = passes.shape[-1], passes.sum(axis=-1)
    if not 1 <= k <= n:
        raise ValueError(f"best of {k} needs at least {k} passes, there are {n}")
    left = n - c
    with np.errstate(invalid="ignore", divide="ignore"):
        none = np.exp(_log_choose(left, k) - _log_choose(np.float64(n), k))
    return np.asarray(1 - np.where(left < k, 0.0, none))


def _log_choose(n: Floats | np.float64, k: int) -> Floats:
    return np.asarray(-np.log1p(n) - betaln(n - k + 1, k + 1))
