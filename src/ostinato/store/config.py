"""The table `[store]` of a run's file, the record of a run folder, and the record that a command means."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from ostinato.store.sql.database import read_url
from ostinato.store.sql.errors import StoreError

PASSWORD = "PGPASSWORD"  # noqa: S105 - the name of the variable
"""The environment variable in which PostgreSQL's clients look for the password."""
BUCKETS = ("s3://", "gs://", "az://")
RECORD = "OSTINATO_RECORD"
"""The environment variable that names the run folder, or the record, of commands without a flag."""
RUNS = Path("runs")
"""The folder in which `ostinato demo`, `run` and `serve --model` make run folders unless one is named."""
OF_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The place of a run's record.

    >>> StoreConfig(url="postgresql://ada@db.example/ostinato").on_one_machine
    False
    """

    url: str = ""
    """The URL of a PostgreSQL database, which processes on any machine can use; empty takes a SQLite file in
    the run folder. The password is in PGPASSWORD or in ~/.pgpass, and never here."""
    objects: str = ""
    """The bucket of the run's weights, s3://BUCKET/PREFIX, gs://… or az://…; empty takes the run folder. Its
    credentials are in the environment, and never here."""

    def __post_init__(self) -> None:
        if self.objects and not self.objects.startswith(BUCKETS):
            raise ValueError(
                f"objects is {self.objects!r}: write s3://BUCKET/PREFIX, gs://… or az://…, or leave it "
                "out for the run folder"
            )
        if not self.url:
            return
        try:
            refuse_password(self.url)
            kind = read_url(self.url).get_backend_name()
        except StoreError as error:
            raise ValueError(str(error)) from None
        if kind != "postgresql":
            raise ValueError(
                f"url names a {kind} database: write postgresql://USER@HOST/NAME, or leave it out for a "
                "SQLite file in the run folder"
            )

    @property
    def on_one_machine(self) -> bool:
        """Return whether this machine alone reaches the record at this address."""
        if not self.url:
            return True
        url = read_url(self.url)
        named = url.query.get("host", url.host or "")
        hosts = named if isinstance(named, tuple) else tuple(named.split(","))
        return all(not host or host in OF_THIS_MACHINE or host.startswith("/") for host in hosts)


def refuse_password(url: str) -> None:
    """Raise StoreError for a URL with a password in it, which this process would write into files and onto
    command lines."""
    if "://" not in url:
        return
    parsed = read_url(url)
    if parsed.password is not None or {"password", "sslpassword"} & parsed.query.keys():
        where = parsed.difference_update_query(("password", "sslpassword")).render_as_string()
        raise StoreError(
            f"the URL {where} holds a password, which everybody could read in the run folder: leave it out, "
            f"and put it into {PASSWORD} or into ~/.pgpass"
        )


def record_of(folder: Path) -> str:
    """Return the record of a run folder: the URL in the settings that the run kept, or else its SQLite file.

    Raises StoreError when the settings cannot be read.
    """
    return _kept(folder, "url") or str(folder / "store.db")


def objects_of(folder: Path) -> str:
    """Return the objects of a run folder: the bucket in the settings that the run kept, or else its folder.

    Raises StoreError when the settings cannot be read.
    """
    return _kept(folder, "objects") or str(folder / "objects")


def _kept(folder: Path, key: str) -> str:
    settings = folder / "config.toml"
    try:
        table = tomllib.loads(settings.read_text()).get("store", {})
    except (FileNotFoundError, NotADirectoryError):
        table = {}
    except (OSError, ValueError) as error:
        raise StoreError(f"{settings} cannot be read: {error}") from error
    return str(table.get(key, ""))


def has_record(folder: Path) -> bool:
    """Return whether a run folder has a record; that of a server is taken to be there."""
    return is_there(record_of(folder))


def is_there(place: str) -> bool:
    """Return whether a record's file is there; the record of a server is taken to be there."""
    url = read_url(place)
    return url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The record that a command means, and its run folder where one was named or found.

    >>> Meant(place="runs/serve/store.db", folder=Path("runs/serve")).place
    'runs/serve/store.db'
    """

    place: str
    """The SQLite file or the URL of a database."""
    folder: Path | None


def meant_record(folder: Path | None, place: str | None) -> Meant:
    """Return the record that a command means: one rule for all commands.

    It is what a flag names (`place` or `folder`), else what the environment variable OSTINATO_RECORD names (a
    run folder, a SQLite file or a URL), else the only run folder below `runs/` that has a record. It must be
    there already, so that a mistyped name makes none. Raises StoreError, which lists the candidates.
    """
    if place is None and folder is None and (named := os.environ.get(RECORD)):
        folder, place = (Path(named), None) if Path(named).is_dir() else (None, named)
    if place is None:
        folder = folder or _only_folder()
        place = record_of(folder)
    if not is_there(place):
        raise StoreError(
            f"{place} is no record: name a run folder with --directory, or a record with --store; "
            f"{_candidates()}"
        )
    return Meant(place=place, folder=folder)


def meant_folder(folder: Path | None) -> Path:
    """Return the run folder that a command means, by the rule of `meant_record`. Raises StoreError."""
    found = meant_record(folder, None)
    if found.folder is None:
        raise StoreError(
            f"{RECORD} names the record {shown(found.place)}, and this command needs a run folder: name one "
            "with --directory"
        )
    return found.folder


def _only_folder() -> Path:
    held = _held()
    if len(held) != 1:
        raise StoreError(
            f"which record? {_candidates()}: name one with --directory, --store or {RECORD}, or make one "
            "with `ostinato serve --model MODEL` or `ostinato demo`"
        )
    return held[0]


def _held() -> list[Path]:
    return sorted(each for each in RUNS.glob("*") if each.is_dir() and has_record(each))


def _candidates() -> str:
    held = _held()
    return f"{', '.join(map(str, held))} hold a record" if held else f"no folder below {RUNS}/ holds a record"


def shown(place: str) -> str:
    """Return the place of a record as a person may read it, without a password."""
    return read_url(place).render_as_string(hide_password=True) if "://" in place else place
