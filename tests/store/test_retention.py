"""Old sessions that are over go for their age, and a tombstone and every count are left, with kills too."""

import signal
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.databases import ON_A_FILE
from tests.store.builders import start_python, turn
from tests.store.old_record import GO, LINE, NOW, OLD, STAY, TEXT, TOKENS, add, fill, trained

from ostinato.store import Ledger, PurgedError, Store
from ostinato.store import retention as retention_module
from ostinato.store.purge import purge
from ostinato.store.retention import EXPIRED, Expiry, expirable, expire
from ostinato.store.sql.row_conversion import pack_ints
from ostinato.store.sql.schema import purges
from ostinato.types import Ending, Event, State

KILLED = """
import os, signal, sys
from sqlalchemy import event
from ostinato.store import Store, retention
from tests.store.old_record import LINE, NOW
retention.AT_ONCE = 2
store = Store.open(sys.argv[1], now=lambda: NOW)
left = [int(sys.argv[2])]
@event.listens_for(store.database.engine, "before_cursor_execute")
def count(*_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
retention.expire(store, LINE)
"""


@pytest.fixture
def store(store: Store) -> Store:
    store.now = lambda: NOW
    return store


def tombstones(store: Store) -> dict[str, tuple[str, str]]:
    with store.database.read() as connection:
        rows = connection.execute(select(purges.c.session_id, purges.c.purged_by, purges.c.counts))
        return {row[0]: (row[1], row[2]) for row in rows}


def is_whole(store: Store, id: str) -> bool:
    """Return whether everything of a session is there; fail when only a part is."""
    facts = [bool(t.completion.ids) for t in store.turns(id)]
    facts += [bool(store.signals(id)), bool(store.events(id)), id not in store.purged([id])]
    assert len(set(facts)) == 1, f"half of {id} is gone: {facts}"
    return facts[0]


def test_what_is_over_goes_and_the_rest_stays(store: Store, ledger: Ledger) -> None:
    fill(store)
    counted, states = ledger.unaccounted(), sum(ledger.states().values())
    would = expirable(store, LINE)
    assert {id for id in (*GO, *STAY, "young") if is_whole(store, id)} == {*GO, *STAY, "young"}
    assert (would.sessions, sum(would.stay.values())) == (len(GO), len(STAY))
    assert would.rows == {"events": 6, "rewards": 5, "samples": 1, "signals": 6, "turns": 10}
    assert [(age.days, age.turns) for age in would.ages] == [(90, 10)] and would.bytes > would.ages[0].bytes
    assert expire(store, LINE) == would
    assert {id for id in (*GO, *STAY, "young") if is_whole(store, id)} == {*STAY, "young"}
    assert ledger.unaccounted() == counted - 3, "those without consent, and one that came late, have a state"
    assert sum(ledger.states().values()) == states + 3 and ledger.trained_twice() == 0
    nothing = Expiry(sessions=0, bytes=0, rows=dict.fromkeys(would.rows, 0), ages=(), stay=would.stay)
    again = expire(store, LINE)
    assert (again.sessions, again.bytes, again.stay) == (0, 0, nothing.stay) and not any(again.rows.values())


def test_a_tombstone_is_left_of_each(store: Store, ledger: Ledger) -> None:
    trained(store, "trained")
    add(store, "stale", State.STALE, organisation="acme", ending=Ending.ABANDONED)
    expire(store, LINE)
    assert tombstones(store) == dict.fromkeys(["stale", "trained"], ("age of 30 days", '{"turns": 2}'))
    stale, kept = store.session("stale"), store.session("trained")
    assert stale is not None and kept is not None
    assert (stale.user, stale.organisation, stale.ending) == (EXPIRED, "acme", Ending.ABANDONED)
    assert (kept.user, kept.consent) == ("ada", True)
    assert [r.total for r in store.rewards("trained")] == [1.0] and store.rewards("stale") == []
    assert ledger.states()[State.TRAINED] == 1 and ledger.states()[State.STALE] == 3
    assert store.sessions() == [] and store.newest_session("stale") == stale


def test_nothing_can_be_added_to_it(store: Store) -> None:
    add(store, "stale", State.STALE)
    expire(store, LINE)
    with pytest.raises(PurgedError, match="'stale' was purged"):
        store.record([turn(2, "stale")])


def test_a_later_purge_still_names_the_versions_and_removes_the_name(store: Store) -> None:
    trained(store, "trained")
    expire(store, LINE)
    done = purge(store, user="ada", by="root")
    assert (done.sessions, done.trained, done.counts["rewards"]) == (("trained",), (4,), 1)
    kept = store.session("trained")
    assert kept is not None and kept.user.startswith("purged-") and not kept.consent
    assert tombstones(store)["trained"] == ("root", '{"turns": 2}')
    expire(store, LINE)
    assert tombstones(store)["trained"] == ("root", '{"turns": 2}')


def test_uncollected_sessions_go_on_demand(store: Store, ledger: Ledger) -> None:
    add(store, "live")
    assert expire(store, LINE).sessions == 0
    assert expire(store, LINE, uncollected=True).sessions == 1
    assert ledger.states()[State.STALE] == 2 and ledger.reasons(State.STALE) == {EXPIRED: 2}


def test_events_of_no_session_go_with_their_age(store: Store) -> None:
    for id, at in (("old", OLD), ("new", LINE)):
        store.record([], [], [], [Event(id=id, name="user.prompt", user="ada", observed_at=at)])
    assert expirable(store, LINE).rows["events"] == 1
    assert expire(store, LINE).rows["events"] == 1
    assert set(store.known_events(["old", "new"])) == {"new"}


@ON_A_FILE
def test_nothing_of_it_is_left_on_the_disk(store: Store, tmp_path: Path) -> None:
    add(store, "stale", State.STALE)
    store.database.scrub()
    marks = (TEXT.encode(), pack_ints(TOKENS))
    found = lambda: b"".join(path.read_bytes() for path in tmp_path.glob("record.db*"))  # noqa: E731
    assert all(mark in found() for mark in marks)
    assert expire(store, LINE).scrubbed
    assert not any(mark in found() for mark in marks)


@ON_A_FILE
def test_the_file_shrinks(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "AT_ONCE", 7)
    for number in range(60):
        add(store, f"s{number}", State.STALE, turns=4, words=400)
    store.database.scrub()
    before = (tmp_path / "record.db").stat().st_size
    assert expire(store, LINE).rows["turns"] == 240
    assert (tmp_path / "record.db").stat().st_size < before


def test_a_kill_between_any_two_statements_leaves_whole_sessions(
    store: Store, place: str, ledger: Ledger
) -> None:
    fill(store)
    states, killed = sum(ledger.states().values()), 0
    for statement in (2, 25, 47, 70, 103):
        with start_python(KILLED, place, statement) as process:
            killed += process.wait() == -signal.SIGKILL
        gone = {id for id in (*GO, *STAY, "young") if not is_whole(store, id)}
        assert gone <= set(GO) and gone == set(tombstones(store))
        assert ledger.trained_twice() == 0 and sum(ledger.states().values()) in {
            states,
            states + 1,
            states + 2,
            states + 3,
        }
    assert killed > 2
    expire(store, LINE)
    assert set(tombstones(store)) == set(GO)
