"""The definitions of reward that scored anything in a store, and the last rewards by one of them."""

from collections.abc import Sequence

from sqlalchemy import select

from ostinato.store.sql import row_conversion, schema
from ostinato.store.sql.chunks import rows_in
from ostinato.store.store import Store
from ostinato.types import Reward


def keep_definition(store: Store, hash: str, text: str) -> None:
    """Keep the text of a definition under its hash; a second time changes nothing."""
    with store.database.write() as connection:
        connection.execute(store.database.insert_new(schema.definitions), {"hash": hash, "text": text})


def kept_definition(store: Store, hash: str) -> str | None:
    """Return the text of a definition by its hash, None when nothing was scored by it here."""
    table = schema.definitions.c
    with store.database.read() as connection:
        text: str | None = connection.scalar(select(table.text).where(table.hash == hash))
        return text


def last_rewards(store: Store, session_ids: Sequence[str], definition: str) -> dict[str, Reward]:
    """Return the last reward of each session by one definition; a session without one is not in the dict."""
    table = schema.rewards.c
    query = select(schema.rewards).where(table.definition == definition).order_by(table.order)
    with store.database.read() as connection:
        rows = rows_in(connection, query, table.session_id, session_ids)
        return {row.session_id: row_conversion.reward_of(row._mapping) for row in rows}
