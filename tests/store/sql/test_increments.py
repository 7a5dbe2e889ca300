"""Turns are stored as increments and read back whole; damage costs only what was built on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.databases import NewPlace, run_sql
from tests.store.builders import session, turn

from ostinato.store import Store, StoreError, TakenError
from ostinato.store.purge import purge
from ostinato.types import Completion, FinishReason, Turn

IDS = st.lists(st.integers(0, 2), max_size=4).map(tuple)
"""Few ids, so that prompts begin like contexts that they do not continue."""
STEPS = st.lists(st.tuples(st.integers(-1, 11), IDS, IDS), max_size=12)
"""Of each turn: the turn that it continues or -1, what its prompt adds, and what was sampled."""


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
