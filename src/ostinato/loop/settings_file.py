"""The settings of the child processes of a run, in one file."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ostinato.config import dump_tables
from ostinato.loop.run import write_whole


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

    def change(self, name: str, **settings: Any) -> None:
        """Change those settings of a process that it has; it reads them when it is started again."""
        known = {each.name for each in fields(self._tables[name])}
        ours = {key: value for key, value in settings.items() if key in known}
        self.put(name, replace(self._tables[name], **ours))
