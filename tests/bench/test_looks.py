"""Looks at recorded sessions: right where an order is known, and unknown where few sessions carry it."""

import numpy as np
import pytest

from ostinato.bench.looks import LEAST_SESSIONS, LEVEL, SeenSession, look

USERS, EACH, STEPS = 60, 10, 12


def recorded(
    rng: np.random.Generator,
    shifts: dict[int, float],
    users: int = USERS,
    each: int = EACH,
    steps: int = STEPS,
) -> list[SeenSession]:
    """Return sessions of a policy that tests its work in a step with chance 0.4, which candidates shift.

    A session earns the share of steps with a test, a mood of its person and noise.
    """
    moods = rng.normal(0, 0.3, users)
    found = []
    for user in range(users):
        for tests in rng.binomial(steps, 0.4, each):
            ratios = {}
            for version, shift in shifts.items():
                p = 1 / (1 + np.exp(-(np.log(0.4 / 0.6) + shift)))
                ratios[version] = tests * np.log(p / 0.4) + (steps - tests) * np.log((1 - p) / 0.6)
            reward = tests / steps + moods[user] + rng.normal(0, 0.3)
            found.append(SeenSession(user=f"u{user}", reward=reward, log_ratios=ratios))
    return found


def test_the_order_is_right_far_more_often_than_chance() -> None:
    rng, right, told = np.random.default_rng(1), 0, 0
    for _ in range(200):
        order = look(recorded(rng, {1: -0.3, 2: 0.3}), (1, 2))
        assert all(each.known for each in order.looks)
        right += order.looks[0].version == 2
        told += order.first == 2
        assert order.first != 1
    assert right >= 195 and told >= 120, (right, told)


def test_candidates_that_are_alike_are_rarely_told_apart() -> None:
    """Two that shift what pays nothing, in opposite directions, so that their weights differ."""
    rng, told = np.random.default_rng(2), 0
    for _ in range(400):
        sessions = recorded(rng, {1: -0.3, 2: 0.3})
        noise = [
            SeenSession(user=each.user, reward=rng.normal(), log_ratios=each.log_ratios) for each in sessions
        ]
        told += bool(look(noise, (1, 2)).apart)
    assert told <= 400 * LEVEL + 3 * np.sqrt(400 * LEVEL), told


def test_the_gain_is_covered_by_its_interval() -> None:
    rng, covered = np.random.default_rng(3), 0
    p = 1 / (1 + np.exp(-(np.log(0.4 / 0.6) + 0.3)))
    for _ in range(300):
        gain = look(recorded(rng, {2: 0.3}), (2,)).looks[0].gain
        assert gain is not None
        covered += gain.low <= p - 0.4 <= gain.high
    assert covered >= 300 * 0.9, covered


@pytest.mark.parametrize(
    ("shift", "users", "each", "steps"), [(2.0, USERS, EACH, 40), (0.3, 5, 100, 12), (0.3, 12, 3, 12)]
)
def test_it_is_not_known_where_few_sessions_or_users_carry_it(
    shift: float, users: int, each: int, steps: int
) -> None:
    order = look(recorded(np.random.default_rng(4), {1: 0.0, 2: shift}, users, each, steps), (1, 2))
    assert not order.looks[-1].known and order.first is None and not order.apart


def test_a_candidate_that_is_the_recorded_policy_changes_nothing() -> None:
    (one,) = look(recorded(np.random.default_rng(5), {1: 0.0}), (1,)).looks
    assert one.gain is not None and one.gain.estimate == 0 and one.sessions == USERS * EACH
    assert one.users == USERS and one.cut == 0 and one.sessions > LEAST_SESSIONS


def test_without_sessions_nothing_is_known() -> None:
    order = look([], (1, 2))
    assert not any(each.known for each in order.looks) and order.first is None
