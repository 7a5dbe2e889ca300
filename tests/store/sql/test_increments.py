"""Turns are stored as increments and read back whole; damage costs only what was built on it.

Covers store/sql/upgrade.py: a store of the layout before increments is read on.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.databases import NewPlace, run_sql
from tests.store.builders import LAYOUT_14, group, session, turn

from ostinato.store import Ledger, Store, StoreError, TakenError
from ostinato.store.ledger.leases import Leases
from ostinato.store.ledger.slots import Slots
from ostinato.store.purge import purge
from ostinato.types import Completion, FinishReason, Grade, Reward, Routes, Sampling, Signal, SignalKind, Turn

IDS = st.lists(st.integers(0, 2), max_size=4).map(tuple)
"""Few ids, so that prompts begin like contexts that they do not continue."""
STEPS = st.lists(st.tuples(st.integers(-1, 11), IDS, IDS), max_size=12)
"""Of each turn: the turn that it continues or -1, what its prompt adds, and what was sampled."""
LAYOUT_4 = """
ALTER TABLE samples DROP COLUMN routes; ALTER TABLE groups DROP COLUMN trees;
ALTER TABLE rewards DROP COLUMN as_of; DROP TABLE definitions;
DROP INDEX contexts_of_session;
ALTER TABLE turns DROP COLUMN structure;
ALTER TABLE turns DROP COLUMN distribution;
ALTER TABLE turns DROP COLUMN base;
ALTER TABLE turns DROP COLUMN length;
ALTER TABLE turns DROP COLUMN digest;
CREATE INDEX turns_of_session ON turns (session_id, number);
UPDATE counters SET value = 4 WHERE name = 'schema';
"""


def turn_after(index: int, prompt: tuple[int, ...], ids: tuple[int, ...], segment: int = 0) -> Turn:
    completion = Completion(
        ids=ids, logprobs=(-0.5,) * len(ids), versions=(7,) * len(ids), finish=FinishReason.STOP
    )
    return replace(turn(index), segment=segment, prompt_ids=prompt, completion=completion)


def conversation(turns: int, added: int = 20) -> list[Turn]:
    """Turns of one segment: each adds `added` ids to the prompt and samples as many."""
    made, context = list[Turn](), tuple[int, ...]()
    for index in range(turns):
        prompt = context + tuple(range(index, index + added))
        made.append(turn_after(index, prompt, tuple(range(added))))
        context = prompt + made[-1].completion.ids
    return made


@contextmanager
def store_at(place: str) -> Iterator[Store]:
    store = Store.open(place)
    store.start_session(session())
    yield store
    store.close()


@given(steps=STEPS, together=st.integers(1, 4))
def test_random_sessions_with_forks_read_back_equal(new_place: NewPlace, steps: list, together: int) -> None:
    turns = list[Turn]()
    for index, (parent, added, ids) in enumerate(steps):
        before = turns[parent] if 0 <= parent < index else None
        context = before.prompt_ids + before.completion.ids if before else ()
        turns.append(turn_after(index, context + added, ids, segment=parent + 1))
    with new_place() as place, store_at(place) as store:
        for at in range(0, len(turns), together):
            store.record(turns[at : at + together])
        store.record(turns)  # again, which changes nothing
        assert store.turns("s1") == turns
        assert store.turns_of(["s1"]).get("s1", []) == turns


def test_the_bytes_of_a_session_are_linear_in_its_turns(place: str) -> None:
    with store_at(place) as store:
        for each in conversation(50):
            store.record([each])
    stored = run_sql(place, "SELECT base, length(prompt_ids) FROM turns ORDER BY number")
    assert stored == [(None, 80)] + [(number, 80) for number in range(49)]


def test_a_fork_is_an_increment_on_the_turn_it_forks_from(place: str) -> None:
    trunk = conversation(6)
    context = trunk[1].prompt_ids + trunk[1].completion.ids
    fork = turn_after(6, (*context, 7, 7), (8,), segment=1)
    with store_at(place) as store:
        store.record([*trunk, fork])
        assert store.turns("s1")[-1] == fork
    assert run_sql(place, "SELECT base, length(prompt_ids) FROM turns WHERE number = 6") == [(1, 8)]


def test_the_same_turn_with_another_prompt_is_refused(place: str) -> None:
    made = conversation(3)
    with store_at(place) as store:
        store.record(made)
        store.record(made[2:])
        with pytest.raises(TakenError, match="turn 's1/2' is stored already"):
            store.record([replace(made[2], prompt_ids=(*made[2].prompt_ids[:-1], 99))])


def test_a_turn_whose_prompt_adds_nothing_is_purged_too(place: str) -> None:
    first = conversation(1)[0]
    again = turn_after(1, first.prompt_ids + first.completion.ids, (4, 5))
    with store_at(place) as store:
        store.record([first, again])
        assert purge(store, by="ada", session="s1").counts["turns"] == 2
        assert [(each.prompt_ids, each.completion.ids) for each in store.turns("s1")] == [((), ())] * 2
    left = run_sql(place, "SELECT base, length, digest, prompt_ids, ids FROM turns")
    assert left == [(None, None, None, b"", b"")] * 2


@pytest.mark.parametrize(
    ("damage", "lost", "reason"),
    [
        ("DELETE FROM turns WHERE number = 2", {3, 4}, "turn 2 of its session, which it continues"),
        ("UPDATE turns SET ids = x'00000000' WHERE number = 3", {3, 4}, "its row is damaged"),
        ("UPDATE turns SET prompt_ids = x'' WHERE number = 4", {4}, "its row is damaged"),
    ],
)
def test_damage_costs_only_the_turns_built_on_it(
    place: str, damage: str, lost: set[int], reason: str
) -> None:
    made, other = conversation(5), replace(turn(0, "s2"), prompt_ids=(5, 6))
    fork = turn_after(5, made[1].prompt_ids + made[1].completion.ids, (9,), segment=1)
    with store_at(place) as store:
        store.start_session(session("s2"))
        store.record([*made, fork, other])
        run_sql(place, damage.replace("x'00000000'", f"x'{'00' * 80}'"))
        with pytest.raises(StoreError, match=f"session 's1', turn 3|4: its prompt is lost: {reason}"):
            store.turns("s1")
        read = store.turns_of(["s1", "s2"])
    assert read["s2"] == [other]
    kept = [each for each in read["s1"] if each.index not in lost]
    assert kept == [each for each in [*made, fork] if each in kept]
    assert {0, 1, 5} <= {each.index for each in kept}
    for each in read["s1"]:
        if each.index in lost:
            assert (each.prompt_ids == () and reason in str(each.untrainable)) or each.index == 4


def test_a_store_of_the_layout_before_is_read_on(place: str) -> None:
    made = conversation(4)
    made[1] = replace(made[1], sampling=Sampling(temperature=0.0))
    with store_at(place) as store:
        store.record(made[:2])
    whole = b"".join(number.to_bytes(4, "little") for number in made[1].prompt_ids)
    run_sql(place, f"UPDATE turns SET prompt_ids = x'{whole.hex()}' WHERE number = 1; {LAYOUT_14} {LAYOUT_4}")
    with closing(Store.open(place)) as store:
        store.record(made[2:])
        read = store.turns("s1")
    assert [each.prompt_ids for each in read] == [each.prompt_ids for each in made]
    assert [each.completion.distribution.value for each in read] == ["tempered", "model"] + ["tempered"] * 2
    assert run_sql(place, "SELECT base FROM turns ORDER BY number") == [(None,), (None,), (None,), (2,)]


def test_signals_of_forgeable_verdicts_became_their_grade(place: str) -> None:
    noted = [Signal(session_id="s1", kind=SignalKind.TAMPERED, value=v, observed_at=v) for v in (1.0, 0.0)]
    with store_at(place) as store:
        store.record([], noted)
    run_sql(
        place,
        f"{LAYOUT_14} ALTER TABLE samples DROP COLUMN routes;"
        "ALTER TABLE rewards DROP COLUMN as_of; DROP TABLE definitions;"
        "ALTER TABLE groups DROP COLUMN trees;"
        "UPDATE signals SET kind = 'forgeable'; UPDATE counters SET value = 5 WHERE name = 'schema';",
    )
    with closing(Store.open(place)) as store:
        (read,) = store.signals_of(["s1"])["s1"]
    assert (read.id, read.kind, read.value) == (noted[0].id, SignalKind.GRADE, Grade.FORGEABLE)


def test_rewards_of_the_layout_without_a_moment_are_read_on(place: str) -> None:
    with store_at(place) as store:
        store.add_rewards((Reward(session_id="s1", definition="old", parts=()),))
    run_sql(
        place,
        f"{LAYOUT_14} ALTER TABLE samples DROP COLUMN routes;"
        "ALTER TABLE rewards DROP COLUMN as_of; DROP TABLE definitions;"
        "ALTER TABLE groups DROP COLUMN trees;"
        "UPDATE counters SET value = 7 WHERE name = 'schema';",
    )
    with closing(Store.open(place)) as store:
        later = Reward(session_id="s1", definition="new", parts=(), as_of=5.0)
        store.add_rewards((later,))
        assert store.rewards("s1") == [Reward(session_id="s1", definition="old", parts=()), later]


def test_groups_of_the_layout_without_routes_are_read_on(place: str) -> None:
    older, newer = group("g1"), group("g2", session_id="s2")
    routed = replace(newer.samples[0], routes=Routes(data=bytes(range(8)), width=2))
    newer = replace(newer, samples=(routed,))
    with store_at(place) as store:
        assert Ledger(store).offer(older)
    run_sql(
        place,
        f"{LAYOUT_14} ALTER TABLE samples DROP COLUMN routes; ALTER TABLE groups DROP COLUMN trees;"
        "UPDATE counters SET value = 9 WHERE name = 'schema';",
    )
    with closing(Store.open(place)) as store:
        assert Ledger(store).offer(newer)
        assert Ledger(store).claim(4, 2, 0) == [older, newer]


def test_groups_of_the_layout_without_people_are_read_on(place: str) -> None:
    older, newer = group("g1"), replace(group("g2", session_id="s2"), person="9d1c", weight=0.25)
    with store_at(place) as store:
        assert Ledger(store).offer(older)
    run_sql(place, f"{LAYOUT_14} UPDATE counters SET value = 14 WHERE name = 'schema';")
    with closing(Store.open(place)) as store:
        assert Ledger(store).offer(newer)
        assert Ledger(store).claim(4, 2, 0) == [older, newer]


def test_a_store_of_the_layout_without_leases_is_read_on(place: str) -> None:
    with store_at(place):
        pass
    run_sql(
        place,
        f"{LAYOUT_14} DROP TABLE samplers; DROP TABLE holds;"
        "UPDATE counters SET value = 13 WHERE name = 'schema';",
    )
    with closing(Store.open(place)) as store:
        one = Leases(store, "sampler-0", seconds=60.0)
        one.enter()
        assert Slots(store, one.owner).plan("p", ["a", "b"]) and one.held() == {"p"}


def test_a_store_of_the_layout_without_slots_is_read_on(place: str) -> None:
    with store_at(place):
        pass
    run_sql(
        place,
        f"{LAYOUT_14} DROP TABLE slots; ALTER TABLE groups DROP COLUMN trees;"
        "UPDATE counters SET value = 10 WHERE name = 'schema';",
    )
    with closing(Store.open(place)) as store:
        assert len(Slots(store).plan("p", ["a", "b"])) == 2
        assert list(Slots(store).open()) == ["p"]
