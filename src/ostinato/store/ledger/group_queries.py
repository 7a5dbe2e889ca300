"""Queries about the groups of the ledger, each inside the transaction of its caller."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from ostinato.store.ledger.pacing import OLDEST_FIRST
from ostinato.store.ledger.phases import Phase
from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.chunks import chunks, rows_in, values_in
from ostinato.types import Sample

LESSON = "lesson/"
"""The prefix of the id of a lesson's group: it has no samples, and its sessions are in `shown`."""


def not_older(version: int) -> Any:
    """Return the condition that all tokens of a group are of `version` or newer."""
    return schema.groups.c.oldest_version >= version


def in_phase(
    connection: Connection, phase: Phase, *where: Any, limit: int | None = None
) -> Sequence[Row[Any]]:
    """Return the groups in a phase, those of practice with the oldest tokens first, else as they came."""
    joined = schema.groups.join(schema.prompts)
    query = select(schema.groups).select_from(joined).where(schema.prompts.c.phase == phase.value, *where)
    return connection.execute(query.order_by(OLDEST_FIRST, schema.groups.c.order).limit(limit)).all()


def set_target(connection: Connection, group_ids: Sequence[str], version: int | None) -> None:
    """Set the version into which these groups are to be trained."""
    for some in chunks(group_ids):
        change = update(schema.groups).where(schema.groups.c.id.in_(some))
        connection.execute(change.values(target_version=version))


def delete_groups(connection: Connection, group_ids: Sequence[str]) -> None:
    """Delete groups with their samples, so that their prompts can be offered again."""
    for some in chunks(group_ids):
        connection.execute(delete(schema.samples).where(schema.samples.c.group_id.in_(some)))
        connection.execute(delete(schema.groups).where(schema.groups.c.id.in_(some)))


def facts(connection: Connection, session_ids: Sequence[str]) -> Counter[str]:
    """Return the number of turns and signals that each of these sessions has."""
    counts = Counter[str]()
    for table in (schema.turns, schema.signals):
        session = table.c.session_id
        query = select(session, func.count()).group_by(session)
        for session_id, count in rows_in(connection, query, session, session_ids):
            counts[session_id] += count
    return counts


def purged(connection: Connection, session_ids: Sequence[str]) -> bool:
    """Return True when one of these sessions was purged, so that its tokens must not come back."""
    column = schema.purges.c.session_id
    return any(values_in(connection, select(column), column, session_ids))


def sessions_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the sessions of each group."""
    sessions: dict[str, list[str]] = defaultdict(list)
    column = schema.samples.c
    query = select(column.group_id, column.session_id).distinct()
    for group_id, session_id in rows_in(connection, query, column.group_id, group_ids):
        sessions[group_id].append(session_id)
    return sessions


def outdated(connection: Connection) -> list[Row[Any]]:
    """Return the waiting live groups whose sessions have more turns or signals than when they were scored."""
    waiting = in_phase(connection, Phase.OFFERED, schema.groups.c.facts.is_not(None))
    sessions = sessions_of(connection, [row.id for row in waiting])
    known = facts(connection, [id for ids in sessions.values() for id in ids])
    return [row for row in waiting if sum(known[id] for id in sessions[row.id]) != row.facts]


def tally(connection: Connection, phase: Phase) -> dict[str, tuple[int, float, float]]:
    """Return, by kind of task, the number of groups in a phase, and of their samples the mean length in
    tokens and the mean number of turns."""
    groups, samples, prompts = schema.groups, schema.samples, schema.prompts
    length, turns = func.avg(func.length(samples.c.mask)), func.avg(func.length(samples.c.turns))
    query = select(groups.c.kind, func.count(groups.c.id.distinct()), length, turns)
    query = query.select_from(groups.join(samples).join(prompts))
    rows = connection.execute(query.where(prompts.c.phase == phase.value).group_by(groups.c.kind))
    width = len(row_conversion.pack_ints((0,)))
    return {kind: (count, float(length), float(turns) / width) for kind, count, length, turns in rows}


def prompts_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, str]:
    """Return the prompt of each of these groups that is known."""
    lessons = {id: id.removeprefix(LESSON) for id in group_ids if id.startswith(LESSON)}
    query = select(schema.groups.c.id, schema.groups.c.prompt)
    return lessons | {row[0]: row[1] for row in rows_in(connection, query, schema.groups.c.id, group_ids)}


def samples_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[Sample]]:
    """Return the samples of each group, in order."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    query = select(schema.samples).order_by(schema.samples.c.position)
    for row in rows_in(connection, query, schema.samples.c.group_id, group_ids):
        samples[row.group_id].append(row_conversion.sample_of(row._mapping))
    return samples
