"""Late facts on promotions, over a record: what settles each, what goes with it, and what is never lost."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.deploy.late import LateError, fallen, promotions, settle_by_hand
from ostinato.loop.stages.late import settle_promotions
from ostinato.rewards.live.definition import LIVE
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, cycle_log, log_cycle
from ostinato.store.purge import purge
from ostinato.store.releases import ReleaseStage, enter
from ostinato.store.store import PurgedError
from ostinato.types import Decision, Ending, Signal, SignalKind, Source, Verdict

HOUR, DAY = 3600.0, 86_400.0
KEPT, REVERTED = SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED
USERS, EACH = 40, 5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def promoted(
    store: Store, version: int, replaced: int, *, right: tuple[float, float], facts: bool = True
) -> float:
    """Record a trial that promoted; `right` are the shares of champion and challenger whose edits stand.

    The other edits are undone after 30 hours. Return the end of the release.
    """
    name = f"trial-of-{version}"
    row = enter(store, name, ReleaseStage.SPLIT, step=0, share=0.5, arms=list)
    terms = {"experiment": name, "share": 0.5, "horizon": USERS * EACH, "alpha": 0.02, "since": row.at}
    terms |= {"champion": "champion", "challenger": "challenger"}
    terms |= {"versions": {"champion": replaced, "challenger": version}}
    detail = json.dumps(terms)
    log_cycle(store, CycleEntry(at=row.at, by="cycle", action=CycleAction.TRIAL_BEGAN, detail=detail))
    for user in range(USERS):
        arm, share = ("challenger", right[1]) if user % 2 else ("champion", right[0])
        for number in range(EACH):
            id_, at = f"{version}/{user}/{number}", row.at + 1e-6 * number
            stands = (user // 2 + 2 * number) % 10 < 10 * share
            about = session(id_, user=f"p{user}", arm=arm, started_at=at, source=Source.LIVE)
            made = replace(turn(0, id_), started_at=at, latency_s=0.0)
            told = [fact(id_, KEPT, at + 60)] + ([] if stands else [fact(id_, REVERTED, at + 30 * HOUR)])
            store.record([made], told if facts else [], [replace(about, ending=Ending.FINISHED)])
    store.add_verdict(
        Verdict(
            version=version,
            decision=Decision.PROMOTE,
            reason="better",
            evidence={"release": name, "experiment": name, "alpha": 0.02},
            id=name,
        )
    )
    return enter(store, name, ReleaseStage.OVER, step=0, share=0.0, arms=list, detail="promote: better").at


def fact(session_id: str, kind: SignalKind, at: float) -> Signal:
    id_ = f"{session_id}/{kind}"
    return Signal(
        id=id_, session_id=session_id, kind=kind, value=1.0, observed_at=at, turn=0, edit=session_id
    )


def settled(store: Store, days: float, definition=LIVE) -> dict[int, Decision]:
    verdicts = settle_promotions(store, definition, as_of=store.now() + days * DAY)
    return {verdict.version: verdict.decision for verdict in verdicts}


def standing(store: Store) -> dict[int, str]:
    return {each.version: each.standing for each in promotions(store)}


def test_one_whose_edits_are_undone_late_is_demoted_as_soon_as_that_is_seen(store: Store) -> None:
    promoted(store, 7, 3, right=(0.9, 0.3))
    assert settled(store, 1.9) == {} and standing(store) == {7: "provisional"}
    assert settled(store, 2.1) == {7: Decision.DEMOTE} and settled(store, 9) == {}
    (one,) = promotions(store)
    assert one.late is not None and one.late.reason.startswith("demoted by late facts: survived_1d -0.6")
    evidence = one.late.evidence["outcomes"]["survived_1d"]
    assert evidence["known"] == {"champion": 20, "challenger": 20} and evidence["harming"]["high"] < 0
    assert "experiment" not in one.late.evidence, "it spends none of the budget"
    assert [each.replaced for each in fallen(promotions(store))] == [3]


def test_one_that_stands_is_confirmed_and_one_in_doubt_is_not_kept(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    promoted(store, 9, 7, right=(0.7, 0.7))
    assert settled(store, 7.9) == {} and set(standing(store).values()) == {"provisional"}
    assert settled(store, 8.1) == {7: Decision.CONFIRM, 9: Decision.DEMOTE}
    assert [each.version for each in fallen(promotions(store))] == [9]
    assert "not shown to lose less than the margin" in promotions(store)[1].late.reason


def test_one_trained_on_a_demoted_one_goes_with_it_unless_a_person_keeps_it(store: Store) -> None:
    promoted(store, 7, 3, right=(1.0, 0.2))
    promoted(store, 9, 7, right=(0.2, 0.7))
    assert settled(store, 4.1) == {7: Decision.DEMOTE, 9: Decision.DEMOTE}
    assert [each.replaced for each in fallen(promotions(store))] == [3, 7]
    assert "trained on version 7" in promotions(store)[1].late.reason
    settle_by_hand(store, 9, Decision.CONFIRM, "ada", "it makes up for it")
    assert standing(store) == {7: "demoted", 9: "confirmed"} and fallen(promotions(store)) == []


def test_one_that_is_promoted_while_its_champion_is_demoted_goes_with_it(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    settle_by_hand(store, 7, Decision.DEMOTE, "ada", "")
    promoted(store, 9, 7, right=(0.4, 0.9))
    assert settled(store, 0.1) == {9: Decision.DEMOTE} and settled(store, 9) == {}
    assert [each.version for each in fallen(promotions(store))] == [7, 9]


def test_outcomes_that_never_come_prove_nothing_and_one_arm_s_silence_does(store: Store) -> None:
    promoted(store, 7, 3, right=(0.9, 0.9), facts=False)
    assert settled(store, 7) == {}
    none = replace(LIVE, outcomes={n: o for n, o in LIVE.outcomes.items() if n != "returned"})
    assert settled(store, 9, none) == {7: Decision.INCONCLUSIVE}
    assert standing(store) == {7: "unconfirmed"} and fallen(promotions(store)) == []
    assert settled(store, 90) == {}, "for ever: a later fact changes nothing"


def test_facts_that_come_after_a_purge_count_for_nobody(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    for user in (1, 3):
        purge(store, by="ada", user=f"p{user}")
    with pytest.raises(PurgedError):
        store.record([], [fact("7/1/0", REVERTED, store.now())], [])
    assert settled(store, 9) == {7: Decision.CONFIRM}
    evidence = promotions(store)[0].late.evidence
    assert evidence["sessions"] == (USERS - 2) * EACH
    assert evidence["outcomes"]["survived_7d"]["known"] == {"champion": 20, "challenger": 18}


def test_a_session_with_a_fact_that_cannot_be_read_is_left_out_and_counted(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    odd = replace(fact("7/1/0", SignalKind.EDIT_SURVIVAL, store.now()), value="most of it")
    store.record([], [odd], [])
    assert settled(store, 9) == {7: Decision.CONFIRM}
    evidence = promotions(store)[0].late.evidence
    assert (evidence["unread"], evidence["sessions"]) == (1, USERS * EACH - 1)


def test_the_first_of_two_words_holds_and_both_are_in_the_record(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    promoted(store, 9, 7, right=(0.4, 0.9))
    first = settle_by_hand(store, 7, Decision.DEMOTE, "ada", "people complain")
    second = settle_by_hand(store, 7, Decision.CONFIRM, "bob", "I like it")
    said = [(entry.by, entry.action) for entry in cycle_log(store)][-2:]
    assert said == [("ada", CycleAction.DEMOTE), ("bob", CycleAction.CONFIRM)]
    assert first == second and first.reason == "ada said demote: people complain"
    assert settled(store, 9) == {} and standing(store) == {7: "demoted", 9: "demoted"}
    with pytest.raises(LateError, match="version 8 is no promotion that stands: those are 7, 9"):
        settle_by_hand(store, 8, Decision.DEMOTE, "ada", "")


def test_the_word_of_a_person_stands_above_the_cycle_s_own_verdict(store: Store) -> None:
    promoted(store, 7, 3, right=(0.4, 0.9))
    assert settled(store, 9) == {7: Decision.CONFIRM}
    assert settle_by_hand(store, 7, Decision.DEMOTE, "ada", "").reason == "ada said demote"
    assert standing(store) == {7: "demoted"} and len(fallen(promotions(store))) == 1
    assert settle_by_hand(store, 7, Decision.CONFIRM, "bob", "").reason == "ada said demote"


def test_a_definition_without_outcomes_settles_nothing(store: Store) -> None:
    promoted(store, 7, 3, right=(0.9, 0.3))
    assert settled(store, 9, replace(LIVE, outcomes={})) == {} and standing(store) == {7: "provisional"}
