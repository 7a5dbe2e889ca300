"""Queries about the groups of the ledger, each inside the transaction of whoever asks."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from ostinato.store.ledger.phases import Phase
from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.recording import chunks
from ostinato.types import Sample

LESSON = "lesson/"
"""What the id of a lesson's group begins with: it has no samples, the sessions are in `shown`."""


def not_older(version: int) -> Any:
    """A condition: all tokens are of `version` or newer."""
    return schema.groups.c.oldest_version >= version


def in_phase(
    connection: Connection, phase: Phase, *where: Any, limit: int | None = None
) -> Sequence[Row[Any]]:
    """Groups in a phase, in the order they were offered, locked where the database can."""
    joined = schema.groups.join(schema.prompts)
    query = select(schema.groups).select_from(joined).where(schema.prompts.c.phase == phase.value, *where)
    ordered = query.order_by(schema.groups.c.order).limit(limit)
    return connection.execute(ordered.with_for_update(skip_locked=True)).all()


def aim(connection: Connection, group_ids: Sequence[str], version: int | None) -> None:
    """Say which version these groups are to be trained into."""
    for some in chunks(group_ids):
        change = update(schema.groups).where(schema.groups.c.id.in_(some))
        connection.execute(change.values(target_version=version))


def facts(connection: Connection, session_ids: Sequence[str]) -> int:
    """How many turns and signals these sessions have."""
    total = 0
    for table in (schema.turns, schema.signals):
        for some in chunks(session_ids):
            query = select(func.count()).select_from(table).where(table.c.session_id.in_(some))
            total += connection.scalar(query) or 0
    return total


def purged(connection: Connection, session_ids: Sequence[str]) -> bool:
    """Whether one of these sessions was purged, so that its tokens must not come back."""
    column = schema.purges.c.session_id
    return any(
        connection.scalar(select(column).where(column.in_(some)).limit(1)) is not None
        for some in chunks(session_ids)
    )


def sessions_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[str]]:
    """The sessions of each group."""
    found: dict[str, list[str]] = defaultdict(list)
    column = schema.samples.c
    for some in chunks(group_ids):
        query = select(column.group_id, column.session_id).where(column.group_id.in_(some)).distinct()
        for group_id, session_id in connection.execute(query):
            found[group_id].append(session_id)
    return found


def tally(connection: Connection, phase: Phase) -> dict[str, tuple[int, float]]:
    """By the kind of their task, how many groups are in a phase and the mean length of their rows."""
    groups, samples, prompts = schema.groups, schema.samples, schema.prompts
    counted = func.count(groups.c.id.distinct()), func.avg(func.length(samples.c.mask))
    query = select(groups.c.kind, *counted).select_from(groups.join(samples).join(prompts))
    found = connection.execute(query.where(prompts.c.phase == phase.value).group_by(groups.c.kind))
    return {kind: (count, float(length)) for kind, count, length in found}


def prompts_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, str]:
    """The prompt of each of these groups that is known."""
    found = {id: id.removeprefix(LESSON) for id in group_ids if id.startswith(LESSON)}
    for some in chunks(group_ids):
        query = select(schema.groups.c.id, schema.groups.c.prompt).where(schema.groups.c.id.in_(some))
        found |= {row[0]: row[1] for row in connection.execute(query)}
    return found


def samples_of(connection: Connection, group_ids: Sequence[str]) -> dict[str, list[Sample]]:
    """The samples of each group, in order."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for some in chunks(group_ids):
        query = select(schema.samples).where(schema.samples.c.group_id.in_(some))
        for row in connection.execute(query.order_by(schema.samples.c.position)).mappings():
            samples[row["group_id"]].append(row_conversion.sample_of(row))
    return samples
