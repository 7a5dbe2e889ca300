"""Covers dashboard/reading/base.py: the fields of an address."""

import pytest
from fuzz.seen_store import FOREIGN, NOW, SILENT, STORY

from ostinato.dashboard.access import OPERATOR, Viewer
from ostinato.dashboard.reading.base import AskedError, RecordSource, version_bytes, version_of
from ostinato.dashboard.reading.sessions import ROWS, listed
from ostinato.types import Ending, Session, Source

ADA = Viewer(name="ada", organisation="acme")
ROOT = Viewer(name="root", organisation="acme", admin=True)


def ids(reading: RecordSource, viewer: Viewer = OPERATOR, /, **asked: str) -> list[str]:
    return [row["id"] for row in listed(reading, viewer, asked)["sessions"]]


def test_the_newest_come_first_with_their_figures(reading: RecordSource) -> None:
    rows = listed(reading, OPERATOR, {})["sessions"]
    assert {row["id"] for row in rows[:2]} == {SILENT, FOREIGN}
    told = next(row for row in rows if row["id"] == STORY)
    assert (told["turns"], told["version"], told["ending"]) == (7, 7, "finished")
    assert told["reward"] == pytest.approx(-0.271)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"user": "ada"}, {STORY}),
        ({"organisation": "globex"}, {FOREIGN}),
        ({"source": "practice", "reward_from": "0.95"}, {"practice-0"}),
        ({"reward_to": "-0.5"}, {"practice-3"}),
        ({"ending": "none", "source": "live"}, {SILENT, FOREIGN}),
        ({"task": "pebble-fix-7", "reward_from": "0.9", "reward_to": "0.95"}, {"practice-1"}),
        ({"version": "8", "source": "live"}, {STORY, SILENT, FOREIGN}),
        ({"version": "3"}, set()),
        ({"text": "SECRET words of carol"}, {FOREIGN}),
        ({"text": "secret words of bob"}, {SILENT}),
    ],
)
def test_filters(reading: RecordSource, asked: dict[str, str], found: set[str]) -> None:
    assert set(ids(reading, **asked)) == found


def test_a_viewer_sees_their_own(reading: RecordSource) -> None:
    assert ids(reading, ADA) == [STORY]
    assert set(ids(reading, ROOT)) == {STORY, SILENT}
    assert ids(reading, ROOT, text="secret words of bob") == []
    assert ids(reading, ROOT, organisation="globex") == []
    assert ids(reading, Viewer(name="ada"), user="ada") == []


def test_pages_by_key_show_each_session_once(reading: RecordSource) -> None:
    many = [
        Session(
            id=f"many-{n:03}", source=Source.BENCH, user="bench", arm="a", task_id=None, harness="",
            started_at=NOW - 100 - n // 3, ending=Ending.FINISHED, consent=True,
        )
        for n in range(2 * ROWS + 7)
    ]  # fmt: skip
    reading.store.record((), sessions=many)
    seen, asked = [], {"source": "bench"}
    while True:
        answer = listed(reading, OPERATOR, asked)
        seen += [row["id"] for row in answer["sessions"]]
        if answer["next"] is None:
            break
        asked = {"source": "bench", **answer["next"]}
    assert len(seen) == len(set(seen)) == len(many)


@pytest.mark.parametrize(
    "asked",
    [
        {"source": "web"},
        {"reward_from": "nan"},
        {"reward_to": "much"},
        {"version": "9" * 12},
        {"version": "-"},
    ],
)
def test_a_field_that_cannot_be_read_is_named(reading: RecordSource, asked: dict[str, str]) -> None:
    with pytest.raises(AskedError, match=next(iter(asked))):
        listed(reading, OPERATOR, asked)


def test_versions_lie_in_the_first_bytes() -> None:
    assert version_of(version_bytes(7)) == 7 and version_of(version_bytes(-1)) == -1
    assert version_of(b"") is None and version_of(None) is None
