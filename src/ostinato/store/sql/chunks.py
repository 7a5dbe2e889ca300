"""Queries for any number of ids, in as many statements as the databases' limit of parameters needs."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, select

CHUNK = 500
"""Ids in one `SELECT … IN`: databases limit the number of parameters of a statement."""
AT_ONCE = 200
"""Rows that are fetched by one call, which is faster than one by one; those of turns hold their tokens."""


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return pieces of `ids` that are small enough for one `SELECT … IN`."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def rows_in(connection: Connection, query: Select[Any], column: Any, ids: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of `query` in which `column` is one of `ids`."""
    for some in chunks(ids):
        for rows in connection.execute(query.where(column.in_(some))).partitions(AT_ONCE):
            yield from rows


def values_in(connection: Connection, query: Select[Any], column: Any, ids: Sequence[str]) -> Iterator[Any]:
    """Yield the first value of each row of `query` in which `column` is one of `ids`."""
    return (row[0] for row in rows_in(connection, query, column, ids))


def last_rows(connection: Connection, table: Table, ids: Sequence[str]) -> dict[str, Any]:
    """Return the last row of each session of `table`, which numbers its rows by `order`."""
    rows = rows_in(connection, select(table).order_by(table.c.order), table.c.session_id, ids)
    return {row.session_id: row for row in rows}
