"""The image of a task's sandboxes, as `ostinato tasks build` noted it in the task's metadata."""

from pathlib import Path

from ostinato.sandbox.base import Image
from ostinato.types import Task


def image_of(task: Task) -> Image | None:
    """Return the task's image; None for a task that runs with the machine's own programs."""
    table = task.metadata.get("image")
    if table is None:
        return None
    return Image(root=Path(table["root"]), workdir=table["workdir"], environment=table["environment"])
