"""A network that is split, and a server or a client that hangs, cost time, and nothing that was acknowledged.

Covers store/sql/postgres_connection.py and store/sql/psycopg_watched.py.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from fuzz.postgres import name_of
from sqlalchemy import text
from tests.store.builders import session, start_python, turn
from tests.store.sql.wires import AWAY, FarServer, far_server, mounted
from tests.store.sql.writers import WRITE_FOREVER, acknowledged, end_and_check

from ostinato.store import Ledger, OutcomeUnknownError, Store, StoreError, UnavailableError
from ostinato.store.sql import errors, psycopg_watched
from ostinato.store.sql.row_conversion import session_row
from ostinato.store.sql.schema import sessions

pytestmark = pytest.mark.postgres
NAMES = ["a", "b"]
PATIENCE_S = 60
"""The time after which a test fails that waits for something."""
FAST = {
    "connect_timeout": 2,
    "tcp_user_timeout": 2000,
    **{"keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 2},
    "options": "-ctcp_user_timeout%3D2000%20-ctcp_keepalives_idle%3D1%20-ctcp_keepalives_interval%3D1",
}
"""Options of a URL, with which each side gives the other up after two seconds of silence."""
SLOW_COMMIT = """
CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow_turns AFTER INSERT ON turns
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pause();
CREATE CONSTRAINT TRIGGER slow_prompts AFTER INSERT ON prompts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pause();
"""
"""Lets a commit of turns or prompts take three seconds."""
IN_COMMIT = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'"
HOLD = """
import os, signal, sys
from ostinato.store import Store, StoreError
from ostinato.store.sql.row_conversion import session_row
from ostinato.store.sql.schema import sessions
from tests.store.builders import session
store = Store.open(sys.argv[1])
try:
    with store.database.write() as connection:
        connection.execute(sessions.insert(), session_row(session("of the suspended one")))
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
except StoreError as error:
    print(type(error).__name__, flush=True)
"""
RESERVE = """
import sys
from ostinato.store import Ledger, Store
Ledger(Store.open(sys.argv[1])).reserve("a prompt")
"""


@pytest.fixture(scope="module")
def lasting() -> Iterator[FarServer]:
    """A server for the tests that leave it as it was."""
    with far_server() as server:
        yield server


@pytest.fixture
def server(lasting: FarServer) -> Iterator[FarServer]:
    yield lasting
    lasting.wire.join()


@pytest.fixture
def away(server: FarServer) -> Iterator[ThreadPoolExecutor]:
    """A thread on the clients' host."""
    with ThreadPoolExecutor(1, initializer=server.wire.move_to, initargs=(AWAY,)) as pool:
        yield pool


@pytest.fixture
def place(server: FarServer, away: ThreadPoolExecutor) -> Iterator[str]:
    """The URL, for the clients' host, of a database with tables and one session."""
    url = server.new_far(**FAST)
    made = away.submit(Store.open, url).result()
    away.submit(made.start_session, session()).result()
    made.close()
    yield url
    server.drop(url)


@pytest.fixture
def store(place: str, away: ThreadPoolExecutor) -> Iterator[Store]:
    store = away.submit(Store.open, place).result()
    yield store
    store.close()


def until(true: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"it took longer than {within_s} s"
        time.sleep(0.05)


def noticed(caplog: pytest.LogCaptureFixture, what: str = "trying again") -> Callable[[], bool]:
    """Return what tells that a client has had a failure and waits."""
    return lambda: any(what in record.getMessage() for record in list(caplog.records))


def count(server: FarServer, url: str) -> int:
    return int(server.sql("SELECT count(*) FROM turns", name_of(url))[0][0])


def rest(server: FarServer, url: str) -> None:
    """Wait until no writer records any more."""

    def resting() -> bool:
        before = count(server, url)
        time.sleep(0.5)
        return count(server, url) == before

    until(resting)


@contextlib.contextmanager
def split(server: FarServer, url: str) -> Iterator[None]:
    server.wire.cut()
    until(lambda: not server.backends(name_of(url)), within_s=30)
    yield
    server.wire.join()


@contextlib.contextmanager
def restarted(server: FarServer, url: str) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextlib.contextmanager
def read_only(server: FarServer, url: str) -> Iterator[None]:
    for value in ("on", "off"):
        server.sql(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        server.sql("SELECT pg_reload_conf()")
        if value == "on":
            rest(server, url)
            yield


FAULTS = [split, restarted, read_only]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_writers_go_on_after_a_fault_with_the_settings_as_shipped(
    server: FarServer, fault: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    url = server.new_far()
    with writers(server, url), fault(server, url):
        pass


@contextlib.contextmanager
def writers(server: FarServer, url: str) -> Iterator[None]:
    """Two clients that record before, during and after the fault; nothing of them is lost, or there twice."""
    Store.open(server.url(name_of(url))).close()
    with server.wire.on(AWAY):
        processes = [start_python(WRITE_FOREVER, url, name) for name in NAMES]
    written = [list(acknowledged(process, 10)) for process in processes]
    yield
    for so_far, process in zip(written, processes, strict=True):
        so_far.extend(acknowledged(process, 50))
    end_and_check(Store.open(server.url(name_of(url))), NAMES, processes, written)


def test_writers_go_on_after_the_whole_disk_of_the_server_was_full() -> None:
    with mounted("160m") as disk, far_server(str(disk)) as server:
        url = server.new_far()
        filler = disk / "filler"
        with writers(server, url):
            with filler.open("wb", buffering=0) as full, contextlib.suppress(OSError):
                while full.write(b"\0" * (64 << 10)):
                    pass
            until(lambda: not able(server) or "No space left" in server.log)
            filler.unlink()
            if not able(server):  # for want of space for its log it ends, and somebody starts it again
                server.restart()


def able(server: FarServer) -> bool:
    try:
        server.sql("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_a_split_is_noticed_by_the_client_with_the_settings_as_shipped(
    server: FarServer, away: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = away.submit(Store.open, server.new_far()).result()
    away.submit(store.start_session, session()).result()
    monkeypatch.setattr(errors, "PATIENCE_S", 0.0)
    server.wire.cut()
    with pytest.raises(UnavailableError, match="hangs"):
        away.submit(store.record, [turn(0)]).result(timeout=30)
    server.wire.join()
    away.submit(store.record, [turn(0)]).result()
    assert away.submit(store.turns, "s1").result() == [turn(0)]
    store.close()


def test_a_connection_that_takes_too_long_is_waited_for(
    server: FarServer, place: str, away: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    server.wire.cut()
    opened = away.submit(Store.open, place)
    until(noticed(caplog, "timeout expired: look whether the server, or the network to it, hangs"))
    server.wire.join()
    opened.result().close()


def in_commit(server: FarServer, away: ThreadPoolExecutor, store: Store, kind: str) -> Future[bool | None]:
    """Return a call of whose commit the server has begun, and which takes three seconds."""
    with psycopg.connect(server.url(name_of(str(store.database.url))).replace("+psycopg", "")) as connection:
        connection.execute(SLOW_COMMIT)
    work = (
        away.submit(Ledger(store).reserve, "p") if kind == "reserve" else away.submit(store.record, [turn(0)])
    )
    until(lambda: server.sql(IN_COMMIT))
    return work


def check_once(store: Store, away: ThreadPoolExecutor, kind: str, returned: bool | None) -> None:
    if kind == "reserve":
        assert returned is True, "a commit that was carried out was done again"
    else:
        assert away.submit(store.turns, "s1").result() == [turn(0)]


@pytest.mark.parametrize("kind", ["reserve", "record"])
def test_a_commit_whose_answer_is_lost_is_not_done_again(
    server: FarServer, store: Store, away: ThreadPoolExecutor, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = in_commit(server, away, store, kind)
    server.wire.cut()
    until(noticed(caplog))
    until(lambda: not server.sql(IN_COMMIT))
    server.wire.join()
    check_once(store, away, kind, work.result(timeout=PATIENCE_S))


@pytest.mark.parametrize("kind", ["reserve", "record"])
def test_a_commit_of_which_nobody_can_be_asked_is_said_to_be_unknown(
    server: FarServer, store: Store, away: ThreadPoolExecutor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = in_commit(server, away, store, kind)
    monkeypatch.setattr(errors, "PATIENCE_S", 1.0)
    server.wire.cut()
    with pytest.raises(
        OutcomeUnknownError, match=r"as a whole or not at all.*SELECT pg_xact_status"
    ) as error:
        work.result(timeout=PATIENCE_S)
    assert not isinstance(error.value, UnavailableError), "this would be tried again"
    server.wire.join()
    monkeypatch.undo()
    until(lambda: not server.sql(IN_COMMIT))
    away.submit(store.record, [turn(0)]).result(timeout=PATIENCE_S)
    assert away.submit(store.turns, "s1").result() == [turn(0)]


def test_a_commit_that_did_not_arrive_was_not_carried_out_and_holds_no_lock(
    server: FarServer, store: Store, away: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def cut_before_the_commit() -> None:
        with store.database.write() as connection:
            connection.execute(sessions.insert(), session_row(session("lost")))
            server.wire.cut()

    work = away.submit(cut_before_the_commit)
    until(noticed(caplog))
    server.wire.join()
    with pytest.raises(UnavailableError):
        work.result(timeout=PATIENCE_S)
    away.submit(store.start_session, session("next")).result(timeout=PATIENCE_S)
    assert {one.id for one in away.submit(store.sessions).result()} == {"s1", "next"}


def test_a_suspended_client_loses_the_lock_to_those_who_wait_with_the_settings_as_shipped(
    server: FarServer, place: str, away: ThreadPoolExecutor
) -> None:
    url = server.far(name_of(place))
    with server.wire.on(AWAY):
        holder = start_python(HOLD, url)
    with holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        other = away.submit(Store.open, url).result(timeout=PATIENCE_S)
        away.submit(Ledger(other).reserve, "p").result(timeout=PATIENCE_S)
        holder.send_signal(signal.SIGCONT)
        assert holder.communicate()[0] == "UnavailableError\n"
    assert [one.id for one in away.submit(other.sessions).result()] == ["s1"]
    other.close()


@pytest.mark.parametrize("fault", ["kill -9", "split"])
def test_a_client_that_is_gone_does_not_wait_for_the_lock_any_more(
    server: FarServer, store: Store, place: str, fault: str
) -> None:
    near = Store.open(f"{server.url(name_of(place))}&options=-cidle_in_transaction_session_timeout%3D0")
    with near.database.write():
        with server.wire.on(AWAY):
            waiting = start_python(RESERVE, place)
        until(lambda: server.sql(WAITING))
        if fault == "split":
            server.wire.cut()
        else:
            waiting.kill()
        until(lambda: not server.sql(WAITING), within_s=15)
    waiting.kill()
    waiting.communicate()
    near.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a silent server be asked soon."""
    monkeypatch.setattr(psycopg_watched, "SILENT_S", 0.5)


def signalled(processes: list[int], sent: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # a session may end meanwhile
            os.kill(process, sent)


@contextlib.contextmanager
def suspended(processes: list[int]) -> Iterator[None]:
    try:
        signalled(processes, signal.SIGSTOP)
        yield
    finally:
        signalled(processes, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["reserve", "record"])
@pytest.mark.usefixtures("soon")
def test_a_suspended_server_is_noticed_and_loses_nothing(
    server: FarServer, store: Store, away: ThreadPoolExecutor, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = in_commit(server, away, store, kind)
    with suspended(server.processes()):
        until(noticed(caplog))
    check_once(store, away, kind, work.result(timeout=PATIENCE_S))


def test_a_suspended_server_is_noticed_with_the_settings_as_shipped(
    server: FarServer, place: str, away: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = away.submit(Store.open, server.far(name_of(place))).result()
    monkeypatch.setattr(errors, "PATIENCE_S", 0.0)
    with suspended(server.processes()), pytest.raises(UnavailableError, match="hangs"):
        away.submit(store.sessions).result(timeout=PATIENCE_S)
    assert [one.id for one in away.submit(store.sessions).result()] == ["s1"]
    store.close()


def test_a_server_that_is_busy_is_not_taken_for_one_that_hangs(
    store: Store, away: ThreadPoolExecutor, soon: None
) -> None:
    def work() -> object:
        with store.database.write() as connection:
            return connection.scalar(text("SELECT 'done' FROM pg_sleep(2)"))

    assert away.submit(work).result(timeout=PATIENCE_S) == "done"


def test_a_statement_that_takes_too_long_is_ended_with_advice(
    server: FarServer, place: str, away: ThreadPoolExecutor
) -> None:
    url = server.far(name_of(place), options="-cstatement_timeout%3D300")
    store = away.submit(Store.open, url).result()

    def work() -> None:
        with store.database.write() as connection:
            connection.scalar(text("SELECT 'done' FROM pg_sleep(60)"))

    with pytest.raises(StoreError, match="let it take longer"):
        away.submit(work).result(timeout=PATIENCE_S)
    store.close()


def test_one_session_of_the_server_that_is_suspended_is_given_up(
    server: FarServer, place: str, away: ThreadPoolExecutor, soon: None
) -> None:
    url = server.far(name_of(place), options="-cstatement_timeout%3D2000")
    store = away.submit(Store.open, url).result()
    with suspended(server.backends(name_of(url))):
        found = away.submit(store.sessions).result(timeout=PATIENCE_S)  # on another connection
    assert [one.id for one in found] == ["s1"]
    store.close()
