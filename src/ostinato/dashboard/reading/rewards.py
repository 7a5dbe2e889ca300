"""Rewards over versions, part by part, and the monitors beside them: what changed, and who shows it best."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource, choice, first_version, version_of
from ostinato.dashboard.reading.intervals import mean_of, quantiles
from ostinato.store.cycle_log import CycleAction
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.schema import cycle_log, rewards, sessions, turns
from ostinato.types import Source
from ostinato.web.plain import line_of

NEWEST = 1_500
"""The newest rewards that the page reads."""
MOST_VERSIONS = 24
ALARMS = 20
BEGAN = re.compile(r" from session (\S+) on$")
"""The session with which a change began, in the words of the monitors."""
SOURCES = (Source.PRACTICE, Source.LIVE)
REPORT = "week.json"
"""The report in the run folder of `ostinato cycle --simulate=week`, which knows what people thought."""
GAIN = ("estimate", "low", "high")


def seen(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return the distribution of each part over versions, and what the monitors say. Raises AskedError."""
    with reading.store.database.read() as connection:
        rows = _newest(connection)
        alarms = _alarms(connection)
    counts = {source: sum(row["source"] == source for row in rows) for source in SOURCES}
    default = max(SOURCES, key=lambda source: counts[source])
    source = choice(asked, "source", tuple(SOURCES), default)
    chosen = [row for row in rows if row["source"] == source and row["version"] is not None]
    behaviours: list[Answer] = []
    if reading.loop is not None:
        told = reading.loop.behaviours(reading.store, reading.lexicon, reading.clock())
        behaviours = [_behaviour(each) for each in told if each["points"]]
    still = [each["name"] for each in behaviours if not _moves(each)]
    return {
        "title": "Rewards",
        "source": source,
        "counts": {str(each): count for each, count in counts.items()},
        "newest": NEWEST,
        "definitions": sorted({row["definition"] for row in chosen}),
        "parts": _parts(chosen),
        "truth": _truth(reading),
        "alarms": alarms + _of_verdicts(reading),
        "behaviours": [each for each in behaviours if _moves(each)],
        "still": still,
        "watching": reading.loop is not None and reading.lexicon is not None,
    }


def _newest(connection: Connection) -> list[Answer]:
    """Return the newest rewards, one a session, with the version that began the session."""
    query = select(rewards.c.session_id, rewards.c.definition, rewards.c.total, rewards.c.parts)
    found: dict[str, Answer] = {}
    for id, definition, total, parts in connection.execute(
        query.order_by(rewards.c.order.desc()).limit(NEWEST)
    ):
        found.setdefault(id, {"id": id, "definition": definition, "total": total, "parts": json.loads(parts)})
    ids = list(found)
    begun = select(turns.c.session_id, first_version()).where(turns.c.number == 0)
    for id, version in rows_in(connection, begun, turns.c.session_id, ids):
        found[id]["version"] = version_of(version)
    of = select(sessions.c.id, sessions.c.source)
    for id, source in rows_in(connection, of, sessions.c.id, ids):
        found[id]["source"] = source
    return [{"version": None, "source": None} | row for row in found.values()]


def _parts(rows: Sequence[Answer]) -> list[Answer]:
    """Return the total and each part by version; a part that nothing was observed for does not count."""
    values: dict[str, dict[int, list[float]]] = {"total": defaultdict(list)}
    silent: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        values["total"][row["version"]].append(row["total"])
        for part in row["parts"]:
            state = part.get("state", "observed")
            silent[part["name"]][state] += 1
            if state == "observed":
                by_version = values.setdefault(part["name"], defaultdict(list))
                by_version[row["version"]].append(part["value"])
    return [
        {
            "name": line_of(name, 40),
            "states": dict(silent[name]),
            "spreads": [
                {"x": version, "quantiles": quantiles(some), **mean_of(some)}
                for version, some in sorted(by_version.items())[-MOST_VERSIONS:]
            ],
        }
        for name, by_version in values.items()
        if by_version
    ]


def _behaviour(told: Answer) -> Answer:
    points = [{"at": each["at"], **mean_of(each["values"])} for each in told["points"]]
    return {**told, "points": points}


def _moves(behaviour: Answer) -> bool:
    """Return whether a behaviour was ever seen to differ."""
    return len({round(point[name], 9) for point in behaviour["points"] for name in ("low", "high")}) > 1


def _alarms(connection: Connection) -> list[Answer]:
    """Return what the monitors sounded, from the log of the cycle, newest first."""
    query = select(cycle_log).where(cycle_log.c.action == CycleAction.ALARM.value)
    rows = connection.execute(query.order_by(cycle_log.c.order.desc()).limit(ALARMS)).mappings()
    return [
        {
            "at": row["at"],
            "words": line_of(row["detail"], 400),
            "sessions": BEGAN.findall(row["detail"]),
            "version": None,
        }
        for row in rows
    ]


def _of_verdicts(reading: RecordSource) -> list[Answer]:
    """Return the alarms that held a promotion, with the sessions that show them best."""
    found = []
    for verdict in reversed(reading.store.verdicts()):
        told: Any = verdict.evidence.get("alarms")
        for alarm in told if isinstance(told, list) else ():
            shift = alarm["shift"]
            words = f"{alarm['behaviour']} went from {shift['before']:.3f} to {shift['after']:.3f}"
            words = f"{words} (p = {shift['p']:.4f}) on version {verdict.version}: the promotion was held"
            found.append(
                {"at": None, "words": words, "sessions": list(alarm["sessions"]), "version": verdict.version}
            )
    return found[:ALARMS]


def _truth(reading: RecordSource) -> Answer | None:
    """Return reward and hidden satisfaction by cycle and what a week gained; None where nobody simulated one.

    A report that cannot be read is an answer with its `fault`.
    """
    if reading.directory is None or not (path := reading.directory / REPORT).exists():
        return None
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        cycles = [
            {
                "hours": float(row["hours"]),
                "reward": float(row["reward"]),
                "satisfaction": None if row["satisfaction"] is None else float(row["satisfaction"]),
                "promoted": str(row["decision"]).startswith("promote"),
            }
            for row in report["cycles"]
        ]
        gained = {name: float(report["hidden_satisfaction_gained"][name]) for name in GAIN}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"fault": f"{REPORT} in the run folder cannot be read: {error!r}"}
    return {"fault": "", "cycles": cycles, "gained": gained}
