"""The line of a step, from groups and the record of their rewards."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.train.test_learner import session_of, turn_of

from ostinato.store import Ledger, Store
from ostinato.train.base import StepStats
from ostinato.train.figures.batch_figures import part_means, step_figures
from ostinato.types import Group, Reward, RewardPart, Sample, StepFigures

MakeSample = Callable[..., Sample]


def reward(session: str, **parts: float) -> Reward:
    named = tuple(RewardPart(name=name, value=value) for name, value in parts.items())
    return Reward(session_id=session, definition="d", parts=named)


def figures(store: Store, groups: list[Group], stats: StepStats, k1: float = 0.0) -> StepFigures:
    return step_figures(store, groups, stats, version=4, k1=k1, seconds=2.0, waited=6.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store.db")


def test_rewards_are_told_by_part_by_kind_and_by_the_best_of_each_group(
    store: Store, make_sample: MakeSample
) -> None:
    samples = {name: make_sample(i, session=name, version=i) for i, name in enumerate("abcd")}
    for sample in samples.values():
        store.record([turn_of(sample)], (), [session_of(sample)])
    fix = Group(id="1", prompt="1", samples=(samples["a"], samples["b"]), rewards=(1.0, 0.0), kind="fix")
    forked = Group(
        id="2", prompt="2", samples=(samples["c"], samples["d"]), rewards=(0.5, 0.0), kind="add",
        trees=(("c", "d", "e"), ("f",)),
    )  # fmt: skip
    store.record((), (), [replace(session_of(samples["a"]), id=name) for name in "ef"])
    store.add_rewards(
        [reward("a", solved=1.0), reward("d", solved=1.0, effort=-0.5), reward("f", solved=0.0)]
    )
    line = figures(store, [fix, forked], StepStats(tokens=30))
    assert (line.reward, line.best, line.sessions, line.staleness) == (0.375, 0.75, 4, 3)
    assert line.parts == pytest.approx({"solved": 2 / 3, "effort": -0.5 / 3})
    assert {kind: (each.reward, each.best) for kind, each in line.kinds.items()} == {
        "fix": (0.5, 1.0),
        "add": (0.25, 0.5),
    }
    assert (line.idle, line.tokens_a_second, line.k1) == (0.75, 15.0, None)


def test_k1_is_a_part_of_the_reward_where_it_counts(store: Store, make_sample: MakeSample) -> None:
    group = Group(id="1", prompt="1", samples=(make_sample(),), rewards=(1.0,))
    line = figures(store, [group], StepStats(k1=0.5), k1=0.1)
    assert line.k1 == 0.5 and line.parts == {"k1": -0.05} and line.reward == 1.0


def test_a_session_counts_once_with_all_its_segments(store: Store, make_sample: MakeSample) -> None:
    samples = (make_sample(1, session="a"), make_sample(2, session="a"), make_sample(3, session="b"))
    group = Group(id="1", prompt="1", samples=samples, rewards=(1.0, 0.0))
    line = figures(store, [group], StepStats())
    assert line.lengths is not None
    assert line.lengths.most == max(sum(samples[0].mask) + sum(samples[1].mask), sum(samples[2].mask))


def test_a_session_without_a_part_counts_zero_and_none_has_no_parts() -> None:
    assert part_means([reward("a", solved=1.0), reward("b")]) == {"solved": 0.5}
    assert part_means([]) == {}


def test_prompts_that_ended_untrained_are_in_the_line(store: Store, make_sample: MakeSample) -> None:
    Ledger(store).reserve("p")
    Ledger(store).drop("p", "no session could be trained on")
    group = Group(id="1", prompt="1", samples=(make_sample(),), rewards=(1.0,))
    line = figures(store, [group], StepStats())
    assert line.dropped_so_far == {"dropped: no session could be trained on": 1}
