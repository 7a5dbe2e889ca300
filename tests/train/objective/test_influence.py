"""Nobody moves what is learnt by more than the stated bound, however many sessions they bring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.objective.group import above_the_others
from ostinato.train.objective.influence import influence_bound, person_advantages, person_weights

sessions = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["fix", "ask"]), st.floats(0, 1), st.floats(0, 1)),
    min_size=1,
    max_size=40,
)
share = st.floats(0.02, 1.0)


@given(sessions, share)
def test_nobody_weighs_more_than_the_share_or_twice_an_equal_part(
    rows: list[tuple[str, str, float, float]], share: float
) -> None:
    people = [row[0] for row in rows]
    weights = person_weights(people, share)
    assert weights.max() <= 1.0 and weights.min() > 0
    for person in set(people):
        mine = weights[[each == person for each in people]].sum()
        assert mine <= max(share, 2 / len(set(people))) * weights.sum() * (1 + 1e-9)


def test_weights_are_cut_no_further_than_needed() -> None:
    assert person_weights(["a"] * 100 + ["b"] * 100 + ["c"], 0.02).tolist() == [1.0] * 201
    many = person_weights(["a"] * 60 + [f"p{number}" for number in range(60)], 0.1)
    assert many[:60].sum() == pytest.approx(0.1 * many.sum()) and set(many[60:]) == {1.0}


@given(sessions, st.sets(st.sampled_from("abcdef"), min_size=1), share, st.integers(0, 2**32 - 1))
def test_people_who_say_anything_at_all_move_the_gradient_by_no_more_than_the_bound(
    rows: list[tuple[str, str, float, float]], liars: set[str], share: float, seed: int
) -> None:
    """Rewards and scores of the liars are replaced by arbitrary ones; scores have a norm of at most 1."""
    people, strata = [row[0] for row in rows], [row[1] for row in rows]
    weights, rng = person_weights(people, share), np.random.default_rng(seed)

    def directions() -> np.ndarray:
        drawn = rng.normal(size=(len(rows), 3))
        return drawn / np.maximum(1.0, np.linalg.norm(drawn, axis=1, keepdims=True))

    lying = np.array([person in liars for person in people])
    honest_scores, other = directions(), directions()
    lying_scores = np.where(lying[:, None], other, honest_scores)
    honest = np.array([row[2] for row in rows])
    told = np.where(lying, [row[3] for row in rows], honest)
    gradients = [
        (person_advantages(list(r), people, strata, weights)[:, None] * s).sum(axis=0) / weights.sum()
        for r, s in ((honest, honest_scores), (told, lying_scores))
    ]
    moved = np.linalg.norm(gradients[1] - gradients[0])
    assert moved <= influence_bound(people, strata, weights, liars) + 1e-9


def test_a_flood_counts_as_the_share_and_its_bound_does_not_grow() -> None:
    bounds = []
    for flood in (100, 1000, 10_000):
        people = ["liar"] * flood + [f"p{number}" for number in range(200)]
        weights = person_weights(people, 0.05)
        bounds.append(influence_bound(people, ["fix"] * len(people), weights, {"liar"}))
    assert bounds == pytest.approx([bounds[0]] * 3)
    assert bounds[0] < 3.1 * 0.05  # twice what they say, and what they do to the baselines of others


def test_the_baseline_is_of_other_people() -> None:
    one = person_advantages([1.0, 1.0, 0.0, 0.0], list("aabc"), ["fix"] * 4, np.ones(4))
    assert one.tolist() == pytest.approx([1.0, 1.0, -2 / 3, -2 / 3])
    alone = person_advantages([1.0, 0.0, 0.5], list("abb"), ["ask", "fix", "fix"], np.ones(3))
    assert alone.tolist() == pytest.approx([0.75, -1.0, -0.5]), "nobody else fixed anything"
    only_them = person_advantages([1.0, 0.0], list("aa"), ["fix"] * 2, np.ones(2))
    assert only_them.tolist() == [1.0, -1.0]
    assert person_advantages([1.0], ["a"], ["fix"], np.ones(1)).tolist() == [0.0]
    assert len(person_advantages([], [], [], np.ones(0))) == 0


@given(st.lists(st.tuples(st.floats(-2, 2), st.sampled_from("abc")), max_size=20))
def test_strangers_of_one_weight_are_compared_by_leave_one_out_in_every_stratum(
    scored: list[tuple[float, str]],
) -> None:
    rewards, strata = [reward for reward, _ in scored], [stratum for _, stratum in scored]
    people = [str(number) for number in range(len(scored))]
    advantages = person_advantages(rewards, people, strata, np.ones(len(scored)))
    for stratum in set(strata):
        members = [place for place, each in enumerate(strata) if each == stratum]
        if len(members) > 1:
            expected = above_the_others([rewards[place] for place in members])
            assert advantages[members].tolist() == pytest.approx(expected, abs=1e-9)
            assert sum(advantages[members]) == pytest.approx(0, abs=1e-9)


@given(st.floats(-9, 9))
def test_ones_own_reward_is_not_in_the_baseline(mine: float) -> None:
    three = person_advantages([mine, 1.0, 3.0], list("abc"), ["fix"] * 3, np.ones(3))
    assert three[0] == pytest.approx(mine - 2.0)


def test_one_alone_in_its_stratum_is_compared_with_all_others() -> None:
    assert person_advantages([1.0, 0.0, 0.5], list("abc"), ["a", "b", "b"], np.ones(3))[0] == 0.75
