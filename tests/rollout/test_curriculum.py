"""The order of problems: as they come, or hard strata more often late in training, and none twice."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from fuzz.practice import KINDS, problem

from ostinato.rollout.curriculum import Curriculum, hardness
from ostinato.store.ledger.slots import KindEffort
from ostinato.tasks.source import Problem, SourceError

EFFORTS = {
    "fix": KindEffort(sessions=9, turns=2.0, thinking=10.0),
    "spread": KindEffort(sessions=9, turns=8.0, thinking=70.0),
    "question": KindEffort(sessions=9, turns=2.0, thinking=10.0),
}


def curriculum(
    problems: Iterator[Problem],
    *,
    harder: float = 0.0,
    progress: float = 0.0,
    efforts: Mapping[str, KindEffort] = EFFORTS,
) -> Curriculum:
    return Curriculum(problems, harder=harder, seed=3, progress=lambda: progress, efforts=lambda: efforts)


def endless() -> Iterator[Problem]:
    return map(problem, range(10_000))


def drawn(one: Curriculum, count: int) -> list[str]:
    return [each.key for each in islice(iter(one.draw, None), count)]


def test_problems_come_in_the_order_of_their_stream() -> None:
    assert drawn(curriculum(endless()), 5) == [f"p{i}" for i in range(5)]
    assert drawn(curriculum(endless(), harder=9.0, progress=0.4), 5) == [f"p{i}" for i in range(5)]


def test_hard_strata_are_drawn_more_often_late_in_training() -> None:
    """The weight of `spread` is 1 + 9 · (2.17 - 1) at the end, so it is 11.5 of 13.5 of what is drawn."""
    early, late = (
        Counter(each.kind for each in islice(iter(one.draw, None), 600))
        for one in (curriculum(endless(), harder=9.0, progress=at) for at in (0.5, 1.0))
    )
    assert early == dict.fromkeys(KINDS, 200)
    assert 470 < late["spread"] < 550 and min(late.values()) > 20


def test_every_problem_is_drawn_once_and_those_passed_over_come_last() -> None:
    keys = drawn(curriculum(map(problem, range(300)), harder=9.0, progress=1.0), 400)
    assert sorted(keys) == sorted(f"p{i}" for i in range(300))
    assert keys != sorted(keys, key=lambda key: int(key[1:]))


def test_a_stream_that_ends_with_an_error_gives_first_what_was_passed_over() -> None:
    def ending() -> Iterator[Problem]:
        yield from map(problem, range(30))
        raise SourceError("the sources have no more tasks")

    one = curriculum(ending(), harder=9.0, progress=1.0)
    assert len({one.draw() for _ in range(30)}) == 30
    with pytest.raises(SourceError, match="no more tasks"):
        one.draw()


def test_problems_that_were_planned_before_are_found_and_drawing_goes_on_behind_them() -> None:
    one = curriculum(endless())
    assert set(one.find(["p7", "p2"])) == {"p2", "p7"}
    assert drawn(one, 3) == ["p8", "p9", "p10"]


def test_what_was_passed_over_here_is_found_when_another_sampler_leaves_it() -> None:
    one = curriculum(endless())
    assert set(one.find(["p7"])) == {"p7"}
    assert set(one.find(["p2", "p9"])) == {"p2", "p9"}
    assert drawn(one, 2) == ["p10", "p11"]
    late = curriculum(map(problem, range(30)), harder=9.0, progress=1.0)
    first = late.draw()
    assert first is not None and first.key != "p0"
    assert set(late.find(["p0"])) == {"p0"}
    assert "p0" not in drawn(late, 40)


def test_a_problem_that_the_stream_lacks_is_left_out() -> None:
    one = curriculum(map(problem, range(5)))
    assert set(one.find(["p2", "gone"])) == {"p2"}
    assert drawn(one, 9) == ["p0", "p1", "p3", "p4"]


def test_a_restart_goes_on_as_the_run_would_have() -> None:
    """Though the efforts, by which earlier problems were passed over, are others by then."""
    one = curriculum(endless(), harder=5.0, progress=0.6)
    planned = drawn(one, 15)
    again = curriculum(endless(), harder=5.0, progress=0.9)
    assert list(again.find(planned)) == planned
    one._progress = again._progress
    assert drawn(one, 25) == drawn(again, 25)


def test_hardness_is_relative_to_the_mean_of_the_strata() -> None:
    assert hardness({}) == {}
    assert hardness(EFFORTS)["spread"] == (8 / 4 + 70 / 30) / 2
    silent = {
        name: KindEffort(sessions=1, turns=turns, thinking=0.0) for name, turns in (("a", 1.0), ("b", 3.0))
    }
    assert hardness(silent) == {"a": 0.5, "b": 1.5}
