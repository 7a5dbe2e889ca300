import pytest

from ostinato.deploy.outcomes import TaskOutcome, score


def outcomes(n: int, clusters: int, *, together: bool) -> list[TaskOutcome]:
    """Half of the tasks are solved: whole clusters of them, or half of each."""
    return [
        TaskOutcome(
            task=str(index),
            split="seeds",
            cluster=str(index % clusters),
            solved=((index % clusters if together else index // clusters) % 2 == 0,),
        )
        for index in range(n)
    ]


def test_tasks_that_stand_alone_give_wilsons_interval() -> None:
    found = score(outcomes(100, 100, together=True))
    assert (found.solve, found.n) == (0.5, 100)
    assert (found.low, found.high) == (pytest.approx(0.404, abs=2e-3), pytest.approx(0.596, abs=2e-3))


def test_clusters_solved_as_a_whole_widen_and_others_do_not_narrow() -> None:
    alone = score(outcomes(100, 100, together=True))
    whole, halves = (score(outcomes(100, 10, together=each)) for each in (True, False))
    assert whole.high - whole.low > 2 * (alone.high - alone.low)
    assert halves.high - halves.low == pytest.approx(alone.high - alone.low, rel=0.01)


def test_passes_over_one_task_are_no_further_tasks() -> None:
    once = [TaskOutcome(task=str(i), split="s", cluster=str(i), solved=(i < 30,)) for i in range(60)]
    twice = [TaskOutcome(task=str(i), split="s", cluster=str(i), solved=(i < 30,) * 2) for i in range(60)]
    assert score(once) == score(twice)


def test_what_was_never_solved_is_not_shown_to_be_impossible() -> None:
    never = [TaskOutcome(task=str(i), split="s", cluster="one", solved=(False,)) for i in range(40)]
    assert score(never).solve == 0.0 and score(never).high > 0.05
