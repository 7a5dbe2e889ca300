"""The ledger's account of a session: its prompt's phase, its group, its advantage, the version it taught."""

import struct
from typing import Any

from sqlalchemy import Connection, Row, select

from ostinato.dashboard.reading.base import Answer
from ostinato.store.ledger.ledger import prompt_of_session
from ostinato.store.sql.row_conversion import unpack_ints
from ostinato.store.sql.schema import groups, prompts, samples, shown, trainings
from ostinato.web.plain import line_of

MOST_MATES = 64
"""The other sessions of a group that a page names."""


def of_session(connection: Connection, id: str, *, mates: bool) -> Answer:
    """Return the prompts and groups that the session belongs to, with `mates` the other sessions of them."""
    rows = samples.join(groups, groups.c.id == samples.c.group_id)
    query = select(groups, samples.c.advantage, samples.c.turns, samples.c.position).select_from(rows)
    found = connection.execute(query.where(samples.c.session_id == id).order_by(groups.c.order)).all()
    by_group: dict[str, Answer] = {}
    for row in found:
        group = by_group.setdefault(row.id, _group(connection, row, mates=mates))
        group["samples"].append({"advantage": row.advantage, "turns": list(unpack_ints(row.turns))})
    names = {prompt_of_session(id), *(group["prompt"] for group in by_group.values())}
    query = select(shown.c.prompt).where(shown.c.session_id == id)
    names |= set(connection.scalars(query))
    return {"prompts": _prompts(connection, names), "groups": list(by_group.values())}


def _group(connection: Connection, row: Row[Any], *, mates: bool) -> Answer:
    together = select(samples.c.session_id).where(samples.c.group_id == row.id).order_by(samples.c.position)
    sessions = list(dict.fromkeys(connection.scalars(together))) if mates else []
    return {
        "id": row.id,
        "order": row.order,
        "prompt": row.prompt,
        "kind": line_of(row.kind, 40),
        "rewards": list(struct.unpack(f"<{len(row.rewards) // 8}d", row.rewards)),
        "sessions": sessions[:MOST_MATES],
        "samples": [],
    }


def _prompts(connection: Connection, names: set[str]) -> list[Answer]:
    query = select(prompts).where(prompts.c.prompt.in_(sorted(names)))
    return [
        {
            "prompt": line_of(row["prompt"], 120),
            "stage": row["stage"],
            "phase": row["phase"],
            "reason": row["reason"] and line_of(row["reason"], 200),
            "trained": _versions(connection, row["prompt"]),
        }
        for row in connection.execute(query).mappings()
    ]


def _versions(connection: Connection, prompt: str) -> list[int]:
    """Return the versions that were trained on a prompt: one, unless a promise was broken."""
    query = select(trainings.c.version).where(trainings.c.prompt == prompt).order_by(trainings.c.order)
    return list(connection.scalars(query))
