"""A candidate goes to people in steps; each step may take it back, and only the split may promote it."""

from collections.abc import Iterator
from dataclasses import replace
from math import log
from pathlib import Path
from random import Random

import pytest

from ostinato.deploy.budget import next_alpha
from ostinato.deploy.control import CycleControl, say
from ostinato.deploy.release import BEFORE_SPLIT, ReleasePlan, end, guard, plan_of, widen
from ostinato.deploy.terms import Attendance, Trial, TrialSession
from ostinato.deploy.traffic import promoted, restored
from ostinato.gateway.arms import assign
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction
from ostinato.store.releases import ReleaseStage, last_release
from ostinato.types import Arm, Decision, Verdict

TRIAL = Trial(experiment="e1", share=0.5, horizon=800, alpha=0.02, guardrails={"complaints": 0.1})
EARLY = {"complaints": 0.1, "failed": 0.05}
PLAN = plan_of(TRIAL, canary=(0.1, 400), ramp=(0.25,), early=EARLY)
ARMS = (
    Arm(name="champion", version=1, share=1.0, engines=("http://a:1",), experiment="e1"),
    Arm(name="challenger", version=2, share=0.0, engines=("http://b:1",), experiment="e1"),
)
PEOPLE = [f"person-{number}" for number in range(400)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    store.set_arms(ARMS)
    yield store
    store.close()


def met(store: Store) -> set[str]:
    """Return the people whom a gateway sends to the challenger's version."""
    return {each for each in PEOPLE if assign(each, store.arms(), "salt").version == 2}


def canary(worth: float = 0.5, *, seed: int = 1, complaints: float = 0.05, failed: float = 0.0) -> Verdict:
    """A canary of 200 people with two sessions each, 20 of them on the challenger."""
    rng = Random(seed)
    sessions = [
        TrialSession(
            arm="challenger" if theirs else "champion",
            user=str(user),
            at=rng.random(),
            value=rng.gauss(worth if theirs else 0.5, 0.3),
            tokens=10.0,
            harms={
                "complaints": float(rng.random() < (complaints if theirs else 0.05)),
                "failed": float(rng.random() < (failed if theirs else 0.0)),
            },
        )
        for user in range(200)
        for theirs in [user % 10 == 0]
        for _ in range(2)
    ]
    return guard(7, PLAN.trial_of(0), sessions, sessions, {})


def test_a_plan_widens_to_the_split_and_shares_the_chance_of_a_false_roll_back() -> None:
    assert [(step.stage, step.share, step.sessions) for step in PLAN.steps] == [
        (ReleaseStage.CANARY, 0.1, 400),
        (ReleaseStage.RAMP, 0.25, 400),
        (ReleaseStage.SPLIT, 0.5, 800),
    ]
    assert PLAN.trial_of(0).harm + PLAN.trial_of(1).harm == pytest.approx(BEFORE_SPLIT)
    assert PLAN.trial_of(2) == TRIAL and PLAN.trial_of(0).guardrails == EARLY
    assert len(plan_of(TRIAL, canary=(0.1, 0), ramp=(0.25,)).steps) == 1
    with pytest.raises(ValueError, match="widens from step to step"):
        plan_of(TRIAL, canary=(0.6, 400), ramp=())


def test_a_canary_promotes_nobody_and_spends_none_of_the_budget() -> None:
    better = canary(5.0)
    assert better.decision is Decision.HOLD and "no harm shown" in better.reason
    assert next_alpha([better]) == next_alpha([])


def test_a_canary_that_is_worse_is_rolled_back_and_an_equal_one_is_not() -> None:
    assert canary(0.0).decision is Decision.ROLL_BACK
    assert sum(canary(seed=seed).decision is Decision.ROLL_BACK for seed in range(60)) <= 6


@pytest.mark.parametrize("harm", ["complaints", "failed"])
def test_harm_shows_before_any_reward_is_settled(harm: str) -> None:
    about = {harm: 0.9}
    verdict = canary(0.5, **about)
    assert verdict.decision is Decision.ROLL_BACK and harm in verdict.reason
    ended = [
        TrialSession(
            arm="challenger" if user % 10 == 0 else "champion",
            user=str(user),
            at=0.0,
            value=0.0,
            tokens=0.0,
            harms={name: float(name == harm and user % 10 == 0) for name in EARLY},
        )
        for user in range(200)
    ]
    assert guard(7, PLAN.trial_of(0), ended, [], {}).decision is Decision.ROLL_BACK


def came(leave: float, seed: int) -> Verdict:
    """A canary of 400 people, 80 of them on the challenger, where they leave after a session with a chance of
    0.05, with the challenger of `leave`; nothing else differs."""
    rng, sessions, attendance = Random(seed), [], []
    for number in range(400):
        arm, chance = ("challenger", leave) if number % 5 == 0 else ("champion", 0.05)
        times, keen = 0, rng.choice((2, 4, 12))
        while times < keen:
            times += 1
            at, worth = rng.random(), rng.gauss(0.5, 0.3)
            harms = {"complaints": float(rng.random() < 0.05), "failed": 0.0}
            sessions.append(
                TrialSession(arm=arm, user=str(number), at=at, value=worth, tokens=10.0, harms=harms)
            )
            if rng.random() < chance:
                break
        attendance.append(Attendance(arm=arm, user=str(number), sessions=times, earlier=keen))
    plan = plan_of(TRIAL, canary=(0.2, len(sessions)), ramp=(), early={**EARLY, "sessions": log(1.25)})
    return guard(7, plan.trial_of(0), sessions, sessions, {}, attendance=attendance)


def test_people_who_leave_are_seen_by_a_canary() -> None:
    left = [came(0.3, seed) for seed in range(40)]
    assert sum(each.decision is Decision.ROLL_BACK for each in left) >= 32
    assert "guardrail, mean over users: sessions rose by" in left[0].reason
    equal = [came(0.05, seed).decision for seed in range(40)]
    assert equal.count(Decision.ROLL_BACK) <= 2


def test_few_people_and_people_on_both_arms_are_said() -> None:
    few = [TrialSession(arm="challenger", user="ada", at=0.0, value=0.0, tokens=0.0)]
    assert "too few users" in guard(7, PLAN.trial_of(0), few, few, {}).reason
    both = [*few, replace(few[0], arm="champion")]
    assert "met both arms" in guard(7, PLAN.trial_of(0), both, both, {}).evidence["void"]


def test_a_wider_step_keeps_whoever_met_the_challenger(store: Store) -> None:
    people: list[set[str]] = []
    for number in range(3):
        widen(store, PLAN, number, ARMS)
        people.append(met(store))
    assert people[0] < people[1] < people[2]
    shares = [len(each) / len(PEOPLE) for each in people]
    assert shares == pytest.approx([0.1, 0.25, 0.5], abs=0.06)


@pytest.mark.parametrize("word", [CycleAction.ROLL_BACK, CycleAction.ABORT])
def test_the_kill_switch_takes_the_traffic_at_once_and_no_process_gives_it_back(
    store: Store, word: CycleAction
) -> None:
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "release")
    widen(store, PLAN, 0, ARMS)
    assert met(store)
    say(store, word, "ada", "it deletes files")
    assert not met(store)
    for number in range(3):  # a cycle that has not read the word yet
        assert widen(store, PLAN, number, ARMS).stage is ReleaseStage.OVER
    end(store, "e1", promoted(ARMS), "promote: better")
    assert not met(store)
    over = last_release(store, "e1")
    assert over is not None and over.detail == f"ada said {word.value}: it deletes files"


def test_an_end_gives_everybody_one_version(store: Store) -> None:
    widen(store, PLAN, 0, ARMS)
    end(store, "e1", promoted(ARMS), "promote")
    assert met(store) == set(PEOPLE)
    widen(store, PLAN, 0, tuple(replace(arm, experiment="e2") for arm in ARMS))  # type: ignore[arg-type]
    assert met(store) == set(PEOPLE), "an experiment that is over stays over"


def test_a_release_goes_on_at_its_step(store: Store) -> None:
    widen(store, PLAN, 0, ARMS)
    began = widen(store, PLAN, 1, ARMS)
    store.set_arms([replace(arm, share=0.0, engines=()) for arm in ARMS])  # a new process starts the engines
    assert widen(store, PLAN, began.step, ARMS) == began
    assert len(met(store)) > 50


def test_the_plan_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match="its shares are"):
        ReleasePlan(trial=TRIAL, steps=())


def test_restored_arms_leave_no_key_on_the_version_that_failed() -> None:
    assert {arm.version for arm in restored(ARMS)} == {1}
