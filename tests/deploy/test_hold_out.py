"""The hold-out stays as it is through split, promotion and roll-back, and shows the sum of promotions."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ostinato.deploy.gate import GateError
from ostinato.deploy.hold_out import (
    FIRST,
    NEWEST,
    hold_out_arms,
    solved_interval,
    sum_of_promotions,
    sum_on_tasks,
)
from ostinato.deploy.outcomes import Measurement, TaskOutcome
from ostinato.deploy.terms import TrialSession
from ostinato.deploy.traffic import promoted, restored, split
from ostinato.gateway.arms import assign
from ostinato.store import Store
from ostinato.types import Arm, Report

PEOPLE = [f"person-{number}" for number in range(1500)]
CHALLENGER = Arm(name="challenger", version=2, share=0.5, engines=("http://b:1",))
CHAMPION = Arm(name="champion", version=1, share=1.0, engines=("http://a:1",))


def met(store: Store) -> dict[str, str]:
    return {each: assign(each, store.arms(), "salt").name for each in PEOPLE}


def held_out(store: Store) -> dict[str, str]:
    return {each: arm for each, arm in met(store).items() if arm in {FIRST, NEWEST}}


def test_who_is_held_out_never_changes_and_meets_no_trial(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.set_arms([CHAMPION, *hold_out_arms(replace(CHAMPION, name=FIRST), CHAMPION, 0.1)])
    people = held_out(store)
    assert 0.07 < len(people) / len(PEOPLE) < 0.13
    assert 0.35 < list(people.values()).count(FIRST) / len(people) < 0.65
    version = 1
    for number in range(3):
        arms = [
            replace(CHAMPION, version=version, share=0.5, experiment=f"e{number}"),
            Arm(
                name="challenger",
                version=version + 1,
                share=0.5,
                engines=("http://b:1",),
                experiment=f"e{number}",
            ),
        ]
        split(store, arms)
        assert held_out(store) == people
        trial = [arm for arm in met(store).values() if arm not in {FIRST, NEWEST}]
        assert 0.45 < trial.count("challenger") / len(trial) < 0.55
        split(store, (restored if number == 1 else promoted)(arms))
        version += number != 1
        versions = {arm.name: (arm.version, arm.share) for arm in store.arms()}
        assert versions[FIRST] == (1, 0.05) and versions[NEWEST] == (version, 0.05)
        assert held_out(store) == people
    store.close()


def sessions(change: float, users: int = 30) -> list[TrialSession]:
    rng = Random(1)
    return [
        TrialSession(
            arm=arm, user=f"{arm}-{user}", at=rng.random(), value=rng.gauss(0.5 + worth, 0.3), tokens=1.0
        )
        for arm, worth in ((FIRST, 0.0), (NEWEST, change))
        for user in range(users)
        for _ in range(10)
    ]


def test_the_sum_of_promotions_is_shown_with_its_interval() -> None:
    better, equal = (sum_of_promotions(sessions(change), {}) for change in (0.4, 0.0))
    assert better.change is not None and better.change.low > 0 and "newest version against" in str(better)
    assert equal.change is not None and equal.change.low < 0 < equal.change.high
    few = sum_of_promotions(sessions(0.4, users=3), {})
    assert few.change is None and "too few" in str(few) and few.users == {FIRST: 3, NEWEST: 3}
    assert sum_of_promotions([], {}).change is None


def measured(rng: Random, version: int, solves: float, tasks: int = 120) -> Measurement:
    outcomes = tuple(
        TaskOutcome(
            task=f"t{number}",
            split="seeds",
            cluster=f"c{number // 3}",
            solved=(rng.random() < solves, rng.random() < solves),
        )
        for number in range(tasks)
    )
    return Measurement(report=Report(version=version, scores={}, rates={}), outcomes=outcomes)


def test_frozen_tasks_show_the_sum_of_promotions_too() -> None:
    rng = Random(2)
    first, better = measured(rng, 0, 0.4), measured(rng, 9, 0.8)
    assert sum_on_tasks(first, better, 1).startswith("version 9 against the first: +0.3")
    with pytest.raises(GateError, match="did not do the same"):
        sum_on_tasks(first, measured(rng, 9, 0.8, tasks=60), 1)


def test_its_intervals_hold_at_all_promotions_together() -> None:
    """Of 300 runs of ten promotions of equal versions at most 5 % may ever leave out the truth."""
    rng, left_out = Random(3), 0
    for _ in range(300):
        first = measured(rng, 0, 0.5, tasks=60)
        looks = (solved_interval(first, measured(rng, 1, 0.5, tasks=60), k) for k in range(1, 11))
        left_out += any(not look.low <= 0 <= look.high for look in looks)
    assert left_out <= 0.05 * 300 + 2 * (0.05 * 0.95 * 300) ** 0.5
