"""A real PostgreSQL as an ordinary process in a folder of its own, for tests and benchmarks.

PostgreSQL refuses to run as root, so for root it runs as the user `postgres` or `nobody`.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Self

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
PATIENCE_S = 60
FAST = {"fsync": "off", "full_page_writes": "off"}
"""Settings of a server that no power failure is going to meet; a killed one still recovers."""
ADMIN, LOCKED, PASSWORD = "ostinato", "locked", "correct horse"
"""`ADMIN` is let in without a password, `LOCKED` with it only."""


def missing() -> str | None:
    """Return the reason why no server can be started, None when one can."""
    if _binaries() is None:
        return "PostgreSQL is not installed: run `make test-postgres`"
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv to become another user"
    return None


def _binaries() -> Path | None:
    """Return the folder with the newest server's programs."""
    found = shutil.which("postgres")
    folders = [Path(found).parent] if found and shutil.which("initdb") else []
    folders += [path for place in PLACES for path in Path("/").glob(place.lstrip("/"))]
    whole = [path for path in folders if (path / "initdb").exists() and (path / "postgres").exists()]
    return max(whole, key=_release, default=None)


def _release(path: Path) -> int:
    return int("".join(c for c in path.parent.name if c.isdigit()) or 0)


class PostgresServer:
    """One server. Its databases are reached over a Unix socket or the loopback; nothing else listens.

    Use it as a context manager, or call `start` and `close`.
    """

    def __init__(self, settings: dict[str, str] | None = None, parent: str | None = None) -> None:
        binaries = _binaries()
        if binaries is None:
            raise FileNotFoundError(missing())
        self._binaries, self._settings = binaries, {**FAST, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="ost-pg-", dir=parent))
        self.port = _free_port()
        self._numbers = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _user()
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "--auth=trust", f"--username={ADMIN}", "--encoding=UTF8", "--no-sync", self.data)
        hosts = self.data / "pg_hba.conf"
        rules = f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\n"
        hosts.write_text(rules + hosts.read_text())

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and return once it answers."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            **self._settings,
        }
        arguments = [each for name, value in options.items() for each in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", self.data, *arguments), stdout=log, stderr=log, cwd="/"
            )
        ready = ("pg_isready", "--quiet", "--host", self.folder, "--port", self.port, "--timeout=1")
        for _ in range(PATIENCE_S * 20):
            if subprocess.run(self._command(*ready), check=False, cwd="/").returncode == 0:
                return
            if self._process.poll() is not None:
                break
        raise RuntimeError(f"PostgreSQL does not start: {self.log[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends all sessions, SIGQUIT leaves the recovery to the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def new(self, template: str = "template1") -> str:
        """Create a database and return its URL."""
        name = f"record_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the URL of a database, over the Unix socket."""
        return f"postgresql+psycopg://{ADMIN}@/{name}?host={self.folder}&port={self.port}"

    def locked_url(self, name: str, password: str | None = PASSWORD) -> str:
        """Return the URL of a database over the loopback, for the user who needs a password."""
        secret = "" if password is None else f":{password.replace(' ', '%20')}"
        return f"postgresql+psycopg://{LOCKED}{secret}@127.0.0.1:{self.port}/{name}"

    def add_locked(self) -> None:
        """Create the user who needs a password, with every right."""
        if (LOCKED,) not in self.sql("SELECT rolname FROM pg_roles"):
            self.sql(f"CREATE ROLE {LOCKED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")

    def drop(self, url: str) -> None:
        """Remove a database, whoever uses it."""
        self.sql(f"DROP DATABASE IF EXISTS {name_of(url)} WITH (FORCE)")

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the administrator and return its rows."""
        import psycopg

        where = f"host={self.folder} port={self.port} user={ADMIN} dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def backends(self, name: str) -> list[int]:
        """Return the process ids of the server's sessions on a database."""
        rows = self.sql("SELECT pid, datname FROM pg_stat_activity")
        return [int(pid) for pid, where in rows if where == name]

    def _command(self, program: str, *arguments: object) -> list[str]:
        command = [str(self._binaries / program), *map(str, arguments)]
        if self._user is None:
            return command
        ids = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        return ["setpriv", *ids, "--pdeathsig=TERM", *command]

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            self._command(program, *arguments), capture_output=True, text=True, check=False, cwd="/"
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")


def name_of(url: str) -> str:
    """Return the name of the database in a URL of this module."""
    return url.partition("?")[0].rpartition("/")[2]


def _user() -> pwd.struct_passwd | None:
    """Return the user to become, None for a process that is not root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("this machine has neither the user postgres nor nobody")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
