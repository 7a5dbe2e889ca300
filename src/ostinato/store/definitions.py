"""The definitions of reward that scored anything in a store, and what scoring by one of them appends."""

import json
from collections.abc import Sequence

from sqlalchemy import select

from ostinato.store.sql import schema
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.row_conversion import reward_row
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


def add_changed(store: Store, rewards: Sequence[Reward]) -> int:
    """Append the rewards whose parts are not those of the session's last one by the same definition.

    Return how many. All are of one definition, and no session has two of them.
    """
    table, ids = schema.rewards.c, [reward.session_id for reward in rewards]
    named = table.definition.in_({reward.definition for reward in rewards})
    query = select(table.session_id, table.parts).where(named).order_by(table.order)
    rows = list(map(reward_row, rewards))
    with store.database.write() as connection:
        last = {row[0]: row[1] for row in rows_in(connection, query, table.session_id, ids)}
        new = [row for row in rows if not _equal(row["parts"], last.get(row["session_id"]))]
        if new:
            connection.execute(store.database.insert_new(schema.rewards), new)
    return len(new)


def _equal(parts: str, last: str | None) -> bool:
    """Return whether two texts hold equal parts; -0.0 equals 0.0, so other text may be equal too."""
    return parts == last or (last is not None and bool(json.loads(parts) == json.loads(last)))
