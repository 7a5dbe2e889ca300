"""The replacement of all arms inside a transaction, which may hold other facts too."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, update

from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.database import Database
from ostinato.types import Arm

COUNT_REVISION = (
    update(schema.counters).where(schema.counters.c.name == "arms").values(value=schema.counters.c.value + 1)
)


def put_arms(database: Database, connection: Connection, arms: Sequence[Arm]) -> None:
    """Replace all arms and raise their revision; a reader sees the old ones or the new ones."""
    connection.execute(delete(schema.arms))
    if arms:
        connection.execute(schema.arms.insert(), row_conversion.arm_rows(arms))
    connection.execute(database.insert_new(schema.counters), {"name": "arms", "value": 0})
    connection.execute(COUNT_REVISION)


def arms_of(connection: Connection) -> list[Arm]:
    """Return all arms, as this transaction sees them."""
    rows = connection.execute(schema.arms.select().order_by(schema.arms.c.position)).mappings()
    return [row_conversion.arm_of(row) for row in rows]
