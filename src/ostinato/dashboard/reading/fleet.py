"""The engines behind each arm and what they lately served, the chain of weights and how far each region is
behind it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import Connection, func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import (
    Answer,
    Asked,
    RecordSource,
    RegionCopy,
    first_version,
    version_of,
)
from ostinato.dashboard.reading.engines import asked, engines_of
from ostinato.store import Objects, ObjectsError, StoreError
from ostinato.store.config import objects_of
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.schema import sessions, turns
from ostinato.types import Arm, Checkpoint
from ostinato.web.plain import line_of

MOST_SESSIONS = 300
"""The newest sessions from whose turns the speed of the engines is read."""
MOST_VERSIONS = 60
WEIGHTS = "weights"
"""The prefix of a run's weights in its object store."""


def seen(reading: RecordSource, _: Viewer, __: Asked) -> Answer:
    """Return the engines by arm, and the newest versions of the chain with their bytes."""
    store = reading.store
    arms, versions = store.arms(), store.versions()
    with store.database.read() as connection:
        served = lately(connection)
    stored, trouble = _stored(reading)
    engines = engines_of(arms)
    newest = max((row.version for row in versions), default=None)
    return {
        "title": "Fleet",
        "arms": [_arm(arm, served.get(arm.name, []), newest, engines) for arm in arms],
        "others": [
            {"name": line_of(name, 40), **speed(rows)}
            for name, rows in sorted(served.items())
            if name not in {arm.name for arm in arms}
        ],
        "sessions": MOST_SESSIONS,
        "newest": newest,
        "chain": [_link(row, stored) for row in versions[-MOST_VERSIONS:]],
        "all": len(versions),
        "trouble": trouble,
        "objects": stored is not None,
        "regions": regions_seen(reading.regions, newest),
    }


def lately(connection: Connection) -> dict[str, list[Any]]:
    """Return, by arm, the turns of the newest sessions."""
    newest = select(sessions.c.id).order_by(sessions.c.started_at.desc(), sessions.c.id.desc())
    ids = list(connection.scalars(newest.limit(MOST_SESSIONS)))
    column = turns.c
    query = select(
        column.arm,
        column.started_at,
        column.latency_s,
        (func.length(column.ids) / 4).label("tokens"),
        first_version().label("version"),
    )
    by_arm: dict[str, list[Any]] = {}
    for row in rows_in(connection, query, column.session_id, ids):
        by_arm.setdefault(row.arm, []).append(row)
    return by_arm


def _arm(arm: Arm, rows: Sequence[Any], newest: int | None, engines: Mapping[str, Answer]) -> Answer:
    return {
        "name": line_of(arm.name, 40),
        "version": arm.version,
        "share": arm.share,
        "engines": [engines[url] for url in arm.engines],
        "lag": None if newest is None or arm.version < 0 else newest - arm.version,
        **speed(rows),
    }


def speed(rows: Sequence[Any]) -> Answer:
    """Return what was served lately: turns, when, how fast, and of which versions."""
    tokens = sum(int(row.tokens) for row in rows)
    busy = sum(row.latency_s for row in rows)
    versions = Counter(version_of(row.version) for row in rows if row.version)
    return {
        "turns": len(rows),
        "last_at": max((row.started_at + row.latency_s for row in rows), default=None),
        "latency_s": median(row.latency_s for row in rows) if rows else None,
        "tokens_a_second": tokens / busy if busy > 0 else None,
        "served": [{"version": version, "turns": count} for version, count in versions.most_common(6)],
    }


def _stored(reading: RecordSource) -> tuple[dict[int, int] | None, str | None]:
    """Return the bytes that each version has in the object store; or None, with what is wrong if it should
    be there."""
    if reading.directory is None:
        return None, None
    try:
        where = objects_of(reading.directory)
        if "://" in where:
            return None, f"the weights lie in {where}, which is not listed here: see `ostinato weights list`"
        if not Path(where).is_dir():
            return None, f"{where} is not there: the weights cannot be listed, only their record"
        sizes = Objects.open(where).sizes(WEIGHTS)
    except (ObjectsError, OSError, StoreError) as error:
        return None, f"the object store did not answer: {line_of(str(error), 200)}"
    stored: dict[int, int] = {}
    for key, size in sizes.items():
        number = next((part for part in key.split("/") if part.removesuffix(".json").isdigit()), None)
        if number is not None:
            version = int(number.removesuffix(".json"))
            stored[version] = stored.get(version, 0) + size
    return stored, None


def _link(row: Checkpoint, stored: dict[int, int] | None) -> Answer:
    return {
        "version": row.version,
        "parent": row.parent,
        "kind": row.kind,
        "bytes": row.bytes,
        "created_at": row.created_at,
        "stored": None if stored is None else stored.get(row.version, 0),
    }


def regions_seen(regions: Sequence[RegionCopy], newest: int | None) -> list[Answer]:
    """Return the newest version that each region has whole, and how many it is behind the record."""
    found = []
    for region, answer in zip(regions, asked(regions, _region), strict=True):
        head = answer.get("head")
        lag = None if newest is None or head is None else max(0, newest - head)
        found.append({**region.shown, "head": head, "trouble": answer["trouble"], "lag": lag})
    return found


def _region(region: RegionCopy) -> Answer:
    # A version is there once its manifest is: `PREFIX/versions/0000000007.json`.
    manifests = Objects.open(region.objects).list(f"{region.prefix}/versions")
    numbers = (key.rpartition("/")[2].removesuffix(".json") for key in manifests)
    return {"head": max((int(number) for number in numbers if number.isdecimal()), default=None)}
