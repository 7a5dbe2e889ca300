"""A purge leaves none of the user's data, and every count still holds."""

import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.databases import ON_A_FILE
from tests.store.builders import group, session, turn

from ostinato.store import KeyChangedError, Ledger, PurgedError, Store
from ostinato.store.purge import PurgeError, purge
from ostinato.store.sql.row_conversion import pack_ints
from ostinato.store.sql.schema import purges, samples
from ostinato.types import ApiKey, Checkpoint, Ending, Event, Group, Reward, Routes, Signal, SignalKind, State

MARKER = (424242, 434343, 444444)
SAID = "the-comment-that-must-go"


def told(session_id: str) -> tuple[Signal, Event]:
    signal = Signal(session_id=session_id, kind=SignalKind.COMMENT, value=SAID, observed_at=1.0)
    event = Event(
        id=f"e-{session_id}",
        name="user.prompt",
        user="ada",
        observed_at=1.0,
        session_id=session_id,
        attributes={"prompt": SAID},
    )
    return signal, event


def fill(store: Store, *names: str, user: str = "ada") -> None:
    for name in names:
        signal, event = told(name)
        turns = [replace(turn(i, name), prompt_ids=MARKER) for i in range(2)]
        store.record(turns, [signal], [session(name, user=user)], [replace(event, user=user)])
        store.add_rewards((Reward(session_id=name, definition="d", parts=()),))


def version(number: int, parent: int | None = None, batch: tuple[str, ...] = ()) -> Checkpoint:
    return Checkpoint(
        version=number, parent=parent, digest=str(number), kind="delta", bytes=1, created_at=0.0, batch=batch
    )


def on_disk(store: Store) -> bytes:
    return b"".join(
        path.read_bytes() for path in Path(str(store.database.url.database)).parent.glob("record.db*")
    )


def train(store: Store, ledger: Ledger, number: int, *groups: str) -> None:
    claimed = ledger.claim(number, len(groups), 0)
    assert [g.id for g in claimed] == list(groups)
    ledger.commit(version(number, number - 1, groups))


@ON_A_FILE
def test_nothing_purged_is_left_on_the_disk(store: Store) -> None:
    fill(store, "s1", "s2")
    fill(store, "t1", user="bob")
    store.database.scrub()
    assert SAID.encode() in on_disk(store) and pack_ints(MARKER) in on_disk(store)
    done = purge(store, user="ada", by="root")
    assert done.sessions == ("s1", "s2")
    assert done.counts == {"turns": 4, "signals": 2, "events": 2, "rewards": 2, "samples": 0}
    assert store.signals("s1") == store.events("s1") == store.rewards("s1") == []
    assert [(t.prompt_ids, t.completion.ids) for t in store.turns("s1")] == [((), ()), ((), ())]
    assert len(store.signals("t1")) == len(store.events("t1")) == 1
    purge(store, user="bob", by="root")
    left = on_disk(store)
    assert not [mark for mark in (SAID.encode(), pack_ints(MARKER), b"ada", b"bob") if mark in left]


def test_the_key_of_a_purged_user_is_refused(store: Store) -> None:
    fill(store, "s1")
    store.add_key("9f", "ada")
    store.add_key("8e", "bob")
    purge(store, user="ada", by="root")
    assert store.key("9f") is None
    assert store.key("8e") is not None


def test_the_tombstone_says_when_and_by_whom(store: Store) -> None:
    fill(store, "s1")
    purge(store, session="s1", by="root")
    kept = store.session("s1")
    assert kept is not None
    assert kept.user.startswith("purged-")
    assert (kept.ending, kept.consent, kept.task_id) == (Ending.ABANDONED, False, None)
    with store.database.read() as connection:
        rows = connection.execute(select(purges.c.session_id, purges.c.purged_by, purges.c.counts)).all()
    assert rows == [("s1", "root", '{"turns": 2}')]


def test_integrity_counts_stay_true(store: Store, ledger: Ledger) -> None:
    fill(store, "s1", "s2", "s3")
    ledger.offer(group("g1", session_id="s1", turns=(0, 1)))
    ledger.offer(group("g2", session_id="s2", turns=(0, 1)))
    store.add_version(version(3))
    train(store, ledger, 4, "g1")
    purge(store, user="ada", by="ada")
    assert ledger.unaccounted() == ledger.trained_twice() == 0
    states = ledger.states()
    assert (states[State.TRAINED], states[State.PURGED]) == (2, 4)
    assert ledger.ready(0) == 0
    ledger.account_sessions(["s1", "s2", "s3"], State.CENSORED)
    assert ledger.states() == states


def routed(group: Group) -> Group:
    (sample,) = group.samples
    return replace(group, samples=(replace(sample, routes=Routes(data=bytes(range(8)), width=2)),))


def test_versions_trained_on_it_are_named(store: Store, ledger: Ledger) -> None:
    fill(store, "s1", "s2")
    fill(store, "t1", user="bob")
    for name, of in (("g1", "s1"), ("g2", "t1"), ("g3", "s2")):
        ledger.offer(routed(group(name, session_id=of)))
    store.add_version(version(3))
    train(store, ledger, 4, "g1")
    train(store, ledger, 5, "g2")
    train(store, ledger, 6, "g3")
    store.add_version(version(7, parent=6))
    store.add_version(version(8, parent=3))
    done = purge(store, user="ada", by="ada")
    assert (done.trained, done.descended) == ((4, 6), (5, 7))
    assert done.counts["samples"] == 2
    with store.database.read() as connection:
        left = connection.execute(select(samples.c.session_id, samples.c.ids, samples.c.routes)).all()
    assert {id for id, _, routes in left if routes} == {"t1"} == {id for id, ids, _ in left if ids}
    assert purge(store, session="s1", by="ada").trained == (4,)


def test_a_claimed_group_is_accounted_and_never_claimed_again(store: Store, ledger: Ledger) -> None:
    fill(store, "s1", "s2")
    ledger.offer(group("g1", session_id="s1", turns=(0, 1)))
    ledger.offer(group("g2", session_id="s2", turns=(0, 1)))
    assert len(ledger.claim(4, 2, 0)) == 2
    purge(store, session="s1", by="ada")
    assert ledger.release() == 1
    assert [g.id for g in ledger.claim(4, 2, 0)] == ["g2"]
    purge(store, session="s2", by="ada")
    assert ledger.commit(version(4, 3, ("g2",))) == 1
    states = ledger.states()
    assert (states[State.PURGED], states[State.TRAINED]) == (2, 2)
    assert purge(store, session="s2", by="ada").trained == (4,)


def test_nothing_can_be_added_to_a_purged_session(store: Store) -> None:
    fill(store, "s1")
    purge(store, session="s1", by="ada")
    signal, event = told("s1")
    for rows in ([[turn(2)]], [[], [signal]], [[], [], [], [event]]):
        with pytest.raises(PurgedError, match="'s1' was purged"):
            store.record(*rows)


def test_consent_is_purged_with_its_user(store: Store) -> None:
    fill(store, "s1")
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    purge(store, user="ada", by="root")
    last = store.accounts.consents()[-1]
    assert (last.user, last.granted, last.set_by) == ("ada", False, "root")


def test_a_user_of_several_organisations_needs_one_named(store: Store) -> None:
    store.start_session(session("s1", organisation="acme"))
    store.accounts.add(ApiKey(hash="9f", user="ada", organisation="emca"))
    with pytest.raises(PurgeError, match=r"several organisations \('acme', 'emca'\): say which"):
        purge(store, user="ada", by="root")
    assert purge(store, user="ada", organisation="emca", by="root").sessions == ()
    assert store.key("9f") is None, "nobody had used the key, and still it is gone"
    assert purge(store, user="ada", by="root").sessions == ("s1",)


def test_a_key_that_was_purged_is_refused_for_ever(store: Store) -> None:
    fill(store, "s1")
    store.add_key("9f", "ada")
    purge(store, user="ada", by="root")
    store.add_key("9f", "ada")
    assert store.key("9f") is None


def test_nothing_is_recorded_for_a_key_after_its_purge(store: Store) -> None:
    """A gateway remembers keys for seconds; the transaction does not."""
    fill(store, "s1")
    store.add_key("9f", "ada")
    purge(store, user="ada", by="root")
    with pytest.raises(KeyChangedError, match="was revoked"):
        store.record([turn(0, "s2")], sessions=[session("s2", user="ada", consent=True)], keys={"9f": False})
    assert store.session("s2") is None


def test_consent_is_checked_again_when_recording(store: Store) -> None:
    store.add_key("9f", "ada")
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    store.accounts.set_consent(user="ada", granted=False, by="ada")
    store.record([turn(0)], sessions=[session(user="ada", consent=True)], keys={"9f": False})
    begun = store.session("s1")
    assert begun is not None and not begun.consent
    with pytest.raises(KeyChangedError, match="consent was taken back"):
        store.record([], [], [], [told("s1")[1]], {"9f": True})
    assert store.events("s1") == []


@ON_A_FILE
def test_a_log_that_is_being_read_is_emptied_later(store: Store, tmp_path: Path) -> None:
    """A purge is not reported as finished while the tokens lie in the log."""
    fill(store, "s1")
    reader = sqlite3.connect(tmp_path / "record.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM turns").fetchone()
    log = tmp_path / "record.db-wal"
    store.database.scrub = partial(store.database.scrub, patience_s=0.0)  # type: ignore[method-assign]
    assert not purge(store, session="s1", by="ada").scrubbed
    assert pack_ints(MARKER) in log.read_bytes()
    reader.close()
    Store.open(tmp_path / "record.db").close()
    assert pack_ints(MARKER) not in on_disk(store) and SAID.encode() not in on_disk(store)


def test_only_the_named_organisation_is_purged(store: Store) -> None:
    for id, organisation in (("s1", "acme"), ("s2", "emca")):
        store.start_session(session(id, organisation=organisation))
    assert purge(store, user="ada", organisation="emca", by="root").sessions == ("s2",)


def test_an_unknown_user_or_session_is_named(store: Store) -> None:
    with pytest.raises(PurgeError, match="no user 'ada'"):
        purge(store, user="ada", by="ada")
    with pytest.raises(PurgeError, match="no session 's1'"):
        purge(store, session="s1", by="ada")
    with pytest.raises(PurgeError, match="either a user or a session"):
        purge(store, by="ada")


def test_a_session_purged_after_scoring_is_not_offered(store: Store, ledger: Ledger) -> None:
    fill(store, "s1")
    purge(store, session="s1", by="ada")
    assert not ledger.offer(group("g1", session_id="s1"))
    assert ledger.ready(0) == 0
