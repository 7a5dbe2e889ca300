"""What a person sees while it works: a bar and one line for each stage; plain lines where there is no
terminal.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Bar:
    """One stage's bar; `status` is the line beside it."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self.line = ""

    def at(self, done: float, line: str = "") -> None:
        self.line = line or self.line
        self._progress.update(self._task, completed=done, line=self.line)

    def more(self, line: str = "") -> None:
        self.line = line or self.line
        self._progress.update(self._task, advance=1, line=self.line)


class Show:
    """Shows stages one after another.

    >>> with Show(Console()).stage("bench", total=288) as bar:                      # doctest: +SKIP
    ...     bar.more("61 % solved")
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._start:5.0f}s[/] {text}", highlight=False)

    @contextmanager
    def stage(self, name: str, total: float) -> Iterator[Bar]:
        started = time.monotonic()
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with progress:
            bar = Bar(progress, progress.add_task(name, total=total, line=""))
            yield bar
        self.say(f"{name:<28} [bold]{bar.line}[/] [dim]({time.monotonic() - started:.0f} s)[/]")
