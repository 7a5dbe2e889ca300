"""A run folder: the resolved config, the store, the objects, and which stages are done.

A stage's result is written once, whole, when the stage is done; a run that was stopped goes on at the first
stage without one. A folder whose report exists, or whose config differs, is moved aside and a run starts
afresh. Only `--fresh` deletes, and never what people left: keys, consents, live sessions.
"""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ostinato.loop.owner import LOCK, Owner, is_empty
from ostinato.loop.people import people
from ostinato.store import Store
from ostinato.store.database import is_open_elsewhere
from ostinato.store.objects import Objects


class RunError(ValueError):
    """The folder is not one of our runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Paths of one run.

    >>> Run(directory=Path("runs/demo")).report
    PosixPath('runs/demo/report.json')
    """

    directory: Path

    @property
    def report(self) -> Path:
        return self.directory / "report.json"

    @property
    def config(self) -> Path:
        return self.directory / "config.toml"

    @property
    def store_path(self) -> Path:
        return self.directory / "store.db"

    @property
    def objects_path(self) -> Path:
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
        return Store.open(self.store_path)

    def open_objects(self) -> Objects:
        return Objects.open(self.objects_path)

    def stage(self, name: str) -> dict[str, Any] | None:
        """What the stage left when it was done; None while it is not."""
        path = self._stage_path(name)
        if not path.exists():
            return None
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def finish_stage(self, name: str, result: Mapping[str, Any]) -> None:
        path = self._stage_path(name)
        path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps(result, indent=2))

    def _stage_path(self, name: str) -> Path:
        return self.directory / "stages" / f"{name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run that is ready to go on, and what became of what lay in its folder.

    >>> Opened(run=Run(directory=Path("runs/demo")), told="starts afresh").resumed
    False
    """

    run: Run
    told: str
    """For the person who started it: resumed, moved aside and where to, or deleted and how much."""
    resumed: bool = False


def open_run(owner: Owner, config: str, *, fresh: bool) -> Opened:
    """Open the owned folder for a run of `config`.

    Raises RunError when the folder holds something else than a run, or when `fresh` would delete what people
    left or a store that a process has open.
    """
    run = Run(directory=owner.directory)
    if not is_empty(run.directory) and not run.config.exists():
        raise RunError(f"{run.directory} holds something else than a run: name an empty or a new folder")
    same = run.config.exists() and run.config.read_text() == config
    resumed = same and not fresh and not run.report.exists()
    told = f"resumes in {run.directory}" if resumed else _make_room(run, fresh=fresh)
    for path in (run.tasks, run.logs, run.objects_path, run.directory / "checkpoints"):
        path.mkdir(parents=True, exist_ok=True)
    write_whole(run.config, config)
    return Opened(run=run, told=told, resumed=resumed)


def _make_room(run: Run, *, fresh: bool) -> str:
    """Move what lies in the folder aside, or delete it where that was asked for; says which."""
    if is_empty(run.directory):
        return f"starts afresh in {run.directory}"
    if is_open_elsewhere(run.store_path):
        raise RunError(f"{run.store_path} is open in another process, such as a gateway: stop that first")
    if not fresh:
        aside = _aside(run.directory)
        aside.mkdir()
        for path in _content(run.directory):
            path.rename(aside / path.name)
        return f"starts afresh in {run.directory}; what lay there is in {aside}"
    if left := people(run.store_path):
        raise RunError(
            f"{run.directory} holds {left}, which --fresh does not delete: leave out --fresh and the folder "
            f"is moved aside, or remove it yourself"
        )
    stages = len(list(run.directory.glob("stages/*.json")))
    for path in _content(run.directory):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return f"starts afresh in {run.directory}; deleted the run that lay there, with {stages} finished stages"


def _content(directory: Path) -> list[Path]:
    """The store last, so that a move or deletion that was cut short still shows what it is."""
    paths = [path for path in directory.iterdir() if path.name != LOCK]
    return sorted(paths, key=lambda path: (path.name == "config.toml", path.name.startswith("store.db")))


def _aside(directory: Path) -> Path:
    stem = f"{directory.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (f"{stem}-{number}" if number > 1 else stem for number in count(1))
    paths = (directory.resolve().with_name(name) for name in numbered)
    return next(path for path in paths if not path.exists())


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old text or the new, never a part."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)
