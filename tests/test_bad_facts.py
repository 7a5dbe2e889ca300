"""Facts, people and clocks that do not behave: nothing is lost, and nobody is counted twice.

Covers deploy/control.py, gateway/arms.py, loop/cycle.py, loop/stages/late.py, loop/trial.py and
rollout/collect.py where they meet. Others are
shown elsewhere: outcomes that never come, come after a purge or cannot be read, a demotion beside a
promotion, and two words on a promotion in `loop/stages/test_late.py`; outcomes that contradict each other in
`rewards/live/test_outcomes.py`; an outcome in a reward in `rewards/live/test_definition.py`; another budget
rule in `deploy/test_budget.py`; a demotion while a release is under way in `loop/test_release.py`; and a
background task whose machine dies in `harness/frontends/background/test_background.py`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.store.builders import session, turn

from ostinato.deploy.control import CycleControl, CycleWordError, say
from ostinato.deploy.terms import Trial
from ostinato.deploy.traffic import split
from ostinato.gateway.arms import assign
from ostinato.loop.config import RunConfig, ScheduleConfig
from ostinato.loop.cycle import Cycle
from ostinato.loop.stages import late
from ostinato.loop.stages.late import LateFacts
from ostinato.loop.trial import attended, observe
from ostinato.rewards.live.definition import LIVE, LiveDefinition
from ostinato.rollout.collect import Collector
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.store.releases import last_release
from ostinato.types import Arm, Ending, Signal, SignalKind, Verdict
from ostinato_lab.week.clock import run_virtually

HOURS = 4
EXPERIMENT = f"trial@{HOURS}h.5ec"
TRIAL = Trial(experiment="e1", share=0.5, horizon=100, alpha=0.02)
ARMS = (
    Arm(name="champion", version=1, share=0.5, engines=("http://a:1",), experiment="e1"),
    Arm(name="challenger", version=2, share=0.5, engines=("http://b:1",), experiment="e1"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def live(store: Store, id: str, at: float, *signals: Signal, **about: object) -> None:
    """An ended session of a person who agreed, of one turn that began `at`."""
    told = {"user": "ada", "consent": True, "ending": Ending.FINISHED, "arm": "champion"} | about
    store.record([replace(turn(0, id), started_at=at)], signals, [session(id, started_at=at, **told)])


def test_who_changes_organisation_stays_one_person_and_each_session_has_its_own_consent(store: Store) -> None:
    """The gateway knows the person by their name, so they stay on their arm."""
    store.accounts.set_consent(organisation="acme", granted=True, by="legal")
    store.accounts.set_consent(organisation="acme", user="ada", granted=True, by="ada")
    store.accounts.set_consent(organisation="other", user="ada", granted=False, by="ada")
    live(store, "before", 1000.0, organisation="acme")
    live(store, "after", 2000.0, organisation="other")
    (came,) = attended(store, TRIAL, 0.0, 3000.0)
    assert (came.user, came.sessions) == ("ada", 2)
    assert {each.user for each in observe(store, LIVE, store.sessions(), 1e12)} == {"ada"}
    harvest = Collector(store, LIVE).harvest(["champion"], as_of=1e12)
    assert (harvest.offered, harvest.withheld) == (1, 1)
    assert store.rewards("before") and not store.rewards("after")


def test_a_session_across_the_boundary_of_a_block_is_of_the_block_in_which_it_began() -> None:
    """However late its turns come, the session's beginning decides, so it stays on its arm."""
    arms = [replace(arm, experiment=EXPERIMENT) for arm in ARMS]
    boundary = 100 * HOURS * 3600.0
    differing = 0
    for number in range(200):
        before = assign(f"u{number}", arms, "salt", session="long", at=boundary - 1)
        earlier = assign(f"u{number}", arms, "salt", session="short", at=boundary - HOURS * 3600)
        after = assign(f"u{number}", arms, "salt", session="next", at=boundary)
        assert before == earlier
        differing += before != after
    assert 70 < differing < 130


def test_a_clock_that_jumped_delays_a_session_and_loses_none(store: Store) -> None:
    """A session that is dated tomorrow waits for its window, and a fact from before its session counts."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    now = time.time()
    kept = Signal(session_id="ahead", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=now)
    live(store, "ahead", now + 86_400, kept)
    live(store, "here", now - 2 * LIVE.mature_s)
    collector = Collector(store, LIVE)
    first = collector.harvest(["champion"], as_of=now)
    assert (first.offered, first.censored) == (1, 1)
    (came,) = attended(store, TRIAL, 0.0, now)  # as if it had not begun
    assert came.sessions == 1
    later = collector.harvest(["champion"], as_of=now + 86_400 + LIVE.mature_s + 60)
    assert later.offered == 2 and store.rewards("ahead")[-1].parts[0].evidence == (kept.id,)


@pytest.mark.parametrize("ahead_s", [-30.0, 86_400.0 * 30])
def test_after_a_clock_was_put_back_the_next_cycle_waits_for_no_more_than_the_schedule(
    tmp_path: Path, ahead_s: float
) -> None:
    """The cycle before began `ahead_s` after now by the clock of now."""

    async def waited(now: Callable[[], float]) -> float:
        store, began = Store.open(tmp_path / "virtual.db", now), now()
        config = RunConfig(schedule=ScheduleConfig(every_s=300.0))
        resources: Any = SimpleNamespace(config=config, store=store, poll_s=1.0)
        before: Any = SimpleNamespace(began_at=began + ahead_s, ended_at=began)
        nothing: Any = None
        done = await Cycle(resources, nothing, nothing, nothing, [before])._begin()
        return done.at - began

    assert run_virtually(1.8e9, waited) == pytest.approx(300.0 + min(0.0, ahead_s), abs=1)


def test_outcomes_are_read_again_after_a_clock_was_put_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = [1.8e9], list[float]()

    def settles(_store: Store, _definition: LiveDefinition, *, as_of: float) -> list[Verdict]:
        seen.append(as_of)
        return []

    monkeypatch.setattr(late, "settle_promotions", settles)
    clock: Any = SimpleNamespace(now=lambda: now[0], clock=lambda: now[0])
    monkeypatch.setattr(store, "now", clock.now)
    facts = LateFacts(SimpleNamespace(config=RunConfig(), store=store, show=None), clock)  # type: ignore[arg-type]
    for jump_s in (0.0, 1.0, 86_400.0 * 30, -86_400.0 * 30, 3600.0):
        now[0] += jump_s
        facts.fallen()
    assert seen == [1.8e9, 1.8e9 + 86_400 * 30, 1.8e9, 1.8e9 + 3600]


@pytest.mark.parametrize("organisation", ["acme", "other"])
def test_who_comes_back_in_another_organisation_has_come_back(store: Store, organisation: str) -> None:
    live(store, "before", 1000.0, organisation="acme")
    live(store, "after", 2000.0, organisation=organisation)
    live(store, "bob", 3000.0, organisation="acme", user="bob")
    assert late._next_sessions(store, 0.0) == {"before": 2000.0}


@pytest.mark.parametrize("roll_back_first", [True, False])
def test_of_two_words_at_once_the_roll_back_holds_and_both_operators_hear_of_it(
    store: Store, roll_back_first: bool
) -> None:
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "ab")
    split(store, ARMS)
    words = [(CycleAction.ROLL_BACK, "ada"), (CycleAction.PROMOTE, "bob")]
    for action, by in words if roll_back_first else words[::-1]:
        if roll_back_first and action is CycleAction.PROMOTE:
            with pytest.raises(CycleWordError, match="no trial is under way"):
                say(store, action, by, "")
        else:
            say(store, action, by, "")
    word = CycleControl(store, "cycle-1").word()
    assert word is not None and (word.action, word.by) == (CycleAction.ROLL_BACK, "ada")
    ended = last_release(store, "e1")
    assert ended is not None and ended.detail.startswith("ada said roll_back")
    said = [entry.by for entry in cycle_log(store) if entry.by != "cycle"]
    assert said == (["ada"] if roll_back_first else ["bob", "ada"])
