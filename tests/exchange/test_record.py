"""The record as a notebook reads it: typed nouns, tables, and nothing that changes it.

Covers exchange/record.py and exchange/tables.py.
"""

import hashlib
import math
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from tests.databases import backend, new_place, place, postgres
from tests.store.builders import session, turn

import ostinato as o
from ostinato import extras
from ostinato.store import Store, StoreError
from ostinato.store.purge import purge
from ostinato.types import Completion, Decision, Ending, FinishReason, RewardPart

__all__ = ["backend", "new_place", "place", "postgres"]


VERSION = o.Checkpoint(
    version=1, parent=None, digest="9f", kind="anchor", bytes=8, created_at=0.0, batch=("g",)
)


def reward(id: str, *values: float) -> o.Reward:
    parts = tuple(RewardPart(name=f"p{n}", value=value) for n, value in enumerate(values))
    return o.Reward(session_id=id, definition="d", parts=parts)


def fill(store: Store) -> None:
    """OpenRecord seven sessions of two people and two arms, some with rewards and signals."""
    for n in range(7):
        arm, user = ("main", "ada") if n % 2 else ("challenger", "ben")
        some = [turn(i, f"s{n}") for i in range(n % 3 + 1)]
        one = session(f"s{n}", arm=arm, user=user, started_at=float(9 - n), ending=Ending.FINISHED)
        kept = o.Signal(session_id=f"s{n}", kind=o.SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
        said = o.Signal(session_id=f"s{n}", kind=o.SignalKind.COMMENT, value="fine", observed_at=2.0)
        store.record(some, [kept, said], [one])
    store.record([turn(0, "b")], (), [session("b", source=o.Source.BENCH, started_at=1.0)])
    store.add_rewards([reward("s1", 0.25), reward("s2", 1.0)])
    store.add_rewards([reward("s1", 0.5, -0.25)])
    store.add_version(VERSION)
    store.add_verdict(o.Verdict(version=1, decision=Decision.HOLD, reason="few", evidence={"n": 2}))


def test_a_record_is_read_by_source_arm_person_and_time(place: str) -> None:
    store = Store.open(place)
    fill(store)
    run = o.open(place)
    assert [each.id for each in run.sessions()] == ["b", *(f"s{n}" for n in range(6, -1, -1))]
    assert list(run.sessions()) == store.sessions()
    assert [each.id for each in run.sessions(source="live", arm="main")] == ["s5", "s3", "s1"]
    assert [each.id for each in run.sessions(user="ben", since=6.0)] == ["s2", "s0"]
    assert list(run.turns("s2")) == store.turns("s2") and len(store.turns("s2")) == 3
    assert {each.session_id for each in run.turns(source=o.Source.BENCH)} == {"b"}
    assert [each.value for each in run.signals(run.session("s4"))] == [1.0, "fine"]
    worth = run.reward("s1")
    assert worth is not None and [part.value for part in worth.parts] == [0.5, -0.25]
    assert run.reward("s0") is None
    assert [each.total for each in run.rewards()] == [1.0, 0.25]
    assert (list(run.versions()), list(run.verdicts())) == (store.versions(), store.verdicts())
    assert run.consented(list(run.sessions())) == set()
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    store.record((), (), [session("yes", user="ada", consent=True)])
    assert run.consented(list(run.sessions())) == {"yes"}
    purge(store, by="admin", user="ben")
    assert {each.user for each in run.sessions(source="live")} == {"ada"}
    run.close()
    store.close()


def test_tables_have_one_column_a_field(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    fill(store)
    run = o.open(tmp_path / "store.db")
    frame = run.turns(source="live", arm="main").to_pandas()
    assert list(frame["session_id"]) == ["s5"] * 3 + ["s3"] + ["s1"] * 2
    assert frame["completion.ids"].map(len).sum() == 12
    table = run.turns().to_arrow()
    assert pa.types.is_integer(table.schema.field("completion.ids").type.value_type)
    signals = run.signals("s1").to_pandas()
    assert list(signals["text"])[1] == "fine" and math.isnan(list(signals["value"])[1])
    worth = run.rewards().to_arrow().to_pylist()
    assert [row["total"] for row in worth] == [1.0, 0.25] and worth[1]["parts"][1]["name"] == "p1"
    assert run.verdicts().to_arrow().to_pylist()[0]["evidence"] == '{"n": 2}'
    assert (
        run.sessions(user="nobody").to_arrow().num_rows == len(run.sessions(user="nobody").to_pandas()) == 0
    )
    store.close()


def test_reading_leaves_every_byte_and_waits_for_no_writer(tmp_path: Path) -> None:
    """A writer is in the middle of a transaction, and then goes on."""
    path = tmp_path / "store.db"
    store = Store.open(path)
    fill(store)
    store.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest(), os.stat(path).st_mtime_ns
    run = o.open(path)
    assert len(list(run.turns())) == 14
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), os.stat(path).st_mtime_ns) == before
    with pytest.raises(StoreError, match="was opened to be read"):
        run.store.start_session(session("new"))
    with pytest.raises(StoreError, match="readonly database"), run.store.database.read() as connection:
        connection.exec_driver_sql("DELETE FROM turns")
    writer = Store.open(path)
    pages = iter(run.sessions())
    first = next(pages)
    with writer.database.write():
        assert first.id == "b" and len(list(run.turns())) == 14
    writer.record([turn(0, "later")], (), [session("later", started_at=99.0)])
    assert [each.id for each in pages][-2:] == ["s0", "later"]
    run.close()
    writer.close()


def test_what_is_no_record_is_refused_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OSTINATO_RECORD", raising=False)
    for name in ("", "none.db", "runs/none"):
        with pytest.raises(StoreError, match="no folder below runs/ holds a record"):
            o.open(name)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    with pytest.raises(StoreError, match="is no record"):
        o.open("runs/one")
    Store.open("runs/one/store.db").close()
    assert o.open().folder == Path("runs/one") and list(o.open("runs/one").sessions()) == []
    assert "as its operator" in repr(o.open())
    with sqlite3.connect("runs/one/store.db") as connection:
        connection.execute("UPDATE counters SET value = 3 WHERE name = 'schema'")
    with pytest.raises(StoreError, match="has layout 3"):
        o.open("runs/one")
    assert not Path("none.db").exists()


def test_a_table_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    rows: o.Table[o.Turn] = o.Table(pages=lambda: iter([]))
    for make, package in ((rows.to_arrow, "pyarrow"), (rows.to_pandas, "pandas")):
        with pytest.raises(
            extras.MissingPackageError, match=rf"{package}, which is not installed.*\[notebook\]"
        ):
            make()


def test_a_turn_of_every_shape_is_a_row() -> None:
    odd = o.Turn(
        session_id="s", index=0, segment=0, arm="a", prompt_ids=(), started_at=0.0, latency_s=0.0,
        completion=Completion(ids=(), logprobs=(), versions=(), finish=FinishReason.STOP, routes=b"ab"),
    )  # fmt: skip
    (row,) = o.Table(pages=lambda: iter([[odd]])).rows()
    assert row["completion.routes"] == "YWI=" and row["sampling.structure"] is None
