"""The store keeps what it is given: once, whole, for every process."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from tests.store.builders import session, start_python, turn

from ostinato.store import PurgedError, Store, StoreError, TakenError
from ostinato.store.purge import purge
from ostinato.types import (
    Arm,
    Checkpoint,
    Decision,
    Ending,
    Event,
    PartState,
    Report,
    Reward,
    RewardPart,
    Role,
    Score,
    Signal,
    SignalKind,
    Source,
    Verdict,
)

WRITE_FOREVER = """
import sys
from ostinato.store import Store
from tests.store.builders import session, turn
store = Store.open(sys.argv[1])
store.start_session(session())
for number in range(10**9):
    store.record([turn(number * 4 + i) for i in range(4)])
    print(number, flush=True)
"""
WRITE_SOME = """
import sys
from ostinato.store import Store
from tests.store.builders import session, turn
store, name = Store.open(sys.argv[1]), sys.argv[2]
store.start_session(session(name))
for number in range(50):
    store.record([turn(number, name)])
"""


def signal_of(kind: SignalKind, value: float | str, at: float = 1.0) -> Signal:
    return Signal(session_id="s1", kind=kind, value=value, observed_at=at)


def arm(name: str, share: float) -> Arm:
    return Arm(name=name, version=1, share=share, engines=("http://127.0.0.1:1",))


def version_row(version: int, digest: str = "9f") -> Checkpoint:
    return Checkpoint(
        version=version, parent=None, digest=digest, kind="anchor", bytes=8, created_at=0.0, batch=("g1",)
    )


def test_sessions_turns_and_signals_come_back(store: Store) -> None:
    kept = signal_of(SignalKind.EDIT_KEPT, 1.0, at=2.0)
    comment = signal_of(SignalKind.COMMENT, "thanks", at=1.0)
    store.record([turn(1), turn(0)], [kept, comment], [session()])
    assert store.session("s1") == session()
    assert store.turns("s1") == [turn(0), turn(1)]
    assert store.signals("s1") == [comment, kept]


def test_recording_again_changes_nothing(store: Store) -> None:
    kept = signal_of(SignalKind.EDIT_KEPT, 1.0)
    for _ in range(2):
        store.record([turn(0)], [kept], [session()])
    store.start_session(session(arm="other"))
    assert (store.sessions(), store.turns("s1"), store.signals("s1")) == ([session()], [turn(0)], [kept])


def test_an_unknown_session_is_empty(store: Store) -> None:
    assert store.session("s1") is None
    assert store.turns("s1") == store.signals("s1") == store.rewards("s1") == []
    assert store.turns_of(["s1"]) == store.signals_of(["s1"]) == {}


def test_many_sessions_are_read_at_once(store: Store) -> None:
    names = [f"s{i}" for i in range(1200)]
    store.record([turn(0, name) for name in names], sessions=[session(name) for name in names])
    assert store.turns_of(names) == {name: [turn(0, name)] for name in names}


def test_sessions_are_selected(store: Store) -> None:
    live, bench = session("a", started_at=1.0), session("b", started_at=2.0, source=Source.BENCH, arm="x")
    ended = session("c", started_at=3.0, ending=Ending.FINISHED)
    store.record((), sessions=[ended, bench, live])
    assert store.sessions() == [live, bench, ended]
    assert store.sessions(source=Source.BENCH) == store.sessions(arm="x") == [bench]
    assert store.sessions(ended=True) == store.sessions(since=2.5) == store.sessions(limit=1) == [ended]
    assert store.sessions(ended=False) == [live, bench]


def test_the_first_ending_stays(store: Store) -> None:
    store.start_session(session())
    store.record((), [signal_of(SignalKind.ENDING, Ending.TURN_LIMIT)])
    store.end_session("s1", Ending.FINISHED)
    assert store.session("s1") == session(ending=Ending.TURN_LIMIT)


def test_only_a_known_session_can_end(store: Store) -> None:
    with pytest.raises(StoreError, match="session 's9' is not in"):
        store.end_session("s9", Ending.FINISHED)


def test_nothing_of_a_refused_call_is_recorded(store: Store) -> None:
    with pytest.raises(StoreError, match="a row names a session that was never started"):
        store.record([turn(0), turn(0, "unknown")], sessions=[session()])
    assert store.sessions() == []


@pytest.mark.parametrize("tokens", [(2**31,), ("a",)])
def test_a_token_that_is_no_32_bit_number_is_refused(store: Store, tokens: tuple) -> None:
    with pytest.raises(StoreError, match=re.escape(store.database.where)):
        store.record([replace(turn(0), prompt_ids=tokens)], sessions=[session()])


def test_a_signal_without_a_value_is_refused(store: Store) -> None:
    store.start_session(session())
    with pytest.raises(StoreError, match="signal_has_one_value"):
        store.record((), [signal_of(SignalKind.EDIT_KEPT, float("nan"))])


def test_rewards_are_appended(store: Store) -> None:
    store.start_session(session())
    part = RewardPart(name="solved", value=1.0, evidence=("e1",), state=PartState.CENSORED)
    rewards = [Reward(session_id="s1", definition=name, parts=(part,)) for name in ("a", "b", "a")]
    store.add_rewards((rewards[0],))
    store.add_rewards(rewards[1:])
    assert store.rewards("s1") == rewards
    store.add_rewards(rewards[2:])  # as whoever was killed before the next step does
    assert store.rewards("s1") == rewards


def test_a_version_has_one_digest(store: Store) -> None:
    for number in (2, 1, 1):
        store.add_version(version_row(number))
    assert store.versions() == [version_row(1), version_row(2)]
    with pytest.raises(StoreError, match="version 1 is recorded with digest 9f, not 00"):
        store.add_version(version_row(1, "00"))


def test_reports_and_verdicts_come_back(store: Store) -> None:
    reports = [
        Report(
            version=v,
            scores={"seeds": Score(solve=0.5, n=4, low=0.2, high=0.8)},
            rates={"turns": 2.0},
            harness="9f",
        )
        for v in (2, 1)
    ]
    verdict = Verdict(version=2, decision=Decision.HOLD, reason="too close", evidence={"n": [1, None]})
    for _ in range(2):
        store.add_verdict(verdict)
        for report in reports:
            store.add_report(report)
    assert (store.reports(), store.reports(1)) == (reports, reports[1:])
    assert (store.verdicts(), store.verdicts(1)) == ([verdict], [])


def test_arms_are_replaced_whole(store: Store) -> None:
    assert (store.arms(), store.arms_revision()) == ([], 0)
    store.set_arms([arm("b", 0.75), arm("a", 0.25)])
    assert (store.arms(), store.arms_revision()) == ([arm("b", 0.75), arm("a", 0.25)], 1)
    with pytest.raises(StoreError, match=r"UNIQUE|unique"):
        store.set_arms([arm("c", 0.5), arm("c", 0.5)])
    assert (store.arms()[0].name, store.arms_revision()) == ("b", 1)
    store.set_arms([])
    assert (store.arms(), store.arms_revision()) == ([], 2)


def test_keys_are_found_by_hash(store: Store) -> None:
    store.add_key("ab", "ada", "use", None)
    store.add_key("ab", "ada", "admin", "main")
    key = store.key("ab")
    assert key is not None
    assert (key.user, key.roles, key.arm) == ("ada", {Role.ADMIN}, "main")
    assert store.key("cd") is None


def test_every_kind_of_fact_is_recorded_and_refused_alike(store: Store) -> None:
    ending = signal_of(SignalKind.ENDING, Ending.FINISHED.value)
    event = Event(
        id="e1", name="user.prompt", user="a", observed_at=1.0, session_id="s1", attributes={"a": 1}
    )
    for _ in range(2):
        store.record([turn(0), turn(1)], [ending], [session()], [event])
    assert store.turns("s1") == [turn(0), turn(1)]
    assert store.session("s1") == replace(session(), ending=Ending.FINISHED)
    assert (store.signals("s1"), store.events("s1")) == ([ending], [event])
    assert not store.lacks_session("s1")
    with pytest.raises(StoreError, match="never started"):
        store.record([turn(0, "s2")], (), [session("s3")])
    assert store.session("s3") is None
    purge(store, session="s1", by="root")
    with pytest.raises(PurgedError, match="'s1' was purged"):
        store.record([turn(5)], (), [session()])


def test_a_url_may_say_how_a_file_is_opened(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/record.db?timeout=5").record([turn(0)], sessions=[session()])
    assert Store.open(tmp_path / "record.db").turns("s1") == [turn(0)]


def test_a_session_that_was_never_started_is_lacking_in_a_file(store: Store, backend: str) -> None:
    assert store.lacks_session("s1") == (backend == "sqlite")
    store.start_session(session())
    assert not store.lacks_session("s1")


def test_threads_share_one_store(store: Store) -> None:
    store.start_session(session())
    writers = [Thread(target=store.record, args=([turn(i * 10 + j) for j in range(10)],)) for i in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert store.turns("s1") == [turn(i) for i in range(80)]


def test_processes_share_one_database(place: str, store: Store) -> None:
    writers = [start_python(WRITE_SOME, place, name) for name in ("a", "b")]
    for writer in writers:
        with writer:
            assert writer.wait() == 0
    for name in ("a", "b"):
        assert store.turns(name) == [turn(i, name) for i in range(50)]


def test_acknowledged_turns_survive_kill_9(place: str) -> None:
    with start_python(WRITE_FOREVER, place) as writer:
        assert writer.stdout
        acknowledged = [int(writer.stdout.readline()) for _ in range(40)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += map(int, writer.stdout.read().split())
    found = Store.open(place).turns("s1")
    assert len(found) % 4 == 0, "a part of a transaction was recorded"
    assert len(found) >= 4 * len(acknowledged)
    assert found == [turn(i) for i in range(len(found))]


def test_another_turn_or_session_under_a_known_id_is_refused(store: Store, backend: str) -> None:
    store.record([turn(0)], sessions=[session()])
    store.record([turn(0)], sessions=[session()])
    other = replace(turn(0), prompt_ids=(9, 9))
    with pytest.raises(TakenError, match="turn 's1/0' is stored already and is another one"):
        store.record([turn(1), other])
    assert store.turns("s1") == [turn(0)]
    with pytest.raises(TakenError, match="session 's1' is stored already"):
        store.record([turn(1)], sessions=[session(user="eve")])
    assert store.recorded_turns("s1") == (backend == "sqlite") and store.recorded_turns("s2") == 0
