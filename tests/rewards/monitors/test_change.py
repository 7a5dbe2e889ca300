"""A change is found where there is one, and false alarms are no more frequent than stated."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from ostinato.rewards.monitors.change import Cusum, Resampled, shift

RUNS = 200


def people(chance: np.random.Generator, count: int, rate: float) -> list[tuple[str, float]]:
    """Sessions of people with habits of their own and unequal activity, by the rate of a behaviour."""
    rows = []
    for person in range(count):
        habit = chance.beta(4 * rate, 4 * (1 - rate))
        sessions = min(40, 1 + int(chance.pareto(1.5) * 3))
        rows += [(f"p{person}", float(chance.random() < habit)) for _ in range(sessions)]
    return rows


def test_without_a_change_the_alarm_is_as_rare_as_stated() -> None:
    """Habits and activity differ by person, which a test that counts sessions would take for a change."""
    chance = np.random.default_rng(7)
    false = sum(
        shift(people(chance, 20, 0.3), people(chance, 20, 0.3), seed=run).p <= 0.05 for run in range(RUNS)
    )
    assert stats.binomtest(false, RUNS, 0.05, alternative="greater").pvalue > 0.001


def test_a_planted_change_is_found() -> None:
    chance = np.random.default_rng(8)
    found = [shift(people(chance, 40, 0.1), people(chance, 40, 0.6), seed=run) for run in range(20)]
    assert sum(each.p <= 0.01 for each in found) >= 18 and all(each.rise > 0 for each in found)


def test_the_chance_is_that_of_a_permutation_test() -> None:
    """Against scipy, with one session a person so that both count the same thing."""
    chance = np.random.default_rng(9)
    before, after = chance.normal(0, 1, 15), chance.normal(0.8, 1, 12)
    ours = shift([(str(i), v) for i, v in enumerate(before)], [(str(i), v) for i, v in enumerate(after)])

    def difference(a: np.ndarray, b: np.ndarray) -> float:
        return abs(float(b.mean() - a.mean()))

    theirs = stats.permutation_test(
        (before, after), difference, n_resamples=20_000, alternative="greater", rng=chance
    )
    assert ours.p == pytest.approx(theirs.pvalue, abs=0.02)
    assert ours.rise == pytest.approx(after.mean() - before.mean())


def test_an_empty_side_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0 and 1"):
        shift([], [("a", 1.0)])


def each_another(history: Sequence[float], *, horizon: int, alarm_rate: float = 0.01, seed: int = 0) -> Cusum:
    """A watch over a history in which every session is of a person of its own."""
    people = [str(number) for number in range(len(history))]
    return Cusum(history, Resampled.of(people, horizon=horizon, paths=500, seed=seed), alarm_rate=alarm_rate)


def test_a_stream_without_a_change_sounds_as_rarely_as_stated() -> None:
    chance = np.random.default_rng(10)
    false = 0
    for run in range(RUNS):
        watch = each_another(list(chance.normal(0, 1, 200)), horizon=100, alarm_rate=0.05, seed=run)
        false += any(watch.add(value) for value in chance.normal(0, 1, 100))
    assert stats.binomtest(false, RUNS, 0.05, alternative="greater").pvalue > 0.001


def test_people_who_bring_many_sessions_are_no_change() -> None:
    """As in `people`, habits and activity differ; the people of the stream are new ones."""
    chance = np.random.default_rng(12)
    false = naive = 0
    for run in range(RUNS):
        history, stream = people(chance, 40, 0.3), people(chance, 40, 0.3)
        names, values = [name for name, _ in history], [value for _, value in history]
        watch = Cusum(values, Resampled.of(names, horizon=len(stream), paths=500, seed=run), alarm_rate=0.05)
        false += any(watch.add(value) for _, value in stream)
        alone = each_another(values, horizon=len(stream), alarm_rate=0.05, seed=run)
        naive += any(alone.add(value) for _, value in stream)
    assert stats.binomtest(false, RUNS, 0.05, alternative="greater").pvalue > 0.001
    assert stats.binomtest(naive, RUNS, 0.05, alternative="greater").pvalue < 0.001  # what they are drawn for


def test_a_stream_is_of_whole_people() -> None:
    names = [f"p{number % 5}" for number in range(30)]
    drawn = Resampled.of(names, horizon=60, paths=50)
    assert drawn.streams.shape == (50, 60)
    assert (drawn.drawn[:, :5].sum(axis=1) == 5).all() and (drawn.drawn[:, 5:] == 1).all()
    for stream in drawn.streams:
        times = np.bincount(stream, minlength=32)[:30].reshape(6, 5)
        assert sum(len(set(of_one)) > 1 for of_one in times.T) <= 2  # the last one of each part may be cut


def test_a_stream_longer_than_the_history_is_several_in_its_order() -> None:
    (stream,) = Resampled.of([str(number) for number in range(50)], horizon=2_000, paths=1).streams
    parts = [stream[start : start + 52] for start in range(0, 2_000, 52)]
    assert all((np.diff(part) >= 0).all() for part in parts)
    assert len({tuple(part) for part in parts}) == len(parts)


def test_the_change_point_is_near_the_change() -> None:
    chance = np.random.default_rng(11)
    watch = each_another(list(chance.normal(0, 1, 200)), horizon=200)
    stream = [*chance.normal(0, 1, 100), *chance.normal(1.5, 1, 100)]
    sounded = next(n for n, value in enumerate(stream) if watch.add(value))
    assert 100 <= sounded <= 120
    assert watch.began is not None and 90 <= watch.began <= 110


def test_what_was_never_seen_is_not_an_alarm_the_first_time() -> None:
    watch = each_another([0.0] * 200, horizon=200)
    assert not watch.add(1.0)
    assert any(watch.add(1.0) for _ in range(20))


def test_too_short_a_history_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 20"):
        each_another([0.0] * 19, horizon=10)


def test_the_limit_of_a_small_rate_is_the_largest_path_and_a_smaller_rate_is_refused() -> None:
    people = [str(number) for number in range(40)]
    resampled = Resampled.of(people, horizon=20, paths=500, seed=1)
    history = list(np.random.default_rng(4).normal(0, 1, 40))
    limits = [Cusum(history, resampled, alarm_rate=rate).limit for rate in (1 / 501, 1.9 / 501, 2 / 501)]
    assert limits[0] == limits[1] > limits[2]
    with pytest.raises(ValueError, match="500 paths"):
        Cusum(history, resampled, alarm_rate=0.9 / 501)
