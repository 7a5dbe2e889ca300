"""The plans of all queries that the pages send: no table that grows with use is read whole."""

import re

from fuzz.seen_history import EXPERIMENT
from fuzz.seen_store import STORY
from sqlalchemy import event

from ostinato.dashboard.access import OPERATOR, Viewer
from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading import sessions
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.reading.now import marker

ASKED = {
    "/session": {"id": STORY},
    "/version": {"version": "7"},
    "/experiment": {"id": EXPERIMENT},
    "/group": {"id": "group/practice"},
}
GROWS = {
    "sessions",
    "turns",
    "states",
    "signals",
    "rewards",
    "events",
    "samples",
    "groups",
    "shown",
    "trainings",
}
"""The tables that have a row, or several, for each session."""
SCAN = re.compile(r"^SCAN (\w+)(?: USING (COVERING INDEX|INDEX))?")


def test_no_page_reads_a_growing_table_whole(history: RecordSource) -> None:
    sent: list[tuple[str, object]] = []
    engine = history.store.database.engine

    def note(_c: object, _u: object, statement: str, parameters: object, *_: object) -> None:
        sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    for page in PAGES:
        page.read(history, OPERATOR, ASKED.get(page.address, {}))
    for viewer in (
        Viewer(name="ada", organisation="acme"),
        Viewer(name="r", organisation="x", admin=True),
    ):
        for asked in ({}, {"source": "live", "before": "1e12"}):
            sessions.listed(history, viewer, asked)
    marker(history, OPERATOR, "")
    marker(history, OPERATOR, STORY)
    event.remove(engine, "before_cursor_execute", note)
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        found = set()
        for statement, parameters in sent:
            if statement.lstrip().upper().startswith(("SELECT", "WITH")):
                cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                found |= {
                    (step, statement) for *_, step in cursor.fetchall() if _reads_whole(step, statement)
                }
        cursor.close()
    assert not found


def _reads_whole(step: str, statement: str) -> bool:
    """Return whether a step reads all rows of a growing table. A page that stops after its limit does not, in
    the order of an index; nor does a count over an index alone."""
    scan = SCAN.match(step)
    if scan is None or scan[1] not in GROWS or scan[2] == "COVERING INDEX":
        return False
    return "LIMIT" not in statement.upper() or (scan[2] is None and '"order" DESC' not in statement)
