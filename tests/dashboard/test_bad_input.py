"""Records that are empty, damaged, enormous, or changed under the reader's eyes: a page that says so."""

import sqlite3
from pathlib import Path

import httpx
import pytest
from fuzz.seen_store import NOW, STORY
from tests.dashboard.conftest import ADDRESS, TICKET
from tests.dashboard.hostile import Page, poisoned
from tests.dashboard.test_app import ASKED

from ostinato import cli
from ostinato.dashboard.access import OPERATOR, Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading import fleet, now, session, sessions, versions
from ostinato.dashboard.reading.base import RecordSource
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store import Store
from ostinato.store.purge import purge

OURS = {
    *("kind", "source", "ending", "decision", "action", "finish", "distribution", "state", "role", "hash"),
    *("id", "session_id", "turn_id", "group_id", "base", "engine", "engines", "parts", "prompt", "name"),
}
"""Columns with words of our own, and with the names by which rows find each other."""
ADVICE = {
    "/": "ostinato demo",
    "/versions": "ostinato demo",
    "/experiments": "ostinato cycle",
    "/sessions": "ostinato serve",
    "/training": "ostinato run",
    "/rewards": "ostinato cycle",
    "/fleet": "ostinato serve",
    "/accounts": "ostinato keys add",
}
"""What each page tells to run when the store is empty."""


async def test_every_page_of_an_empty_store_says_what_to_run(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    reading = RecordSource(store=store, lexicon=None, directory=tmp_path, loop=LoopLink())
    transport = httpx.ASGITransport(create_app(reading, Doorkeeper(store, TICKET)))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get("/enter", params={"ticket": TICKET})
        for page in PAGES:
            shown = await client.get(page.address)
            assert shown.status_code == (200 if page.listed else 404), page.address
            if page.listed:
                assert f"<code>{ADVICE[page.address]}" in shown.text, page.address
    store.close()


async def test_a_store_that_breaks_is_a_page_and_not_a_crash(
    operator: httpx.AsyncClient, store: Store
) -> None:
    with sqlite3.connect(store.database.url.database or "") as connection:
        connection.execute("DROP TABLE verdicts")
    shown, data = await operator.get("/"), await operator.get("/now.json")
    assert shown.status_code == data.status_code == 503
    assert "The store cannot be read" in shown.text and "verdicts" in data.json()["error"]["message"]
    assert (await operator.get("/sessions")).status_code == 200


def test_a_layout_of_a_later_release_is_refused_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Store.open(tmp_path / "store.db").close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE counters SET value = 999 WHERE name = 'schema'")
    assert cli.main(["dashboard", "--store", str(tmp_path / "store.db"), "--port", "0"]) == 2
    assert "has layout 999" in capsys.readouterr().err


async def test_hostile_texts_everywhere_are_shown_and_do_nothing(
    operator: httpx.AsyncClient, store: Store
) -> None:
    """Every text of the record but the words of our own that say what a row is."""
    with sqlite3.connect(store.database.url.database or "") as connection:
        connection.create_function("poisoned", 1, poisoned)
        named = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = [name for (name,) in connection.execute(named)]
        changed = [
            (table, row[1])
            for table in tables
            for row in connection.execute(f"PRAGMA table_info({table})")
            if row[2] in ("TEXT", "JSON") and not row[5] and not {row[1], f"{table}.{row[1]}"} & OURS
        ]
        for table, column in changed:
            connection.execute(f'UPDATE "{table}" SET "{column}" = poisoned("{column}")')
    assert {("sessions", "user"), ("turns", "arm"), ("verdicts", "reason")} <= {*changed}
    shown = 0
    for page in PAGES:
        answer = await operator.get(page.address, params=ASKED.get(page.address, {}))
        assert answer.status_code in (200, 404), (page.address, answer.text[:300])
        assert Page(answer.text).faults == [], page.address
        shown += answer.text.count("alert(1)")
        data = await operator.get(page.json, params=ASKED.get(page.address, {}))
        assert data.headers["content-type"] == "application/json"
    assert shown > 20


async def test_a_word_that_no_release_wrote_is_a_page_and_not_a_crash(
    reading: RecordSource, store: Store
) -> None:
    with sqlite3.connect(store.database.url.database or "") as connection:
        connection.execute("UPDATE sessions SET ending = 'of a secret session'")
    application = create_app(reading, Doorkeeper(store, TICKET))
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)  # the server logs what is raised
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        await client.get("/enter", params={"ticket": TICKET})
        shown, data = await client.get("/sessions"), await client.get("/sessions.json")
    assert shown.status_code == data.status_code == 500
    assert "could not be made of this record (ValueError)" in shown.text and "secret" not in shown.text
    assert "could not be made" in data.json()["error"]["message"]


async def test_a_purge_under_the_readers_eyes(operator: httpx.AsyncClient, store: Store) -> None:
    address = f"/session?id={STORY}"
    assert "product now" in (await operator.get(address)).text
    purge(store, by="legal", session=STORY)
    shown = (await operator.get(address)).text
    assert "was purged" in shown and "legal" in shown and "product now" not in shown
    assert "ada" not in (await operator.get(f"/session.json?id={STORY}")).text
    assert "version 8" in (await operator.get("/accounts")).text


def test_five_thousand_turns_are_paged(store: Store, reading: RecordSource) -> None:
    _repeat(store, "turns", "id = 'told/1/4'", 5_000, id="'told/1/' || (n + 7)", number="n + 7", base="NULL")
    answer = session.one(reading, OPERATOR, {"id": STORY})
    assert len(answer["turns"]) == session.TURNS and answer["window"]["all"] == 5_007
    assert len(answer["graph"]["turns"]) <= session.MOST_DRAWN
    last = session.one(reading, OPERATOR, {"id": STORY, "from": "5000"})
    assert [turn["number"] for turn in last["turns"]] == list(range(5_000, 5_007))


def test_two_thousand_versions_are_paged(store: Store, reading: RecordSource) -> None:
    _repeat(store, "versions", "version = 8", 2_000, version="n + 9", parent="n + 8")
    answer = versions.listed(reading, OPERATOR, {})
    assert len(answer["versions"]) == versions.MOST and answer["all"] == 2_009 and answer["next"] == 1_809
    assert len(fleet.seen(reading, OPERATOR, {})["chain"]) == fleet.MOST_VERSIONS


def test_a_clock_that_jumped_ahead_is_shown_as_it_is(store: Store, reading: RecordSource) -> None:
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE sessions SET started_at = 1e12 WHERE id = 'foreign/1'")
        connection.exec_driver_sql("UPDATE sessions SET started_at = -5 WHERE id = 'silent/1'")
    listed = sessions.listed(reading, OPERATOR, {})["sessions"]
    assert listed[0]["id"] == "foreign/1" and listed[-1]["id"] == "silent/1"
    assert now.seen(reading, OPERATOR, {})["now"] == NOW


def _repeat(store: Store, table: str, where: str, count: int, **changed: str) -> None:
    """Copy one row of a table `count` times, with other values in the columns `changed`."""
    with store.database.write() as connection:
        names = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")]
        columns = ", ".join(f'"{name}"' for name in names)
        values = ", ".join(changed.get(name, f'"{name}"') for name in names)
        connection.exec_driver_sql(
            "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers "
            f"WHERE n + 1 < {count}) INSERT INTO {table} ({columns}) SELECT {values} FROM {table}, numbers "
            f"WHERE {where}"
        )
