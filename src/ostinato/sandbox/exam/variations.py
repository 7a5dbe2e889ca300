"""The repetitions of an exam in any regime: a solution must pass in every order, each in a fresh sandbox."""

from collections.abc import Awaitable, Callable

from ostinato.sandbox.base import Exam

GRACE_S = 5.0
"""The time beyond the exam's wall time in which a judge or a runner may report that it is done."""


async def run_variations(
    exam: Exam, run_once: Callable[[int], Awaitable[dict[str, str]]]
) -> list[dict[str, str]]:
    """Return the outcomes of `run_once` for the number of each run; the first run that fails is the last."""
    runs = [await run_once(0)]
    while len(runs) <= exam.variations and set(runs[-1].values()) == {"passed"}:
        runs.append(await run_once(len(runs)))
    return runs
