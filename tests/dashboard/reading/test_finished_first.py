"""Sessions that were trained on beside those that came too late."""

from dataclasses import replace
from pathlib import Path

from tests.store.builders import group, session, turn, version

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.html import environment
from ostinato.dashboard.reading import training
from ostinato.dashboard.reading.base import Answer, RecordSource
from ostinato.dashboard.reading.finished_first import ALL, trained_beside_stale
from ostinato.store import Ledger, Store
from ostinato.types import Group


def long(name: str, first: int, *, tokens: int, turns: int, kind: str, oldest: int) -> Group:
    """A group of one session of so many tokens and turns."""
    made = group(name, version=oldest, turns=tuple(range(first, first + turns)))
    (sample,) = made.samples
    per_token = {
        column: (getattr(sample, column) * tokens)[:tokens]
        for column in ("ids", "mask", "logprobs", "versions", "temperatures")
    }
    return replace(made, kind=kind, samples=(replace(sample, **per_token),))  # type: ignore[arg-type]


def compared(store: Store) -> list[Answer]:
    with store.database.read() as connection:
        return trained_beside_stale(connection)


def test_the_long_sessions_that_came_too_late_stand_beside_the_short_ones(
    tmp_path: Path, reading: RecordSource
) -> None:
    store = Store.open(tmp_path / "own.db")
    store.record([turn(i) for i in range(20)], sessions=[session()])
    ledger, taken = Ledger(store), 0

    def offer(*groups: tuple[int, int, str, int]) -> None:
        nonlocal taken
        for tokens, turns, kind, oldest in groups:
            ledger.offer(long(f"g{tokens}", taken, tokens=tokens, turns=turns, kind=kind, oldest=oldest))
            taken += turns

    offer((10, 1, "fix", 3), (20, 2, "fix", 3), (30, 3, "spread", 3))
    trained = ledger.claim(4, 3, 0)
    ledger.commit(version(4, *(each.id for each in trained)))
    assert [each.id for each in trained] == ["g10", "g20", "g30"] and compared(store) == []
    offer((90, 5, "spread", 0), (70, 4, "question", 0))
    ledger.claim(5, 3, 3)
    rows = {row["kind"]: row for row in compared(store)}
    assert list(rows) == [ALL, "fix", "spread", "question"]
    assert rows[ALL]["trained"] == {
        "sessions": 3,
        "share": 1.0,
        "tokens": [15.0, 20.0, 25.0],
        "turns": [1.5, 2.0, 2.5],
    }
    assert rows[ALL]["stale"]["tokens"] == [75.0, 80.0, 85.0] and rows[ALL]["stale"]["sessions"] == 2
    assert rows["fix"]["stale"] is None and rows["question"]["trained"] is None
    assert rows["spread"]["stale"]["share"] == 0.5 and rows["spread"]["trained"]["turns"] == [3.0] * 3
    answer = training.seen(replace(reading, store=store), OPERATOR, {})
    assert answer["beside_stale"] == compared(store)
    section = environment().get_template("parts.html").module.stale_section(compared(store))  # type: ignore[attr-defined]
    assert "question" in section and "75" in section and "85" in section
