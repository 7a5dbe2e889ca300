"""A server that is restarted, killed, full, read-only or gone costs nothing that was acknowledged.

Covers store/sql/postgres.py and store/sql/psycopg_values.py.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from fuzz.postgres import PASSWORD, PostgresServer, missing, name_of
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url
from tests.store.builders import session, start_python, turn
from tests.store.sql.wires import mounted
from tests.store.sql.writers import WRITE_FOREVER, acknowledged, end_and_check

from ostinato.store import Ledger, Store, StoreError
from ostinato.store.sql import errors
from ostinato.store.sql.postgres import PostgresServer as Database
from ostinato.types import Event

pytestmark = pytest.mark.postgres
OPEN = """
import sys
from ostinato.store import Store
sys.stdin.readline()
Store.open(sys.argv[1])
"""
SAMPLE = """
import sys
from dataclasses import replace
from tests.store.builders import group, session, turn
from ostinato.store import Ledger, Store
store, name = Store.open(sys.argv[1]), sys.argv[2]
ledger, reserved = Ledger(store), 0
sys.stdin.readline()
for number in range(40):
    if not ledger.reserve(f"prompt of {number}"):
        continue
    reserved += 1
    store.record([turn(0, f"s{number}")], sessions=[session(f"s{number}")])
    assert ledger.offer(group(str(number), session_id=f"s{number}"))
    for one in ledger.claim(10_000 + int(name), 1, 0):
        print(one.id, flush=True)
print("reserved", reserved, flush=True)
"""
FORK = """
import os, sys
from ostinato.store import Store
from tests.store.builders import session, turn
store = Store.open(sys.argv[1])
store.record([turn(0)], sessions=[session()])
child = os.fork()
store.record([turn(2 if child else 1)])
assert len(store.turns("s1")) >= 2
if child:
    assert os.waitpid(child, 0)[1] == 0
    store.record([turn(3)])
os._exit(0)
"""
SEVERAL = 16
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database without tables."""
    url = postgres.new()
    yield url
    postgres.drop(url)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may kill."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "PATIENCE_S", 0.0)


TEXT = st.text(st.sampled_from("a\x00\x1a01é🎼"), max_size=12)


@given(values=st.lists(TEXT, min_size=1, max_size=4))
def test_any_text_comes_back_and_is_found(store: Store, values: list[str]) -> None:
    for number, value in enumerate(values):
        id_ = f"e{number}{value}"
        event = Event(id=id_, name=value, user=value, observed_at=1.0, attributes={"a": value})
        store.record([], [], [], [event])
        assert store.known_events([id_]) == {id_: event}


@pytest.fixture
def backend() -> str:
    return "postgres"


def test_processes_may_create_a_store_at_once(url: str) -> None:
    openers = [start_python(OPEN, url) for _ in range(3)]
    for opener in openers:
        with opener:
            opener.communicate("go\n")
            assert opener.returncode == 0


def test_a_forked_process_has_connections_of_its_own(place: str) -> None:
    with start_python(FORK, place) as parent:
        assert parent.wait() == 0
    assert Store.open(place).turns("s1") == [turn(i) for i in range(4)]


@pytest.mark.parametrize("fault", ["terminate", "kill -9 of a backend", "restart", "crash"])
def test_writers_go_on_through_every_fault_of_the_server(server: PostgresServer, fault: str) -> None:
    url, names = server.new(), ["a", "b"]
    Store.open(url).close()
    writers = [start_python(WRITE_FOREVER, url, name) for name in names]
    written = [list(acknowledged(writer, 10)) for writer in writers]
    for _ in range(2):
        if fault == "terminate":
            server.sql(TERMINATE.format(name_of(url)))
        elif fault == "restart":
            server.restart()
        elif fault == "crash":
            server.restart(signal.SIGQUIT)
        else:
            os.kill(server.backends(name_of(url))[0], signal.SIGKILL)
        for so_far, writer in zip(written, writers, strict=True):
            so_far.extend(acknowledged(writer, 10))
    end_and_check(Store.open(url), names, writers, written)


def test_after_a_crash_the_number_of_a_lost_commit_may_be_another_transaction_s(
    server: PostgresServer,
) -> None:
    url = server.new()
    store, database = Store.open(url), Database(make_url(url))
    with closing(database.own_connection()) as lost:
        lost.execute("BEGIN")
        ((number,),) = lost.execute("SELECT pg_current_xact_id()::text")
        before = lost.incarnation
        server.restart(signal.SIGQUIT)
    assert database.was_committed(number, before) is False, "nobody has this number"
    store.start_session(session("another"))
    with closing(database.own_connection()) as another:
        after = another.incarnation
    assert before != after
    assert database.was_committed(number, after) is True, "the number was given again"
    assert database.was_committed(number, before) is None
    database.close()
    store.close()


@pytest.mark.parametrize("faults", [False, True], ids=["in peace", "while sessions are terminated"])
def test_samplers_on_one_ledger_never_see_each_other(
    postgres: PostgresServer, place: str, faults: bool
) -> None:
    store = Store.open(place)
    samplers = [start_python(SAMPLE, place, i) for i in range(SEVERAL)]
    for sampler in samplers:
        assert sampler.stdin
        sampler.stdin.write("go\n")
        sampler.stdin.flush()
    ended = list[bool]()

    def terminate() -> None:
        while faults and not ended:
            postgres.sql(f"{TERMINATE.format(name_of(place))} ORDER BY random() LIMIT 2")
            time.sleep(0.1)

    saboteur = Thread(target=terminate)
    saboteur.start()
    claimed, reserved = list[str](), 0
    for sampler in samplers:
        said, _ = sampler.communicate()
        assert sampler.returncode == 0, "an error reached the sampler"
        *ids, last = said.splitlines()
        claimed += ids
        reserved += int(last.split()[1])
    ended.append(True)
    saboteur.join()
    ledger = Ledger(store)
    assert (reserved, sorted(claimed)) == (40, sorted({str(number) for number in range(40)}))
    assert ledger.trained_twice() == 0 and ledger.ready(0) == 0
    store.close()


def test_a_server_that_is_gone_is_named_and_waited_for(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.new()
    store = Store.open(url)
    store.start_session(session())
    server.stop()
    with monkeypatch.context() as patch:
        patch.setattr(errors, "PATIENCE_S", 0.2)
        with pytest.raises(StoreError, match="start the server, or correct the host and the port"):
            store.record([turn(0)])
    waiting = Thread(target=store.record, args=([turn(0)],))
    waiting.start()
    server.start()
    waiting.join()
    assert store.turns("s1") == [turn(0)]
    store.close()


def test_a_server_that_takes_no_writes_is_named_and_loses_nothing(
    server: PostgresServer, impatient: None
) -> None:
    url = server.new()
    store = Store.open(url)
    store.record([turn(0)], sessions=[session()])
    read_only = f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only"
    server.sql(f"{read_only} = on")
    store.close()
    store = Store.open(url)
    with pytest.raises(StoreError, match=r"read-only.*give the URL of a server that takes writes"):
        store.record([turn(1)])
    store.close()
    server.sql(f"{read_only} = off")
    assert Store.open(url).turns("s1") == [turn(0)]


@pytest.fixture
def small_disk() -> Iterator[Path]:
    with mounted("24m") as path:
        yield path


def test_a_full_server_is_named_and_goes_on_once_there_is_space(
    server: PostgresServer, small_disk: Path, impatient: None
) -> None:
    place = small_disk / "rows"
    place.mkdir(mode=0o700)
    os.chown(place, server.data.stat().st_uid, server.data.stat().st_gid)
    server.sql(f"CREATE TABLESPACE small LOCATION '{place}'")
    server.sql("CREATE DATABASE record TABLESPACE small")
    store = Store.open(server.url("record"))
    store.start_session(session())
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(b"\0" * (free.f_bavail * free.f_bsize - (200 << 10)))
    with pytest.raises(StoreError, match="free space on the server and try again"):
        store.record([turn(i) for i in range(5000)])
    before = store.turns("s1")
    filler.unlink()
    store.record([turn(len(before))])
    assert store.turns("s1") == [*before, turn(len(before))]
    store.close()


def test_the_password_is_needed_and_never_shown(
    postgres: PostgresServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.add_locked()
    name = name_of(place)
    Store.open(postgres.locked_url(name)).start_session(session())
    with pytest.raises(StoreError, match="password in PGPASSWORD") as wrong:
        Store.open(postgres.locked_url(name, "guessed secret"))
    assert "guessed" not in str(wrong.value) and "***" in str(wrong.value)
    with pytest.raises(StoreError, match="put the password into PGPASSWORD"):
        Store.open(postgres.locked_url(name, None))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert Store.open(postgres.locked_url(name, None)).sessions() == [session()]
    with pytest.raises(StoreError, match="neither a file path nor") as broken:
        Store.open("postgresql://eve:guessed@host:no-port/name")
    assert "guessed" not in str(broken.value)


def test_an_unknown_database_or_driver_is_named_at_once(postgres: PostgresServer) -> None:
    with pytest.raises(StoreError, match="create it with createdb"):
        Store.open(postgres.url("nowhere"))
    with pytest.raises(StoreError, match=r"write postgresql\+psycopg://"):
        Store.open("postgresql+pg8000://host/name")


def test_a_transaction_that_waits_too_long_for_another_process_names_it(place: str, store: Store) -> None:
    other = Store.open(f"{place}&options=-clock_timeout=50")
    with store.database.write(), pytest.raises(StoreError, match="look for a suspended one"):
        other.start_session(session())
    other.start_session(session())
    other.close()


def test_text_is_sorted_by_its_code_points(store: Store) -> None:
    ids = ["B", "a", "_", "é", "Z"]
    store.record([], sessions=[session(id_) for id_ in ids])
    assert [one.id for one in store.sessions()] == sorted(ids)
