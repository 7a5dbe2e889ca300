"""Connections to a PostgreSQL server: their settings, and how each side notices that the other is gone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, create_engine, event

from ostinato import extras
from ostinato.store.sql.errors import BUSY_S, StoreError

if TYPE_CHECKING:
    from ostinato.store.sql.psycopg_watched import WatchedConnection

IDLE_S = 20
"""The longest time that a process which hangs within a transaction keeps the lock, seconds: less than BUSY_S,
so that those who wait for it get it."""
SPLIT_S = 15
"""The longest time that either side takes a connection for whole on which nothing arrives, seconds."""
STATEMENT_S = 600
"""The longest time that one statement may take, seconds."""
KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 2}
SESSION = {
    "lock_timeout": int(1000 * BUSY_S),
    "idle_in_transaction_session_timeout": 1000 * IDLE_S,
    "statement_timeout": 1000 * STATEMENT_S,
    "tcp_user_timeout": 1000 * SPLIT_S,
    **{f"tcp_{name}": value for name, value in KEEPALIVES.items()},
}
"""The settings of the server's side of a connection; the `options` of the URL come after them."""
OPTIONS = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
DEFAULTS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 1000 * SPLIT_S,
    **KEEPALIVES,
    "application_name": "ostinato",
}
"""The options that a connection is opened with, unless the URL says otherwise."""
SETTLE = """
SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::float8,
    (SELECT stats_reset::text FROM pg_stat_bgwriter),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', false) END,
    CASE WHEN current_setting('server_version_num')::int >= 150000 AND version() LIKE '%linux%'
        THEN set_config('client_connection_check_interval', '5s', false) END
"""
"""Returns the time a statement may take and the incarnation of the server, flushes commits, and ends the
waits of clients that are gone. A server that recovers from a crash begins new statistics, and says when:
https://www.postgresql.org/docs/15/monitoring-stats.html#MONITORING-STATS-SETUP."""


def options_of(url: URL) -> dict[str, Any]:
    """Return the options of a connection to a URL, whose own ones come before the defaults."""
    return {**DEFAULTS, **url.query, "options": f"{OPTIONS} {url.query.get('options', '')}".strip()}


def engine_of(url: URL, connect_with: Mapping[str, Any], where: str) -> Engine:
    try:
        engine = create_engine(
            url,
            connect_args=dict(connect_with),
            isolation_level="READ COMMITTED",
            execution_options={"preserve_rowcount": True},  # of inserts, which say what was new
            pool_pre_ping=True,
            pool_size=8,
            max_overflow=24,
        )
    except ModuleNotFoundError as error:
        raise StoreError(f"{where}: {extras.sentence('psycopg', 'PostgreSQL')}") from error
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", configure)
    return engine


def _connect(_dialect: object, _record: object, _arguments: object, options: Mapping[str, Any]) -> Any:
    from ostinato.store.sql.psycopg_watched import WatchedConnection

    return WatchedConnection.to(options)


def configure(connection: "WatchedConnection", _record: object = None) -> None:
    """Make values behave as on SQLite: NUL within text, NaN as a missing value, integers of one size."""
    from psycopg.types.numeric import Int8Dumper

    from ostinato.store.sql.psycopg_values import EscapedDumper, EscapedLoader, NumberDumper

    adapters = connection.adapters
    adapters.register_dumper(str, EscapedDumper)
    adapters.register_dumper(float, NumberDumper)
    adapters.register_dumper(int, Int8Dumper)
    for name in ("text", "varchar"):
        adapters.register_loader(name, EscapedLoader)
    connection.autocommit = True
    longest_s, incarnation, *_ = connection.execute(SETTLE).fetchone() or (0.0, None)
    connection.longest_s, connection.incarnation = longest_s or None, incarnation
    connection.autocommit = False
