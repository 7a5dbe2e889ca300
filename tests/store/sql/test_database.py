"""A database that cannot be used says why, and what was promised is flushed to the disk.

Covers store/sql/database.py, store/sql/schema.py, store/sql/backend.py, store/sql/errors.py and
store/sql/sqlite_file.py.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, update
from tests.store.builders import session, start_python, turn

from ostinato.store import Store, StoreError
from ostinato.store.sql import database, errors, schema, sqlite_file
from ostinato.store.sql.database import Database, layout_of
from ostinato.store.sql.schema import SCHEMA, counters
from ostinato.store.sql.sqlite_file import SqliteFile, is_open_elsewhere

OPEN = """
import sys
from ostinato.store import Store
sys.stdin.readline()
Store.open(sys.argv[1])
"""
HOLD = """
import sys, time
from ostinato.store import Store
with Store.open(sys.argv[1]).database.write():
    print("held", flush=True)
    time.sleep(600)
"""
FILL_TO_THE_LIMIT = """
import resource, sys
from ostinato.store import Store, StoreError
from tests.store.builders import session, turn
store = Store.open(sys.argv[1])
store.start_session(session())
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, resource.RLIM_INFINITY))
number = 0
try:
    while True:
        store.record([turn(number)])
        number += 1
except StoreError as error:
    print(number, error)
"""


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "give a file path, not a database in memory"),
        ("sqlite:///:memory:", "give a file path, not a database in memory"),
        ("mysql://host/name", "mysql databases are not supported: use one of sqlite, postgresql"),
        ("no such://thing", "neither a file path nor a database URL"),
    ],
)
def test_unusable_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Database(url)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"absent/record\.db.*check that the folder exists"):
        Database(tmp_path / "absent" / "record.db")


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "record.db").write_bytes(b"a letter to ada\n" * 64)
    with pytest.raises(StoreError, match="not written by ostinato"):
        Database(tmp_path / "record.db")


@pytest.mark.parametrize("layout", [SCHEMA - 1, SCHEMA + 1])
def test_another_layout_is_refused_and_left_as_it_is(store: Store, place: str, layout: int) -> None:
    store.record([turn(0)], sessions=[session()])
    with store.database.write() as connection:
        connection.execute(update(counters).values(value=layout))
        schema.steps.drop(connection)  # a table that the other layout lacks
    message = f"has layout {layout}, this version of ostinato reads {SCHEMA} alone and has changed nothing"
    with pytest.raises(StoreError, match=message) as refused:
        Store.open(place)
    assert str(refused.value).startswith(store.database.where)
    assert "name another file or database, or read this one with the version" in str(refused.value)
    with store.database.read() as connection:
        assert not inspect(connection).has_table(schema.steps.name)
    assert (layout_of(place), store.sessions(), store.turns("s1")) == (layout, [session()], [turn(0)])


def test_a_path_and_its_url_are_the_same_file(tmp_path: Path) -> None:
    Store.open(tmp_path / "record.db").start_session(session())
    assert Store.open(f"sqlite:///{tmp_path}/record.db").sessions() == [session()]


def test_a_failed_write_is_rolled_back(place: str) -> None:
    database = Database(place)

    def fail() -> None:
        with database.write() as connection:
            connection.execute(update(counters).values(value=0))
            raise KeyError("name")

    with pytest.raises(KeyError):
        fail()
    with database.read() as connection:
        assert connection.scalar(select(counters.c.value)) == SCHEMA


def test_processes_may_create_a_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    openers = [start_python(OPEN, path) for _ in range(3)]
    for opener in openers:
        with opener:
            opener.communicate("go\n")
            assert opener.returncode == 0


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    with start_python(FILL_TO_THE_LIMIT, path) as writer:
        said, _ = writer.communicate()
    number, _, complaint = said.partition(" ")
    assert str(path) in complaint
    assert Store.open(path).turns("s1") == [turn(i) for i in range(int(number))]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB, for those who may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("may not mount")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def test_recording_goes_on_once_there_is_space_again(small_disk: Path) -> None:
    store = Store.open(small_disk / "record.db")
    store.start_session(session())
    (small_disk / "filler").write_bytes(b"\0" * (500 << 10))
    with pytest.raises(StoreError, match="free space and try again"):
        store.record([turn(i) for i in range(5000)])
    (small_disk / "filler").unlink()
    store.record([turn(0)])
    assert store.turns("s1") == [turn(0)]


def test_only_the_owner_reads_the_file_and_its_log(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "old.db").touch(0o666)
        for name in ("new.db", "old.db"):
            Store.open(tmp_path / name).start_session(session())
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_promises_are_flushed_and_recordings_are_not(tmp_path: Path) -> None:
    """2 is FULL: the log is flushed before a commit returns; 1 is NORMAL. See https://sqlite.org/pragma.html."""
    database = Database(tmp_path / "record.db")
    with database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    file = database._backend
    assert isinstance(file, SqliteFile)
    assert file._prepared._connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_a_file_is_open_elsewhere_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    assert not is_open_elsewhere(path)
    store = Store.open(path)
    assert is_open_elsewhere(path)
    store.close()
    assert not is_open_elsewhere(path)


def test_opening_a_store_again_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Or the next process to close it takes itself for the last, and removes the log that we read."""
    path = tmp_path / "record.db"
    first, second = Store.open(path), Store.open(path)
    second.close()
    with start_python(OPEN, path) as other:
        other.communicate("go\n")
    assert (tmp_path / "record.db-wal").exists()
    first.start_session(session())
    assert Store.open(path).sessions() == [session()]


def test_patience_counts_from_the_first_failure_and_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "PATIENCE_S", 0.5)
    calls: list[str] = []

    def fails_at_first() -> str:
        if not calls:
            time.sleep(0.6)  # as a server does that is out of reach
        calls.append("call")
        if len(calls) < 2:
            raise errors.UnavailableError("out of reach")
        return "done"

    assert errors.repeated(lambda: errors.repeated(fails_at_first)) == "done"
    calls.clear()
    monkeypatch.setattr(errors, "PATIENCE_S", 0.0)
    with pytest.raises(errors.UnavailableError):
        errors.repeated(lambda: errors.repeated(fails_at_first))
    assert calls == ["call"], "the inner call was repeated by itself"


def test_a_thread_waits_for_the_others_of_its_process_with_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "record.db")
    monkeypatch.setattr(database, "TURN_S", 0.1)
    monkeypatch.setattr(errors, "PATIENCE_S", 0.0)
    refused = pytest.raises(StoreError, match="other threads of this process")
    with ThreadPoolExecutor(1) as other, store.database.write(), refused:
        other.submit(store.start_session, session()).result()
    store.close()


def test_a_process_that_hangs_within_a_transaction_stops_others_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.05)
    store = Store.open(f"sqlite:///{tmp_path}/store.db")
    store.start_session(session())
    with start_python(HOLD, f"sqlite:///{tmp_path}/store.db") as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreError, match="look for a suspended one"):
            store.record([turn(0)])
        holder.kill()
    store.record([turn(0)])
    assert [each.id for each in store.turns(session().id)] == [turn(0).id]
    store.close()
