"""A task source: the Harbor tasks of a folder whose folders begin with a prefix, as of one team's tickets.

[tasks.sources.payments]
use = "tickets"
options = { folder = "tickets", prefix = "PAY-" }
"""

from collections.abc import Mapping
from pathlib import Path

import ostinato as o
from ostinato.tasks.source import FolderSource


@o.task_source("tickets")
class Tickets(FolderSource):
    """The tasks of one team; those without a split are practised on."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(Path(options["folder"]), foreign="train")
        self.tasks = tuple(task for task in self.tasks if task.directory.name.startswith(options["prefix"]))
