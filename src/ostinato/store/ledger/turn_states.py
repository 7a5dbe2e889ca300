"""The state of every turn: each turn gets exactly one, and none is dropped silently."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, func, or_, select

from ostinato.store.ledger.phases import LedgerError
from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.chunks import rows_in, values_in
from ostinato.store.sql.database import Database
from ostinato.types import State

LEAST_ADVANTAGE = 1e-6
"""Smaller advantages are rounding errors."""


def set_states(
    database: Database,
    connection: Connection,
    turn_ids: Sequence[str],
    state: State,
    reason: str | None = None,
) -> None:
    """Set the state of these turns, and the reason.

    A later state replaces an earlier one, but TRAINED stays, and PURGED is replaced by TRAINED only. Raises
    LedgerError when a turn was never recorded.
    """
    if not turn_ids:
        return
    column = schema.turns.c.id
    recorded = set(values_in(connection, select(column), column, turn_ids))
    if unknown := [id for id in turn_ids if id not in recorded]:
        raise LedgerError(f"turn {unknown[0]!r} (of {len(unknown)} such) was never recorded: record it first")
    final = (State.TRAINED,) if state is State.TRAINED else (State.TRAINED, State.PURGED)
    change = database.upsert(
        schema.states, "state", "reason", unless=or_(*(schema.states.c.state == each.value for each in final))
    )
    connection.execute(change, [{"turn_id": id, "state": state.value, "reason": reason} for id in turn_ids])


def count_states(connection: Connection) -> dict[State, int]:
    """Return the number of turns in each state; every state is there."""
    column = schema.states.c
    counts: dict[str, int] = {
        row[0]: row[1]
        for row in connection.execute(select(column.state, func.count()).group_by(column.state))
    }
    return {state: counts.get(state.value, 0) for state in State}


def count_reasons(connection: Connection, state: State) -> dict[str, int]:
    """Return the number of turns in `state` for each reason that was given."""
    column = schema.states.c
    query = select(column.reason, func.count()).where(column.state == state.value)
    given = query.where(column.reason.is_not(None)).group_by(column.reason)
    return {row[0]: row[1] for row in connection.execute(given)}


def count_unaccounted(connection: Connection) -> int:
    """Return the number of recorded turns without a state."""
    recorded = select(func.count()).select_from(schema.turns).scalar_subquery()
    accounted = select(func.count()).select_from(schema.states).scalar_subquery()
    return connection.scalar(select(recorded - accounted)) or 0


def turns_of_sessions(
    connection: Connection, session_ids: Iterable[str], *, without_state: bool = False
) -> list[str]:
    """Return the ids of all turns that these sessions have so far, or of those without a state."""
    turn = schema.turns
    query = select(turn.c.id)
    if without_state:
        query = query.outerjoin(schema.states).where(schema.states.c.state.is_(None))
    return list(values_in(connection, query, turn.c.session_id, list(session_ids)))


def turns_of_groups(connection: Connection, group_ids: Sequence[str]) -> list[str]:
    """Return the ids of the turns that the groups consist of, each once."""
    column = schema.samples.c
    query = select(column.session_id, column.turns)
    rows = rows_in(connection, query, column.group_id, group_ids)
    ids = (f"{session}/{index}" for session, turns in rows for index in row_conversion.unpack_ints(turns))
    return list(dict.fromkeys(ids))


def without_advantage(connection: Connection, group_ids: Sequence[str]) -> set[str]:
    """Return the groups in which every sample scored like the others, so that their gradient is zero."""
    column = schema.samples.c
    query = select(column.group_id).group_by(column.group_id)
    flat = query.having(func.max(func.abs(column.advantage)) < LEAST_ADVANTAGE)
    return set(values_in(connection, flat, column.group_id, group_ids))
