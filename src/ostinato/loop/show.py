"""The display of long work: on a terminal a bar and one line for each stage, elsewhere plain lines.

Both say about how long a stage still takes. Without a terminal there is a line at least every few seconds, so
that nobody takes a long stage for a hang.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LONGEST_SILENCE_S = 15.0
"""The seconds after which a line shows the progress where no terminal can show a bar."""
LONGEST_REPEAT_S = 3600.0
"""The longest pause between two lines that say the same: it doubles while nothing changes."""


class Bar:
    """One stage's bar; `line` is the text beside it."""

    def __init__(
        self, name: str, total: float, progress: Progress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.line = ""
        self.done = 0.0
        self._total = total
        self._progress = progress
        self._clock = clock
        self._first: tuple[float, float] | None = None
        """When the first news came, and what was done then: a stage may go on from where it stopped."""
        self._task: TaskID = progress.add_task(name, total=total, line="", left="")

    def at(self, done: float, line: str = "") -> None:
        """Set how much of the total is done."""
        self.done, self.line = done, line or self.line
        self._first = self._first or (self._clock(), done)
        self._progress.update(self._task, completed=done, line=self.line, left=self.left)

    def more(self, line: str = "") -> None:
        """Count one more as done."""
        self.at(self.done + 1, line)

    def hide(self) -> None:
        """Take the bar away, since its stage is over."""
        self._progress.remove_task(self._task)

    @property
    def left(self) -> str:
        """Return about how long the stage still takes, by its speed since the first news; else nothing."""
        began, done = self._first or (0.0, self.done)
        if not done < self.done < self._total:
            return ""
        seconds = (self._total - self.done) * (self._clock() - began) / (self.done - done)
        return f"about {_length(seconds)} left"

    @property
    def summary(self) -> str:
        """Return the state of the stage in one line of text."""
        share = f"{self.name}: {self.done / self._total:.0%}"
        return ", ".join(filter(None, (share, self.left))) + f"  {self.line}".rstrip()


def _length(seconds: float) -> str:
    for unit, size in (("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


class Show:
    """A `Display` that shows stages, one after another or side by side.

    >>> with Show(Console()).stage("bench", total=288) as bar:                      # doctest: +SKIP
    ...     bar.more("61 % solved")
    """

    def __init__(self, console: Console, longest_silence_s: float = LONGEST_SILENCE_S) -> None:
        self.console = console
        self._start = self._spoke = time.monotonic()
        self._longest_silence_s = longest_silence_s
        self._bars: list[Bar] = []
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[line]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def say(self, text: str) -> None:
        """Print one line behind the seconds since the start."""
        self._spoke = time.monotonic()
        self.console.print(f"[dim]{self._spoke - self._start:5.0f}s[/] {text}", highlight=False)

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Print a line after each `longest_silence_s` of silence, except on a terminal, where a bar moves."""
        ended = threading.Event()

        def beat() -> None:
            said, silence = "", self._longest_silence_s
            while not ended.wait(max(0.01, self._spoke + silence - time.monotonic())):
                bars = "; ".join(bar.summary for bar in list(self._bars))
                line = bars or "starting what the next stage needs"
                if time.monotonic() - self._spoke >= silence:
                    same = line == said
                    silence = min(2 * silence, LONGEST_REPEAT_S) if same else self._longest_silence_s
                    said = line
                    self.say(line)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        if not self.console.is_terminal:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()

    @contextmanager
    def stage(self, name: str, total: float) -> Iterator[Bar]:
        """Show one stage: its bar while it runs, then one line with what came out and how long it took."""
        started = time.monotonic()
        if not self._bars:  # a console has one live display, which the stages of a trial and a cycle share
            self._progress.start()
        bar = Bar(name, total, self._progress)
        self._bars.append(bar)
        try:
            yield bar
        finally:
            self._bars.remove(bar)
            bar.hide()
            if not self._bars:
                self._progress.stop()
        self.say(f"{name:<28} [bold]{bar.line}[/] [dim]({time.monotonic() - started:.0f} s)[/]")
