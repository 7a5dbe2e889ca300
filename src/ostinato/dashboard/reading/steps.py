"""The steps of training, one for each version: what the ledger has of its groups, and its figures."""

import struct
from collections import defaultdict
from statistics import fmean

from sqlalchemy import Connection, func, select

from ostinato.dashboard.reading.base import Answer, RecordSource
from ostinato.dashboard.reading.intervals import mean_of, share_of
from ostinato.store.sql.schema import groups, samples, signals, trainings, versions
from ostinato.store.steps import steps
from ostinato.types import SignalKind, StepFigures

MOST_STEPS = 400
"""The steps of one page, the newest."""
MEASURED = (
    ("gradient", "Gradient norm", ""),
    ("tokens_a_second", "Trained tokens a second", ""),
    ("idle", "Share of time the learner waited", "share"),
    ("entropy", "Entropy of the policy, nats a token", ""),
    ("mismatch", "|log π − log μ| of a token, median, nats", ""),
    ("mismatch_p99", "|log π − log μ| of a token, 99th percentile, nats", ""),
    ("effective", "Effective sample size over the number of tokens", "share"),
    ("ratio", "Mean of π / μ", ""),
    ("cut", "Share of tokens whose weight was bounded", ""),
    ("k1", "Distance to the reference, nats a session", ""),
    ("loss", "Loss", ""),
)
"""A figure of a step that the learner leaves in the record: its name, its words, and how it is shown."""


def steps_of(reading: RecordSource, *, after: int | None = None) -> list[Answer]:
    """Return the newest steps, oldest first; those that no group is recorded of have the learner's figures
    alone."""
    with reading.store.database.read() as connection:
        first = _first(connection) if after is None else after + 1
        found = _of_groups(connection, first)
        solved = _solved(connection, first)
    for figures in steps(reading.store, after=first - 1):
        found.setdefault(figures.version, {"version": figures.version})["figures"] = _measured(figures)
    for version, share in solved.items():
        found.setdefault(version, {"version": version})["solved"] = share
    blank: Answer = {
        "groups": 0,
        "reward": None,
        "best": None,
        "staleness": None,
        "solved": None,
        "figures": {},
    }
    return [blank | found[version] for version in sorted(found)][-MOST_STEPS:]


def _first(connection: Connection) -> int:
    """Return the oldest version of the page."""
    newest = select(versions.c.version).order_by(versions.c.version.desc())
    return connection.scalar(newest.offset(MOST_STEPS - 1).limit(1)) or 0


def _of_groups(connection: Connection, first: int) -> dict[int, Answer]:
    joined = trainings.join(groups, groups.c.id == trainings.c.group_id)
    query = select(trainings.c.version, groups.c.rewards, groups.c.oldest_version).select_from(joined)
    by_version: dict[int, list[tuple[tuple[float, ...], int]]] = defaultdict(list)
    for version, packed, oldest in connection.execute(query.where(trainings.c.version >= first)):
        by_version[version].append((struct.unpack(f"<{len(packed) // 8}d", packed), oldest))
    return {version: _step(version, rows) for version, rows in by_version.items()}


def _step(version: int, rows: list[tuple[tuple[float, ...], int]]) -> Answer:
    rewards = [given for given, _ in rows if given]
    return {
        "version": version,
        "groups": len(rows),
        "reward": mean_of([fmean(given) for given in rewards]) if rewards else None,
        "best": fmean(max(given) for given in rewards) if rewards else None,
        "staleness": max(0, *(version - 1 - oldest for _, oldest in rows)) if rows else None,
    }


def _solved(connection: Connection, first: int) -> dict[int, Answer]:
    """Return the share of the trained sessions whose hidden tests passed, by version."""
    joined = trainings.join(samples, samples.c.group_id == trainings.c.group_id)
    joined = joined.join(signals, signals.c.session_id == samples.c.session_id)
    query = select(trainings.c.version, func.sum(signals.c.number), func.count()).select_from(joined)
    of_tests = query.where(trainings.c.version >= first, signals.c.kind == SignalKind.HIDDEN_TESTS.value)
    rows = connection.execute(of_tests.group_by(trainings.c.version))
    return {version: share_of(passed, count) for version, passed, count in rows}


def _measured(figures: StepFigures) -> Answer:
    """Return those figures of a step that are shown and that it has."""
    flat = figures.flat()
    if figures.mismatch is not None:
        flat |= {"mismatch": figures.mismatch.p50, "mismatch_p99": figures.mismatch.p99}
    return {name: flat[name] for name, _, _ in MEASURED if name in flat}
