"""A run folder: the resolved config, the store, the objects, and which stages are done.

A stage's result is written once, whole, when the stage is done; a run that was stopped goes on at the first
stage without one. A folder whose report exists, or whose config differs, starts afresh.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.store import Store
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


def open_run(directory: Path, config: str, *, fresh: bool) -> tuple[Run, bool]:
    """Opens `directory` for a run of `config`; the flag says whether an unfinished run is resumed."""
    run = Run(directory=directory)
    if directory.exists() and any(directory.iterdir()) and not run.config.exists():
        raise RunError(f"{directory} holds something else than a run: name an empty or a new folder")
    same = run.config.exists() and run.config.read_text() == config
    resumed = same and not fresh and not run.report.exists()
    if directory.exists() and not resumed:
        shutil.rmtree(directory)
    for path in (run.tasks, run.logs, run.objects_path, directory / "checkpoints"):
        path.mkdir(parents=True, exist_ok=True)
    write_whole(run.config, config)
    return run, resumed


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old text or the new, never a part."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)
