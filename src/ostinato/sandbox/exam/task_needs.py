"""The needs of a task in its sandboxes: its image, as `ostinato tasks build` noted it, and its resources."""

import math
from dataclasses import replace
from pathlib import Path

from ostinato.sandbox.base import DEFAULT_LIMITS, Image, Limits
from ostinato.types import Task

PATIENCE = 4
"""The seconds by the clock for each CPU second that a suite may take."""


def image_of(task: Task) -> Image | None:
    """Return the task's image; None for a task that runs with the machine's own programs."""
    table = task.metadata.get("image")
    if table is None:
        return None
    return Image(root=Path(table["root"]), workdir=table["workdir"], environment=table["environment"])


def limits_of(task: Task) -> Limits:
    """Return the resources of a task's sandboxes: the memory that it asks for, and never less than others.

    The suite of a real repository has more room, the task's time by the clock, since machines are busy, and a
    quarter of it as CPU seconds of each process.
    """
    memory = max(DEFAULT_LIMITS.memory_mb, task.memory_mb)
    if "suite" not in task.metadata:
        return replace(DEFAULT_LIMITS, memory_mb=memory)
    return replace(
        DEFAULT_LIMITS,
        memory_mb=memory,
        cpu_s=max(DEFAULT_LIMITS.cpu_s, math.ceil(task.timeout_s / PATIENCE)),
        wall_s=task.timeout_s,
        processes=2 * DEFAULT_LIMITS.processes,
        disk_mb=4 * DEFAULT_LIMITS.disk_mb,
    )
