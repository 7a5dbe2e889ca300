"""Late facts score a session again; the same facts give the same bytes, in any order and any process.

Covers store/definitions.py: the text of each definition is kept by its hash; store/outlines.py.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.rewards.live.definition import LIVE, read_definition
from ostinato.rewards.live.rescore import canonical, rescore
from ostinato.store import Store
from ostinato.store.definitions import add_changed, kept_definition
from ostinato.types import Ending, Signal, SignalKind

LATER = 2e9
KINDS = (SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED, SignalKind.EDIT_SURVIVAL)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.db")
    yield store
    store.close()


def about(id: str, kind: SignalKind, at: float, *, value: float = 1.0, edit: str = "e") -> Signal:
    name = f"{id}/{kind}/{edit}/{at}"
    return Signal(session_id=id, kind=kind, value=value, observed_at=at, edit=edit, turn=0, id=name)


def test_a_late_fact_changes_the_reward_and_the_earlier_one_stays(store: Store) -> None:
    kept = about("s", SignalKind.EDIT_KEPT, 1e9)
    store.record([turn(0, "s")], [kept], [session("s", ending=Ending.FINISHED)])
    first = rescore(store, LIVE, store.sessions(), as_of=1e9 + 1)
    again = rescore(store, LIVE, store.sessions(), as_of=1e9 + 1)
    store.record([], [about("s", SignalKind.EDIT_REVERTED, 1e9 + 5)])
    late = rescore(store, LIVE, store.sessions(), as_of=LATER)
    assert [each.changed for each in (first, again, late)] == [1, 0, 1]
    before, after = store.rewards("s")
    assert after.total == pytest.approx(before.total - 1.5)


def test_the_definition_that_scored_is_kept_by_its_hash(store: Store, tmp_path: Path) -> None:
    rescore(store, LIVE, [], as_of=LATER)
    text = kept_definition(store, LIVE.hash())
    assert text is not None and kept_definition(store, "none") is None
    (tmp_path / "kept.toml").write_text(text)
    assert read_definition(tmp_path / "kept.toml").hash() == LIVE.hash()


def test_signals_that_cannot_be_read_and_void_sessions_are_counted(store: Store) -> None:
    odd = Signal(session_id="odd", kind=SignalKind.COMPLAINT, value="often", observed_at=1.0)
    store.record([turn(0, "odd")], [odd], [session("odd", ending=Ending.FINISHED)])
    void = Signal(
        session_id="void", kind=SignalKind.ENDING, value=Ending.INFRASTRUCTURE.value, observed_at=1.0
    )
    store.record([turn(0, "void")], [void], [session("void")])
    done = rescore(store, LIVE, store.sessions(), as_of=LATER)
    assert (done.sessions, done.without_reward) == (2, 2) and store.rewards("odd") == []


READ = """
import sys
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.rescore import canonical
from ostinato.store import Store
store = Store.open(sys.argv[1])
ids = [session.id for session in store.sessions()]
turns, signals = store.turns_of(ids), store.signals_of(ids)
for id in sorted(ids):
    print(canonical(LIVE.score(id, turns[id], signals[id], as_of=2e9)).decode())
"""


def test_two_records_of_the_same_facts_give_the_same_bytes_in_other_processes(tmp_path: Path) -> None:
    chance = random.Random(4)
    facts = [
        about(
            f"s{n}",
            chance.choice(KINDS),
            chance.randrange(3),
            value=chance.random(),
            edit=chance.choice("ab"),
        )
        for n in range(8)
        for _ in range(6)
    ]
    texts = []
    for number in range(2):
        path = tmp_path / f"{number}.db"
        store = Store.open(path)
        some = chance.sample(facts, len(facts))
        store.record([turn(0, f"s{n}") for n in range(8)], [], [session(f"s{n}") for n in range(8)])
        for fact in some:
            store.record([], [fact])
        store.close()
        done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, check=True)
        texts.append(done.stdout)
    assert texts[0] == texts[1] and texts[0].count(b"\n") == 8
    assert canonical(LIVE.score("s", (), ())) == canonical(LIVE.score("s", (), ()))


def test_what_is_recorded_is_what_whole_turns_give_to_the_byte(store: Store) -> None:
    """Scoring again reads outlines of turns; -0.0 for 0.0 is no change, and other text with it is not one."""
    chance, ids = random.Random(5), [f"s{n}" for n in range(300)]
    kinds = [kind for kind in SignalKind if kind is not SignalKind.ENDING]
    facts = [
        Signal(
            session_id=chance.choice(ids),
            kind=chance.choice(kinds),
            value=chance.choice((0.0, -0.0, 1.0, chance.random())),
            observed_at=1e9 + chance.choice((0.0, 900.0, 5 * 86_400.0 * chance.random())),
            turn=chance.choice((None, 0, 1)),
            edit=chance.choice((None, "a", "b")),
            id=f"fact-{number}",
        )
        for number in range(3_000)
    ]
    turns = [turn(number, id_) for id_ in ids for number in range(chance.randrange(4))]
    store.record(turns, facts, [session(id_) for id_ in ids])
    moments = 1e9 + 1000.0, 1e9 + 3 * 86_400.0, LATER
    done = [rescore(store, LIVE, store.sessions(), as_of=each) for each in moments]
    assert all(each.without_reward == 0 and each.changed > 100 for each in done) and done[0].changed == 300
    read, told = store.turns_of(ids), store.signals_of(ids)
    for id_ in ids:
        for reward in store.rewards(id_):
            assert reward.as_of in moments
            anew = LIVE.score(id_, read.get(id_, []), told.get(id_, []), as_of=reward.as_of)
            assert canonical(anew) == canonical(reward)
    zero = next(reward for id_ in ids for reward in store.rewards(id_)[-1:])
    signed = tuple(replace(part, value=part.value or -0.0) for part in zero.parts)
    assert canonical(replace(zero, parts=signed)) != canonical(zero)
    assert add_changed(store, [replace(zero, parts=signed)]) == 0
