"""The steps from older layouts of the tables to the present one, in the transaction that opens the store."""

from sqlalchemy import Connection, delete, text, update
from sqlalchemy.schema import CreateColumn

from ostinato.store.sql.schema import (
    SCHEMA,
    counters,
    cycle_log,
    definitions,
    groups,
    holds,
    passes,
    releases,
    rewards,
    samplers,
    samples,
    signals,
    slots,
    steps,
    turns,
)

OLDEST = 4
"""The oldest layout that can be brought up to date."""


def upgrade(connection: Connection, layout: int) -> None:
    """Bring tables of `layout`, at least OLDEST, to the layout SCHEMA. Rows keep their content."""
    if layout < 5:
        _to_5(connection)
    if layout < 6:
        _to_6(connection)
    if layout < 7:
        passes.create(connection, checkfirst=True)
    if layout < 8:
        _to_8(connection)
    if layout < 9:
        cycle_log.create(connection, checkfirst=True)
    if layout < 10:
        _to_10(connection)
    if layout < 11:
        slots.create(connection, checkfirst=True)
    if layout < 12:
        _to_12(connection)
    if layout < 13:
        releases.create(connection, checkfirst=True)
    if layout < 14:
        samplers.create(connection, checkfirst=True)
        holds.create(connection, checkfirst=True)
    if layout < 15:
        _to_15(connection)
    connection.execute(update(counters).where(counters.c.name == "schema").values(value=SCHEMA))


def _to_5(connection: Connection) -> None:
    """Turns became increments, and say which distribution their log-probabilities are of."""
    for name in ("structure", "distribution", "base", "length", "digest"):
        column = CreateColumn(turns.c[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE turns ADD COLUMN {column}"))
    # The engines of that layout gave a greedy token the log-probability of temperature 1.
    connection.execute(update(turns).where(turns.c.temperature == 0).values(distribution="model"))
    connection.execute(text("DROP INDEX turns_of_session"))
    for index in turns.indexes:
        index.create(connection)


def _to_8(connection: Connection) -> None:
    """Rewards say up to which moment facts counted, and the definitions of reward are kept."""
    column = CreateColumn(rewards.c.as_of).compile(dialect=connection.dialect)
    connection.execute(text(f"ALTER TABLE rewards ADD COLUMN {column}"))
    definitions.create(connection, checkfirst=True)


def _to_10(connection: Connection) -> None:
    """Samples carry the routes of their tokens; those that were offered before have none."""
    column = CreateColumn(samples.c.routes).compile(dialect=connection.dialect)
    connection.execute(text(f"ALTER TABLE samples ADD COLUMN {column}"))


def _to_12(connection: Connection) -> None:
    """Groups say which sessions are behind each reward, and the figures of steps are kept."""
    column = CreateColumn(groups.c.trees).compile(dialect=connection.dialect)
    connection.execute(text(f"ALTER TABLE groups ADD COLUMN {column}"))
    steps.create(connection, checkfirst=True)


def _to_15(connection: Connection) -> None:
    """Groups of live sessions say whose they are; those that were offered before are each somebody's own."""
    for name in ("person", "weight"):
        column = CreateColumn(groups.c[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE groups ADD COLUMN {column}"))


def _to_6(connection: Connection) -> None:
    """Signals that a verdict was forgeable became its grade; one that said it was not says nothing more."""
    old = signals.c.kind == "forgeable"
    connection.execute(delete(signals).where(old, signals.c.number == 0))
    connection.execute(update(signals).where(old).values(kind="grade", number=None, text="forgeable"))
