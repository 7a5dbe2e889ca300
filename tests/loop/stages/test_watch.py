"""The monitors see recorded sessions of one age, and hold a promotion that they do not trust."""

from dataclasses import replace
from pathlib import Path

from tests.rewards.follow_ups.test_read import TOKENIZER
from tests.store.builders import session, turn

from ostinato.deploy.terms import Trial
from ostinato.loop.live_config import CHALLENGER, CHAMPION, LiveConfig
from ostinato.loop.stages.watch import alarms_of_trial, drifts_since, watched
from ostinato.loop.trial import held, planned
from ostinato.rewards.live.definition import LIVE
from ostinato.store import Store
from ostinato.types import Decision, Ending, Signal, SignalKind, Verdict

TRIAL: Trial = planned(LiveConfig(), "x", 0.02).trial
LATER = 1e6


def recorded(tmp_path: Path) -> Store:
    """Twelve people with three sessions in each arm; the challenger asks and edits nothing."""
    store = Store.open(tmp_path / "store.db")
    for number in range(72):
        arm, id_ = (CHAMPION, CHALLENGER)[number % 2], f"s{number}"
        words = "done" if arm == CHAMPION else "shall I?"
        ids = tuple(TOKENIZER.encode(words))
        first = turn(0, id_)
        completion = replace(first.completion, ids=ids, logprobs=(-0.1,) * len(ids), versions=(1,) * len(ids))
        told = Signal(
            session_id=id_, kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=number + 3.0, edit="e"
        )
        about = session(
            id_, user=f"p{number // 6}{arm}", arm=arm, ending=Ending.FINISHED, started_at=float(number)
        )
        made = replace(first, completion=completion, started_at=float(number))
        store.record([made], [told] if arm == CHAMPION else [], [about])
    return store


def test_an_alarm_holds_the_promotion_and_names_sessions(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    seen = watched(store, TOKENIZER, LIVE, store.sessions(), LATER)
    found = alarms_of_trial(seen, TRIAL)
    assert {"questions", "edits"} <= {alarm.behaviour for alarm in found}
    promoted = Verdict(version=1, decision=Decision.PROMOTE, reason="better", evidence={"experiment": "x"})
    verdict = held(promoted, found)
    assert verdict.decision is Decision.HOLD and "questions went from 0.000 to 1.000" in verdict.reason
    challengers = {each.id for each in store.sessions(arm=CHALLENGER)}
    assert challengers >= set(found[0].sessions)
    store.close()


def test_sessions_that_are_too_young_are_not_seen_and_void_ones_are(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.record([turn(0, "young")], (), [session("young", ending=Ending.FINISHED)])
    store.record([turn(0, "void")], (), [session("void", ending=Ending.INFRASTRUCTURE)])
    seen = watched(store, TOKENIZER, LIVE, store.sessions(), as_of=10.0)
    assert [(each.session_id, each.void) for _, each in seen] == [("void", True)]
    store.close()


def test_a_drift_is_looked_for_from_the_last_cycle_on(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    mine = store.sessions(arm=CHAMPION)
    assert drifts_since(watched(store, TOKENIZER, LIVE, mine, LATER), since=40.0) == []
    store.close()
