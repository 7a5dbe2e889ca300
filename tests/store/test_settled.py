"""Old sessions stay for as long as anything of the loop is going to read them."""

import pytest
from tests.store.old_record import GO, LINE, OLD, STAY, add, fill, immature

from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, log_cycle
from ostinato.store.releases import ReleaseStage, enter
from ostinato.store.settled import NEVER, Stays, live_sessions_stay, staying
from ostinato.types import Arm, Decision, Source, State, Verdict

ARM = Arm(name="main", version=1, share=1.0, engines=())


def stay(store: Store, *ids: str, uncollected: bool = False) -> dict[str, Stays]:
    with store.database.read() as connection:
        return staying(connection, ids, LINE, uncollected=uncollected)


def step(store: Store, stage: ReleaseStage, at: float) -> None:
    store.now = lambda: at
    enter(store, "e", stage, step=0, share=0.1, arms=lambda arms: [ARM])


def note(store: Store, action: CycleAction, at: float) -> None:
    log_cycle(store, CycleEntry(at=at, by="cycle", action=action, cycle="cycle-1", detail="live"))


def test_each_session_stays_for_its_reason_and_the_others_are_over(store: Store) -> None:
    fill(store)
    why = {id: reason for id, (_, reason) in STAY.items()} | {"young": Stays.HEARD_OF}
    assert stay(store, *GO, *STAY, "young") == why


def test_sessions_that_nothing_collected_go_on_demand_alone(store: Store) -> None:
    add(store, "uncollected")
    add(store, "censored", State.CENSORED)
    immature(store, "immature")
    found = stay(store, "uncollected", "censored", "immature", uncollected=True)
    assert found == {"censored": Stays.IMMATURE, "immature": Stays.IMMATURE}


def test_no_live_session_goes_while_a_release_is_under_way(store: Store) -> None:
    """What people do is compared with what they used to do before it."""
    add(store, "before", State.STALE, at=OLD)
    add(store, "within", State.STALE, at=OLD + 10)
    add(store, "bench", State.MEASURED, source=Source.BENCH)
    step(store, ReleaseStage.CANARY, OLD + 5)
    assert stay(store, "before", "within", "bench") == dict.fromkeys(["before", "within"], Stays.RELEASE)
    step(store, ReleaseStage.OVER, OLD + 20)
    assert stay(store, "before", "within", "bench") == {"within": Stays.RELEASE}, "it has no verdict yet"
    store.add_verdict(Verdict(version=1, decision=Decision.HOLD, reason="", evidence={}, id="e"))
    assert stay(store, "before", "within", "bench") == {}


def test_what_a_cycle_under_way_learns_from_stays(store: Store) -> None:
    for id, at in (("first", OLD), ("second", OLD + 10)):
        add(store, id, State.STALE, at=at)
    note(store, CycleAction.STAGE_BEGAN, OLD + 1)
    assert set(stay(store, "first", "second")) == {"first", "second"}
    note(store, CycleAction.CYCLE_DONE, OLD + 5)
    assert stay(store, "first", "second") == {}
    note(store, CycleAction.STAGE_BEGAN, OLD + 6)
    assert stay(store, "first", "second") == {"second": Stays.RELEASE}


def test_nothing_stays_for_a_release_where_there_is_none(store: Store) -> None:
    with store.database.read() as connection:
        assert live_sessions_stay(connection) == NEVER == pytest.approx(float("inf"))
