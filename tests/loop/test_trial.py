"""Sessions become observations: of one age, of anybody, by what became of every edit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.deploy.abtest import PEOPLE
from ostinato.deploy.budget import FIRST_CHAIN, next_alpha
from ostinato.deploy.terms import Attendance, Trial
from ostinato.loop.live_config import LiveConfig
from ostinato.loop.trial import (
    BACK_S,
    GUARDRAILS,
    SCALES,
    attended,
    heard,
    judged,
    observe,
    overruled,
    planned,
    usual,
)
from ostinato.rewards.live.definition import LIVE
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, said_now
from ostinato.types import Decision, Ending, Signal, SignalKind, Source, Verdict

DAY = LIVE.train_after_s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def live(
    store: Store, id: str, *, at: float = 1000.0, said: SignalKind | None = None, **about: object
) -> None:
    """An ended session of one turn at `at`; `said` is heard two seconds later."""
    told = {"arm": "champion", "user": "ada", "ending": Ending.FINISHED, "source": Source.LIVE} | about
    signals = [Signal(session_id=id, kind=said, value=1.0, observed_at=at + 2)] if said else []
    turns = [replace(turn(0, id), started_at=at, latency_s=0.5)]
    store.record(turns, signals, [replace(session(id), started_at=at, **told)])  # type: ignore[arg-type]


def test_a_session_without_a_task_is_one_like_any_other(store: Store) -> None:
    """A person's own session has no task."""
    live(store, "theirs", task_id=None, said=SignalKind.EDIT_KEPT)
    (found,) = observe(store, LIVE, store.sessions(), as_of=1000.0 + 2 * DAY)
    assert (found.user, found.arm, found.at) == ("ada", "champion", 1000.0)
    assert found.value > 0.5 and found.tokens > 0


@pytest.mark.parametrize("said", [None, SignalKind.EDIT_KEPT])
def test_a_session_counts_from_a_certain_age_whether_anybody_spoke_or_not(
    store: Store, said: SignalKind | None
) -> None:
    live(store, "s", said=said)
    sessions = store.sessions()
    assert observe(store, LIVE, sessions, as_of=1000.0 + DAY - 1) == []
    assert len(observe(store, LIVE, sessions, as_of=1000.0 + DAY + 1)) == 1


def test_both_arms_are_of_one_age(store: Store) -> None:
    """Feedback after the window of a session does not count, since others have had no such time yet."""
    live(store, "old", at=1000.0, said=SignalKind.EDIT_KEPT)
    live(store, "new", at=5000.0, said=SignalKind.EDIT_KEPT, arm="challenger", user="bob")
    late = Signal(session_id="old", kind=SignalKind.EDIT_REVERTED, value=1.0, observed_at=1000.0 + DAY + 60)
    store.record((), [late])
    old, new = sorted(observe(store, LIVE, store.sessions(), as_of=5000.0 + 2 * DAY), key=lambda o: o.at)
    assert old.value == new.value


def test_silence_is_the_same_in_training_and_in_the_test(store: Store) -> None:
    live(store, "s")
    turns = store.turns_of(["s"])["s"]
    trained = LIVE.settled("s", turns, [], as_of=1000.0 + 2 * DAY)
    (tested,) = observe(store, LIVE, store.sessions(), as_of=1000.0 + 2 * DAY)
    assert trained is not None and tested.value == trained.total


def test_our_own_failures_are_not_observed(store: Store) -> None:
    live(store, "s", ending=Ending.INFRASTRUCTURE)
    assert observe(store, LIVE, store.sessions(), as_of=1e12) == []


@pytest.mark.parametrize(
    ("said", "rail"), [(SignalKind.COMPLAINT, "complaints"), (SignalKind.ABANDONED, "abandoned")]
)
def test_guardrails_are_observed(store: Store, said: SignalKind, rail: str) -> None:
    live(store, "s", said=said)
    (found,) = observe(store, LIVE, store.sessions(), as_of=1e12)
    assert found.harms[rail] == 1.0
    assert set(found.harms) == set(GUARDRAILS) - set(PEOPLE)
    assert sum(value for name, value in found.harms.items() if name != "latency") == 1.0


def test_what_a_user_was_worth_before_comes_from_before_alone(store: Store) -> None:
    live(store, "before", at=1000.0, said=SignalKind.EDIT_REVERTED)
    live(store, "during", at=9000.0, said=SignalKind.EDIT_KEPT)
    assert usual(store, LIVE, before=5000.0, as_of=1e12) == {"ada": pytest.approx(-0.5, abs=0.1)}


def test_harms_are_heard_at_any_age_and_of_sessions_that_failed(store: Store) -> None:
    live(store, "fresh", said=SignalKind.COMPLAINT)
    live(store, "failed", ending=Ending.INFRASTRUCTURE, user="bob")
    assert observe(store, LIVE, store.sessions(), as_of=1003.0) == []
    told = {each.user: each.harms for each in heard(store, LIVE, store.sessions(), as_of=1003.0)}
    assert told["ada"]["complaints"] == 1.0 and told["ada"]["failed"] == 0.0
    assert told["bob"] == {"failed": 1.0}


def test_everybody_who_came_is_counted_and_gone_only_when_there_was_time_to_come_back(store: Store) -> None:
    for number, at in enumerate((1000.0, 2000.0, 3000.0 + BACK_S)):
        live(store, f"ada-{number}", at=at, ending=Ending.INFRASTRUCTURE if number else Ending.FINISHED)
    live(store, "bob", at=5000.0, user="bob", arm="challenger", ending=None)
    live(store, "later", at=9000.0 + BACK_S, user="cy")

    def came(as_of: float) -> list[Attendance]:
        return attended(store, TRIAL, 0.0, as_of)

    assert came(4000.0) == [Attendance(arm="champion", user="ada", sessions=2)]
    ada, bob = came(6000.0 + BACK_S)
    assert (ada.sessions, ada.gone, bob.sessions, bob.gone) == (3, 0.5, 1, 1.0)
    (later,) = [each for each in attended(store, TRIAL, 2500.0 + BACK_S, 1e12) if each.user == "ada"]
    assert (later.sessions, later.earlier) == (1, 2)


def traffic(store: Store, champion: SignalKind, challenger: SignalKind, users: int = 15) -> None:
    for arm, said in (("champion", champion), ("challenger", challenger)):
        for user in range(users):
            for number in range(4):
                id = f"{arm}-{user}-{number}"
                told = said if (user + number) % 5 else SignalKind.EDIT_EDITED
                live(store, id, at=1000.0 + number, said=told, arm=arm, user=f"{arm}{user}")


PLAN = planned(LiveConfig(ab_sessions=120), "e1", 0.02)
TRIAL = PLAN.trial


@pytest.mark.parametrize(
    ("champion", "challenger", "decision"),
    [
        (SignalKind.EDIT_REVERTED, SignalKind.EDIT_KEPT, Decision.PROMOTE),
        (SignalKind.EDIT_KEPT, SignalKind.EDIT_KEPT, Decision.INCONCLUSIVE),
        (SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED, Decision.ROLL_BACK),
    ],
)
def test_the_verdict_follows_what_became_of_the_edits(
    store: Store, champion: SignalKind, challenger: SignalKind, decision: Decision
) -> None:
    traffic(store, champion, challenger)
    observations, verdict = judged(store, LIVE, 7, TRIAL, since=0.0, habits={}, as_of=1e12)
    assert (verdict.version, verdict.decision, len(observations)) == (7, decision, 120)
    assert set(verdict.evidence["rails"]) == set(GUARDRAILS)


def test_a_challenger_that_is_complained_of_is_rolled_back_though_its_edits_are_kept(store: Store) -> None:
    traffic(store, SignalKind.EDIT_REVERTED, SignalKind.EDIT_KEPT)
    complaints = [
        Signal(session_id=s.id, kind=SignalKind.COMPLAINT, value=1.0, observed_at=s.started_at + 1)
        for s in store.sessions(arm="challenger")
    ]
    store.record((), complaints)
    _, verdict = judged(store, LIVE, 7, TRIAL, since=0.0, habits={}, as_of=1e12)
    assert verdict.decision is Decision.ROLL_BACK and "complaints rose" in verdict.reason


def test_the_settings_of_a_run_make_a_trial() -> None:
    limits = {"guardrails": GUARDRAILS, "scales": SCALES}
    assert Trial(experiment="e1", share=0.5, horizon=120, alpha=0.02, **limits) == TRIAL
    assert [(step.share, step.sessions) for step in PLAN.steps] == [(0.1, 80), (0.5, 120)]
    assert PLAN.trial_of(0).guardrails.keys() ^ GUARDRAILS.keys() == {"failed"}
    cheaper = planned(LiveConfig(claim="cheaper"), "e1", 0.02).trial
    assert (cheaper.claim, cheaper.margin) == ("cheaper", 0.05)
    within = planned(LiveConfig(), "e1@4h.5ec", 0.02, "familywise-2").trial
    assert not set(PEOPLE) & within.guardrails.keys() and within.chain == "familywise-2"


def test_a_promotion_by_hand_overrules_the_verdict_and_frees_no_chance_of_error() -> None:
    spent = {"experiment": "x", "alpha": 0.02, "chain": FIRST_CHAIN}
    held = Verdict(version=7, decision=Decision.HOLD, reason="too few", evidence=spent)
    word = said_now("ada", CycleAction.PROMOTE, "cycle-1", "the customer waits")
    by_hand = overruled(held, word)
    assert by_hand.decision is Decision.PROMOTE and "ada said promote: the customer waits" in by_hand.reason
    assert by_hand.evidence["instead_of"] == "hold" and by_hand.evidence["trial"]["alpha"] == 0.02
    assert next_alpha([held, by_hand]) == next_alpha([held]) < next_alpha([])
