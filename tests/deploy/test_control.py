"""The word of a person reaches a cycle through its log, whichever process dies in between.

Covers store/cycle_log.py: what was logged is read back in order.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.deploy.control import CycleControl, CycleState, CycleWordError, say, state_of
from ostinato.deploy.traffic import split
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, cycle_log, log_cycle, said_now
from ostinato.types import Arm


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def in_trial(store: Store) -> None:
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "ab")
    split(
        store,
        [
            Arm(name="champion", version=1, share=0.9, engines=("http://a:1",), experiment="x"),
            Arm(name="challenger", version=2, share=0.1, engines=("http://b:1",), experiment="x"),
        ],
    )


def entry(action: CycleAction, cycle: str = "cycle-1", detail: str = "") -> CycleEntry:
    return said_now("ada", action, cycle, detail)


def test_the_log_is_the_audit_trail(store: Store) -> None:
    said = entry(CycleAction.PAUSE, detail="a holiday")
    log_cycle(store, said)
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "gate")
    first, second = cycle_log(store)
    assert first == said and (second.by, second.detail) == ("cycle", "gate")
    assert cycle_log(store, since=second.at + 1) == []


def test_the_state_follows_from_the_log() -> None:
    began, done = entry(CycleAction.STAGE_BEGAN, detail="gate"), entry(CycleAction.CYCLE_DONE)
    abort, pause = entry(CycleAction.ABORT), entry(CycleAction.PAUSE)
    assert state_of([]) == CycleState()
    assert state_of([began, abort, pause]) == CycleState(
        cycle="cycle-1", stage="gate", paused=True, word=abort
    )
    assert state_of([began, pause, entry(CycleAction.RESUME)]).paused is False
    assert state_of([began, abort, done]) == CycleState(cycle="cycle-1")
    after_a_kill = [began, abort, entry(CycleAction.STAGE_BEGAN, "cycle-2", "live")]
    assert state_of(after_a_kill).word is None  # the word was about the candidate before


def test_a_trial_and_the_cycle_beside_it_have_words_of_their_own(store: Store) -> None:
    cycle, trial = CycleControl(store, "cycle-2"), CycleControl(store, "trial-of-4")
    trial.log(CycleAction.TRIAL_OPENED, "version 4 against version 0")
    cycle.log(CycleAction.STAGE_BEGAN, "live")
    trial.log(CycleAction.STAGE_BEGAN, "release")
    state = state_of(cycle_log(store))
    assert (state.cycle, state.stage, state.trial, state.trial_stage) == (
        "cycle-2",
        "live",
        "trial-of-4",
        "release",
    )
    said = say(store, CycleAction.ROLL_BACK, "ada", "it deletes files")
    assert (trial.word(), cycle.word()) == (said, None)
    trial.log(CycleAction.TRIAL_CLOSED, "roll_back")
    assert state_of(cycle_log(store)).word is None
    assert cycle.word() is None and say(store, CycleAction.ABORT, "ada", "") == cycle.word()


def test_a_word_that_nothing_can_obey_is_refused_and_not_logged(store: Store) -> None:
    with pytest.raises(CycleWordError, match="no cycle is under way"):
        say(store, CycleAction.ABORT, "ada", "")
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "gate")
    with pytest.raises(CycleWordError, match="no trial is under way"):
        say(store, CycleAction.PROMOTE, "ada", "")
    assert [each.action for each in cycle_log(store)] == [CycleAction.STAGE_BEGAN]


@pytest.mark.parametrize("action", [CycleAction.ROLL_BACK, CycleAction.ABORT])
def test_a_roll_back_takes_the_traffic_at_once_even_if_no_cycle_lives(
    store: Store, action: CycleAction
) -> None:
    in_trial(store)
    say(store, action, "ada", "it deletes files")
    champion, challenger = store.arms()
    assert (champion.share, champion.experiment) == (1.0, "")
    assert (challenger.share, challenger.version) == (0.0, 1)  # a pinned key is not left on it either
    word = CycleControl(store, "cycle-1").word()
    assert word is not None and (word.by, word.detail) == ("ada", "it deletes files")


def test_a_roll_back_takes_the_challenger_away_whatever_the_order_of_the_arms(store: Store) -> None:
    in_trial(store)
    store.set_arms(store.arms()[::-1])
    say(store, CycleAction.ROLL_BACK, "ada", "it deletes files")
    assert {arm.name: (arm.version, arm.share) for arm in store.arms()} == {
        "champion": (1, 1.0),
        "challenger": (1, 0.0),
    }


async def test_a_slow_decision_is_asked_for_less_often_and_words_are_heard_meanwhile(store: Store) -> None:
    in_trial(store)
    control, asked = CycleControl(store, "cycle-1", poll_s=0.001), 0

    async def decided() -> bool:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.05)
        say(store, CycleAction.ABORT, "ada", "")
        return False

    async with asyncio.timeout(300):
        word = await control.unless(asyncio.Event().wait(), decided)  # type: ignore[arg-type]
    assert word is not None and word.action is CycleAction.ABORT and asked == 1


def test_a_promotion_by_hand_waits_for_the_cycle_to_act(store: Store) -> None:
    in_trial(store)
    say(store, CycleAction.PROMOTE, "ada", "")
    assert [arm.share for arm in store.arms()] == [0.9, 0.1]


async def test_a_paused_cycle_begins_no_stage(store: Store) -> None:
    control = CycleControl(store, "cycle-1", poll_s=0.001)
    say(store, CycleAction.PAUSE, "ada", "")
    waiting = asyncio.ensure_future(control.go_on())
    await asyncio.sleep(0)
    assert not waiting.done()
    say(store, CycleAction.RESUME, "ada", "")
    async with asyncio.timeout(300):
        await waiting


async def test_a_word_ends_the_wait_for_sessions(store: Store) -> None:
    in_trial(store)
    control, cancelled = CycleControl(store, "cycle-1", poll_s=0.001), asyncio.Event()

    async def sessions() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.ensure_future(control.unless(sessions()))
    await asyncio.sleep(0)
    say(store, CycleAction.ROLL_BACK, "ada", "")
    async with asyncio.timeout(300):
        word = await waiting
    assert word is not None and word.action is CycleAction.ROLL_BACK and cancelled.is_set()


async def test_without_a_word_the_sessions_are_waited_for(store: Store) -> None:
    in_trial(store)
    assert await CycleControl(store, "cycle-1", poll_s=0.001).unless(asyncio.sleep(0)) is None


async def test_an_error_of_the_traffic_is_not_swallowed(store: Store) -> None:
    async def fails() -> None:
        raise RuntimeError("the gateway died")

    with pytest.raises(RuntimeError, match="the gateway died"):
        await CycleControl(store, "cycle-1", poll_s=0.001).unless(fails())


def test_the_end_of_a_stage_or_of_a_cycle_is_logged_once(store: Store) -> None:
    control = CycleControl(store, "cycle-1")
    for _ in range(2):
        control.log_once(CycleAction.STAGE_DONE, "gate")
        control.log_once(CycleAction.CYCLE_DONE, "hold: too few")
    CycleControl(store, "cycle-2").log_once(CycleAction.STAGE_DONE, "gate")
    assert [each.cycle for each in cycle_log(store)] == ["cycle-1", "cycle-1", "cycle-2"]
