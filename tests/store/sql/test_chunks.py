"""A query may name more ids than one statement may have parameters."""

import pytest
from sqlalchemy import select
from tests.store.builders import session

from ostinato.store import Store
from ostinato.store.sql.chunks import CHUNK, chunks, values_in
from ostinato.store.sql.schema import sessions


@pytest.mark.parametrize("count", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_chunks_hold_every_id_once(count: int) -> None:
    ids = [str(number) for number in range(count)]
    parts = list(chunks(ids))
    assert [id for part in parts for id in part] == ids
    assert all(1 <= len(part) <= CHUNK for part in parts)


def test_rows_of_all_chunks_are_found(store: Store) -> None:
    ids = [f"s{number}" for number in range(CHUNK + 2)]
    store.record((), sessions=[session(id) for id in ids])
    with store.database.read() as connection:
        assert set(values_in(connection, select(sessions.c.id), sessions.c.id, [*ids, "unknown"])) == set(ids)
