"""Training: the steps of one or several runs, the groups they learnt from, and what became of all work."""

import struct
from typing import Any

from sqlalchemy import Connection, Select, func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource, whole
from ostinato.dashboard.reading.finished_first import trained_beside_stale
from ostinato.dashboard.reading.steps import MEASURED, MOST_STEPS, steps_of
from ostinato.store.sql.schema import groups, prompts, states, trainings, turns
from ostinato.types import State
from ostinato.web.plain import line_of

MOST_GROUPS = 30
MOST_REASONED = 50_000
"""The turns of one state whose reasons are counted."""
WITH_REASONS = (State.UNTRAINABLE, State.VOID)


def seen(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return the steps of each run, the newest groups, or those of one version, and the ledger's account."""
    version = whole(asked, "version", -1)
    runs = [{"name": one.name, "steps": steps_of(one)} for one in (reading, *reading.beside)]
    with reading.store.database.read() as connection:
        newest = _groups(connection, version, whole(asked, "before", 2**31 - 1))
        beside_stale = trained_beside_stale(connection)
        account = {"turns": _turns(connection), "prompts": _prompts(connection)}
    return {
        "title": "Training",
        "runs": runs,
        "measured": [{"name": name, "words": words, "as": as_} for name, words, as_ in MEASURED],
        "most": MOST_STEPS,
        "groups": newest[:MOST_GROUPS],
        "version": version if version >= 0 else None,
        "next": newest[MOST_GROUPS - 1]["order"] if len(newest) > MOST_GROUPS else None,
        "beside_stale": beside_stale,
        "account": account,
    }


def _groups(connection: Connection, version: int, before: int) -> list[Answer]:
    """Return one group more than a page has, newest first."""
    query: Select[Any] = select(
        groups.c.order,
        groups.c.id,
        groups.c.prompt,
        groups.c.rewards,
        groups.c.kind,
        groups.c.target_version,
        groups.c.oldest_version,
        prompts.c.phase,
        prompts.c.stage,
    ).join(prompts, prompts.c.prompt == groups.c.prompt)
    if version >= 0:
        taught = select(trainings.c.group_id).where(trainings.c.version == version)
        query = query.where(groups.c.id.in_(taught))
    page = query.where(groups.c.order < before).order_by(groups.c.order.desc()).limit(MOST_GROUPS + 1)
    return [
        {
            "order": row.order,
            "id": row.id,
            "prompt": line_of(row.prompt, 80),
            "kind": line_of(row.kind, 40),
            "stage": row.stage,
            "phase": row.phase,
            "version": row.target_version,
            "oldest": row.oldest_version,
            "rewards": sorted(struct.unpack(f"<{len(row.rewards) // 8}d", row.rewards), reverse=True),
        }
        for row in connection.execute(page)
    ]


def _turns(connection: Connection) -> Answer:
    """Return the recorded turns by state; those without one are under way, or were forgotten."""
    query = select(states.c.state, func.count()).group_by(states.c.state).order_by(states.c.state)
    counts: dict[str, int] = {row[0]: row[1] for row in connection.execute(query)}
    recorded = connection.scalar(select(func.count()).select_from(turns)) or 0
    rows: list[Answer] = [{"state": state, "count": count, "reasons": []} for state, count in counts.items()]
    for row in rows:
        if row["state"] in WITH_REASONS and row["count"] <= MOST_REASONED:
            row["reasons"] = _reasons(connection, row["state"])
    missing = recorded - sum(counts.values())
    if missing:
        rows.append({"state": "no state yet", "count": missing, "reasons": []})
    return {"all": recorded, "rows": sorted(rows, key=lambda row: -row["count"])}


def _reasons(connection: Connection, state: str) -> list[Answer]:
    query = select(states.c.reason, func.count()).where(states.c.state == state).group_by(states.c.reason)
    rows = [(reason or "no reason given", count) for reason, count in connection.execute(query)]
    return [
        {"reason": line_of(r, 120), "count": n} for r, n in sorted(rows, key=lambda row: (-row[1], row[0]))
    ]


def _prompts(connection: Connection) -> Answer:
    """Return the prompts by stage and phase, with the reasons of those that were dropped or wait."""
    column = prompts.c
    query = select(column.stage, column.phase, column.reason, func.count())
    grouped = query.group_by(column.stage, column.phase, column.reason)
    by: dict[tuple[str, str], Answer] = {}
    for stage, phase, reason, count in connection.execute(grouped):
        row = by.setdefault((stage, phase), {"stage": stage, "phase": phase, "count": 0, "reasons": []})
        row["count"] += count
        if reason:
            row["reasons"].append({"reason": line_of(reason, 120), "count": count})
    for row in by.values():
        row["reasons"] = sorted(row["reasons"], key=lambda one: (-one["count"], one["reason"]))[:8]
    rows = sorted(by.values(), key=lambda row: (row["stage"], -row["count"], row["phase"]))
    return {"all": sum(row["count"] for row in rows), "rows": rows}
