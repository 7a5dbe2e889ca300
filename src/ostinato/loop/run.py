"""A run folder: the settings of the run and its processes, the store, the objects, and what stages left.

A stage's result is written once, whole, when the stage is done; a run that was stopped goes on at the first
stage without one.
"""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ostinato.config import dump_tables, read
from ostinato.store import Store
from ostinato.store.config import has_record, objects_of, record_of
from ostinato.store.objects import Objects

T = TypeVar("T")
START = "start"
"""The checkpoint that every engine and trainer begins from: config, tokenizer and weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Paths of one run.

    >>> Run(directory=Path("runs/demo")).report
    PosixPath('runs/demo/report.json')
    """

    directory: Path

    @property
    def lock(self) -> Path:
        return self.directory / "run.lock"

    @property
    def report(self) -> Path:
        return self.directory / "report.json"

    @property
    def page(self) -> Path:
        """The report as one file of HTML."""
        return self.directory / "report.html"

    @property
    def config(self) -> Path:
        return self.directory / "config.toml"

    @property
    def processes(self) -> Path:
        """The settings of the child processes, one table each."""
        return self.directory / "processes.toml"

    @property
    def store_path(self) -> Path:
        """The SQLite file of the record, for a run whose settings name no database."""
        return self.directory / "store.db"

    @property
    def store(self) -> str:
        """The record: the URL in the run's settings, or the SQLite file."""
        return record_of(self.directory)

    @property
    def has_record(self) -> bool:
        return has_record(self.directory)

    @property
    def objects(self) -> str:
        """The objects: the bucket in the run's settings, or the folder."""
        return objects_of(self.directory)

    @property
    def objects_path(self) -> Path:
        """The folder of the objects, for a run whose settings name no bucket."""
        return self.directory / "objects"

    @property
    def tasks(self) -> Path:
        return self.directory / "tasks"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def checkpoint(self, name: str) -> Path:
        return self.directory / "checkpoints" / name

    def open_store(self) -> Store:
        return Store.open(self.store)

    def open_objects(self) -> Objects:
        return Objects.open(self.objects)

    def result(self, stage: str, schema: type[T]) -> T | None:
        """Return what a finished stage left; None while it is not finished.

        Raises ConfigError, naming the file and the key, when what was left is no `schema`.
        """
        path = self._stage(stage)
        return read(schema, self._record(stage)["result"], str(path)) if path.exists() else None

    def seconds(self) -> dict[str, float]:
        """Return how long each finished stage took, by its name."""
        folder = self.directory / "stages"
        names = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.json"))
        return {name: float(self._record(name)["seconds"]) for name in names}

    def finish(self, stage: str, result: Any, seconds: float) -> None:
        """Keep the result of a stage, a dataclass, for good."""
        path = self._stage(stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"seconds": round(seconds, 1), "result": asdict(result)}, indent=2))

    def _record(self, stage: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self._stage(stage).read_text())
        return record

    def _stage(self, name: str) -> Path:
        return self.directory / "stages" / f"{name}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


class SettingsFile:
    """The settings of all processes of a run: one TOML table for each, which it reads at its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tables: dict[str, Any] = {}

    def put(self, name: str, settings: Any) -> None:
        """Write the table of a process; `settings` is the dataclass that its module reads."""
        self._tables[name] = settings
        write_whole(self.path, dump_tables(self._tables))

    def port(self, name: str) -> int:
        """Return the port that a process is to take, 0 for any."""
        return int(getattr(self._tables[name], "port", 0))

    def host(self, name: str) -> str:
        """Return the address that a process is told to listen on; empty for that of its host."""
        return str(getattr(self._tables[name], "host", "")).replace("127.0.0.1", "")

    def change(self, name: str, **settings: Any) -> None:
        """Change those settings of a process that it has; it reads them when it is started again."""
        known = {each.name for each in fields(self._tables[name])}
        ours = {key: value for key, value in settings.items() if key in known}
        self.put(name, replace(self._tables[name], **ours))
