"""Fixtures that give a test its record on both kinds of database; a conftest imports those that it needs.

`place` is the file or the URL of an empty database. The tests on PostgreSQL carry the marker `postgres`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fuzz.postgres import PASSWORD, PostgresServer, missing, name_of
from sqlalchemy import create_engine

from ostinato.store import Store

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
ON_A_FILE = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
"""Marks a test that is about SQLite's files, or that reads them."""
TEMPLATE = "layout"
NewPlace = Callable[[], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server, with a database that has the tables already."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer() as server:
        server.sql(f"CREATE DATABASE {TEMPLATE}")
        Store.open(server.url(TEMPLATE)).close()
        yield server


@pytest.fixture(params=BOTH)
def backend(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(name="backend")
def file_backend(request: pytest.FixtureRequest) -> str:
    """A file, unless the conftest of the room asks for both: the `backend` of rooms other than the store."""
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
def new_place(backend: str, request: pytest.FixtureRequest) -> NewPlace:
    """Return a function that makes an empty database for as long as its context lasts."""
    return in_a_folder if backend == "sqlite" else on(request.getfixturevalue("postgres"))


@contextmanager
def in_a_folder() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        yield f"{folder}/record.db"


def on(server: PostgresServer) -> NewPlace:
    """Return what makes databases on a server."""

    @contextmanager
    def new() -> Iterator[str]:
        url = server.new(TEMPLATE)
        yield url
        server.drop(url)

    return new


@pytest.fixture
def place(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path or the URL of a database of this test's own."""
    if backend == "sqlite":
        yield str(tmp_path / "record.db")
        return
    with on(request.getfixturevalue("postgres"))() as url:
        yield url


@pytest.fixture
def locked(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database whose user needs a password, which is in the environment alone."""
    postgres.add_locked()
    with on(postgres)() as url:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        yield postgres.locked_url(name_of(url), None)


def run_sql(place: str, script: str) -> list[tuple]:
    """Run statements in a database, whoever has it open; return the rows of the last one."""
    engine = create_engine(place if "://" in place else f"sqlite:///{place}")
    if engine.dialect.name == "postgresql":
        script = script.replace("x'", r"'\x")
    rows: list[tuple] = []
    with engine.begin() as connection:
        for statement in filter(str.strip, script.split(";")):
            done = connection.exec_driver_sql(statement)
            rows = [tuple(row) for row in done] if done.returns_rows else []
    engine.dispose()
    return rows
