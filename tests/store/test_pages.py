"""The pages of the record: each ended live session of the arms once, in the order of ids."""

from pathlib import Path

import pytest
from tests.store.builders import session, turn

from ostinato.store import Store
from ostinato.store.pages import ended_sessions, latest_sessions, newest_sessions
from ostinato.store.purge import purge
from ostinato.types import Ending, Source


@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_ended_live_session_is_in_one_page(tmp_path: Path, size: int) -> None:
    store = Store.open(tmp_path / "store.db")
    for n in range(7):
        arm = "main" if n % 2 else "challenger"
        store.record([turn(0, f"s{n}")], (), [session(f"s{n}", arm=arm, ending=Ending.FINISHED)])
    store.record([turn(0, "open")], (), [session("open")])
    store.record([turn(0, "bench")], (), [session("bench", source=Source.BENCH, ending=Ending.FINISHED)])
    store.record([turn(0, "other")], (), [session("other", arm="held", ending=Ending.FINISHED)])
    store.record([turn(0, "gone")], (), [session("gone", user="eve", ending=Ending.FINISHED)])
    purge(store, by="admin", user="eve")
    pages = list(ended_sessions(store, ["main", "challenger"], size))
    assert [each.id for page in pages for each in page] == [f"s{n}" for n in range(7)]
    assert max(map(len, pages)) == min(size, 7)
    assert list(ended_sessions(store, [], size)) == []
    back = [each for page in latest_sessions(store, size) for each in page]
    assert sorted(back, key=lambda each: (each.started_at, each.id), reverse=True) == back
    assert {each.id for each in back} == {*(f"s{n}" for n in range(7)), "other"}


def test_the_newest_of_an_arm_before_a_moment(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    for n in range(6):
        arm = "main" if n % 2 else "other"
        store.record(
            [turn(0, f"s{n}")], (), [session(f"s{n}", arm=arm, started_at=n, ending=Ending.FINISHED)]
        )
    assert [each.id for each in newest_sessions(store, "main", 2, before=9)] == ["s3", "s5"]
    assert [each.id for each in newest_sessions(store, "main", 2, before=5)] == ["s1", "s3"]
    assert [each.id for page in ended_sessions(store, ["main"], 1, since=3) for each in page] == ["s3", "s5"]
