import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.store import Ledger, Store
from ostinato.train.base import StateError
from ostinato.train.batch import Row
from ostinato.train.teacher import Pool, TeacherRows, chosen_rows, induction_row
from ostinato.types import Completion, Ending, FinishReason, Session, Source, State, Turn

CONTEXT = 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store.db")


def lesson(
    store: Store,
    id: str,
    *prompts: tuple[int, ...],
    ended: bool = True,
    task: str | None = None,
    started_at: float = 0.0,
) -> None:
    session = Session(
        id=id,
        source=Source.TEACHER,
        user="teacher",
        arm="teacher",
        task_id=task,
        harness="h",
        started_at=started_at,
        ending=Ending.FINISHED if ended else None,
    )
    completion = Completion(ids=(7, 8), logprobs=(0.0, 0.0), versions=(-1, -1), finish=FinishReason.STOP)
    turns = [
        Turn(
            session_id=id,
            index=index,
            segment=0,
            arm="teacher",
            prompt_ids=prompt,
            completion=completion,
            started_at=0.0,
            latency_s=0.0,
        )
        for index, prompt in enumerate(prompts)
    ]
    store.record(turns, (), [session])


def test_what_was_done_counts_more_than_what_was_seen(store: Store) -> None:
    lesson(store, "s1", (1, 2), (1, 2, 7, 8, 3))
    seen = 0.2
    (row,) = TeacherRows(store, context=CONTEXT, observed=seen).read()
    assert row.session_id == "s1"
    assert row.ids == (1, 2, 7, 8, 3, 7, 8) and row.weights == (seen, seen, 1, 1, seen, 1, 1)


def test_the_order_in_which_lessons_end_changes_nothing(store: Store) -> None:
    lesson(store, "s2", (4,), task="b", started_at=1.0)
    lesson(store, "s1", (2,), task="a", started_at=3.0)
    lesson(store, "s3", (1,), task="a", started_at=2.0)
    lesson(store, "s4", (9,), ended=False)
    rows = TeacherRows(store, context=CONTEXT)
    assert [row.ids[0] for row in rows.read()] == [1, 2, 4]
    store.end_session("s4", Ending.FINISHED)
    assert [row.ids[0] for row in rows.read()] == [9, 1, 2, 4]
    assert Ledger(store).unaccounted() == 4
    rows.trained(["s1", "s2"])
    assert Ledger(store).states()[State.TRAINED] == 2


def test_a_session_whose_tokens_do_not_fit_is_accounted(store: Store) -> None:
    lesson(store, "s1", (1, 2), (9, 9, 9, 9, 9))
    assert TeacherRows(store, context=CONTEXT).read() == []
    assert Ledger(store).states()[State.UNTRAINABLE] == 2 and Ledger(store).unaccounted() == 0


def test_a_session_beyond_the_context_is_left_out_and_the_others_are_learnt_from(store: Store) -> None:
    lesson(store, "long", (1,) * CONTEXT)
    lesson(store, "short", (2,))
    rows = TeacherRows(store, context=CONTEXT)
    assert [row.session_id for row in rows.read()] == ["short"]
    rows.trained(["short"])
    states = Ledger(store).states()
    assert states[State.UNTRAINABLE] == states[State.TRAINED] == 1
    assert Ledger(store).unaccounted() == 0


@given(st.integers(0, 1000))
def test_an_induction_row_repeats_its_span(seed: int) -> None:
    row = induction_row(50, random.Random(seed))
    n = row.weights.index(1.0)
    assert row.ids[n : 2 * n] == row.ids[:n] and row.ids[2 * n :] == row.ids[: n // 2]
    assert max(row.ids) < 50 and len(row.weights) == len(row.ids)


def numbered(first: int, count: int) -> list[Row]:
    return [Row(ids=(n,) * (1 + n % 5), weights=(1.0,) * (1 + n % 5)) for n in range(first, first + count)]


def drawn(pool: Pool, batches: int, size: int) -> list[int]:
    return [row.ids[0] for batch in pool.draw(batches, size) for row in batch]


def test_every_row_is_drawn_before_any_is_drawn_again() -> None:
    pool = Pool(numbered(0, 24), random.Random(0))
    assert sorted(drawn(pool, 2, 6) + drawn(pool, 2, 6)) == list(range(24))


def test_rows_of_similar_length_share_a_batch() -> None:
    pool = Pool(numbered(0, 40), random.Random(0))
    spreads = [max(r.length for r in batch) - min(r.length for r in batch) for batch in pool.draw(5, 8)]
    assert max(spreads) <= 1


def test_a_few_rows_fill_many_batches() -> None:
    pool = Pool(numbered(0, 3), random.Random(0))
    assert len(drawn(pool, 4, 20)) == 80


def test_a_session_that_a_failure_of_ours_ended_teaches_nothing(store: Store) -> None:
    lesson(store, "s1", (1,), ended=False)
    store.end_session("s1", Ending.INFRASTRUCTURE)
    lesson(store, "s2", (2,))
    assert [row.session_id for row in TeacherRows(store, context=CONTEXT).read()] == ["s2"]


def test_chosen_sessions_of_several_records_are_learnt_from_and_one_that_is_gone_is_named(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        store = Store.open(tmp_path / f"{name}.db")
        lesson(store, f"{name}/a", (1, 2))
        lesson(store, f"{name}/b", (1, 2), (1, 2, 7, 8, 9))
        store.close()
    path = tmp_path / "chosen.json"
    wanted = {str(tmp_path / "two.db"): ["two/b"], str(tmp_path / "one.db"): ["one/b", "one/a"]}
    path.write_text(json.dumps(wanted))
    rows = chosen_rows(path, 0.0)
    assert [row.session_id for row in rows] == ["two/b", "one/b", "one/a"]
    assert rows[0].ids == (1, 2, 7, 8, 9, 7, 8) and rows[0].weights == (0, 0, 1, 1, 0, 1, 1)
    path.write_text(json.dumps({str(tmp_path / "one.db"): ["two/b"]}))
    with pytest.raises(StateError, match="has session two/b no longer"):
        chosen_rows(path, 0.0)
