"""What became of every turn: exactly one State, never dropped silently."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Select, func, or_, select

from ostinato.store.ledger.phases import LedgerError
from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.database import Database
from ostinato.store.sql.recording import chunks
from ostinato.types import State

LEAST_ADVANTAGE = 1e-6
"""Below it an advantage is rounding."""


def set_states(
    database: Database,
    connection: Connection,
    turn_ids: Sequence[str],
    state: State,
    reason: str | None = None,
) -> None:
    """Say what became of these turns, and for what reason.

    A later state replaces an earlier one, but TRAINED stays, and of a purged turn nothing is known but that
    it was trained on after all. Raises LedgerError when a turn was never recorded.
    """
    if not turn_ids:
        return
    _check_recorded(connection, turn_ids)
    final = (State.TRAINED,) if state is State.TRAINED else (State.TRAINED, State.PURGED)
    change = database.upsert(
        schema.states, "state", "reason", unless=or_(*(schema.states.c.state == each.value for each in final))
    )
    told = {"state": state.value, "reason": reason}
    connection.execute(change, [{"turn_id": id, **told} for id in turn_ids])


def count_states(connection: Connection) -> dict[State, int]:
    """How many turns ended in each state; every state is there."""
    column = schema.states.c
    counts: dict[str, int] = {
        row[0]: row[1]
        for row in connection.execute(select(column.state, func.count()).group_by(column.state))
    }
    return {state: counts.get(state.value, 0) for state in State}


def count_reasons(connection: Connection, state: State) -> dict[str, int]:
    """How many turns ended in `state` for each reason that was given."""
    column = schema.states.c
    query = select(column.reason, func.count()).where(column.state == state.value)
    given = query.where(column.reason.is_not(None)).group_by(column.reason)
    return {row[0]: row[1] for row in connection.execute(given)}


def count_unaccounted(connection: Connection) -> int:
    """How many recorded turns have no state yet."""
    recorded = select(func.count()).select_from(schema.turns).scalar_subquery()
    accounted = select(func.count()).select_from(schema.states).scalar_subquery()
    return connection.scalar(select(recorded - accounted)) or 0


def turns_of_sessions(
    connection: Connection, session_ids: Iterable[str], *, without_state: bool = False
) -> list[str]:
    """Ids of all turns that these sessions have so far, or of those that have no state."""
    turn, found = schema.turns, list[str]()
    for some in chunks(list(session_ids)):
        query: Select[tuple[str]] = select(turn.c.id).where(turn.c.session_id.in_(some))
        if without_state:
            query = query.outerjoin(schema.states).where(schema.states.c.state.is_(None))
        found += connection.scalars(query)
    return found


def turns_of_groups(connection: Connection, group_ids: Sequence[str]) -> list[str]:
    """Ids of the turns that the groups consist of, each once."""
    column = schema.samples.c
    found: dict[str, None] = {}
    for some in chunks(group_ids):
        query = select(column.session_id, column.turns).where(column.group_id.in_(some))
        for session_id, turns in connection.execute(query):
            found |= dict.fromkeys(f"{session_id}/{index}" for index in row_conversion.unpack_ints(turns))
    return list(found)


def without_advantage(connection: Connection, group_ids: Sequence[str]) -> set[str]:
    """The groups in which every sample scored like the others: their gradient is zero."""
    column = schema.samples.c
    found: set[str] = set()
    for some in chunks(group_ids):
        query = select(column.group_id).where(column.group_id.in_(some)).group_by(column.group_id)
        found |= set(connection.scalars(query.having(func.max(func.abs(column.advantage)) < LEAST_ADVANTAGE)))
    return found


def _check_recorded(connection: Connection, turn_ids: Sequence[str]) -> None:
    column = schema.turns.c.id
    known = {
        id for some in chunks(turn_ids) for id in connection.scalars(select(column).where(column.in_(some)))
    }
    if unknown := [id for id in turn_ids if id not in known]:
        raise LedgerError(f"turn {unknown[0]!r} (of {len(unknown)} such) was never recorded: record it first")
